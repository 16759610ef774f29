"""The system's figures about a process, and about the files that it keeps."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")


class Stat(NamedTuple):
    """One process, all its threads together."""

    program: str
    state: str
    """One letter, such as `T` for one that is stopped and `Z` for one that nobody waits for."""
    parent: int
    cpu_seconds: float


def stat_of(pid: int) -> Stat:
    """A process as it is now; `OSError` if it has ended."""
    # The name, in parentheses, may hold spaces.
    head, _, tail = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")
    fields = tail.split()
    cpu_seconds = (int(fields[11]) + int(fields[12])) / _TICKS
    return Stat(head.partition("(")[2], fields[0], int(fields[1]), cpu_seconds)


def memory_bytes(pid: int) -> int:
    """A process's memory; of a page that several share, each has a part. `OSError` as above.

    The kernel walks through all pages for it, so nobody asks often.
    """
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text("utf-8")
    sizes = (line.split() for line in rollup.splitlines() if line.startswith("Pss:"))
    return sum(int(kibibytes) << 10 for _, kibibytes, _ in sizes)


def descriptors_of(pid: int) -> int:
    """How many files, sockets and pipes a process has open."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def files_below(folder: Path) -> dict[Path, os.stat_result]:
    """All files below a folder, without those that are deleted meanwhile."""
    found = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                found[Path(parent, name)] = Path(parent, name).stat()
    return found
