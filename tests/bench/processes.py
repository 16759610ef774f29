"""The system's figures about a process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Stat(NamedTuple):
    """One process, all its threads together."""

    program: str
    state: str
    """One letter, such as `T` for one that is stopped and `Z` for one that nobody waits for."""
    parent: int
    cpu_seconds: float
    resident_bytes: int


def stat_of(pid: int) -> Stat:
    """A process as it is now; `OSError` if it has ended."""
    # The name, in parentheses, may hold spaces.
    head, _, tail = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")
    fields = tail.split()
    cpu_seconds = (int(fields[11]) + int(fields[12])) / _TICKS
    resident_bytes = int(fields[21]) * _PAGE_BYTES
    return Stat(head.partition("(")[2], fields[0], int(fields[1]), cpu_seconds, resident_bytes)
