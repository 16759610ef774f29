"""How much memory there is for this process: its container's, or the machine's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from headrace.services.runtime.machine.budget import Budget, budget_of
from headrace.services.settings import Settings

_ROOT = Path("/sys/fs/cgroup")
_FILES = ("memory.max", "memory.limit_in_bytes")
"""Of a cgroup of the second version, and of the first."""


def memory_of_machine_bytes(root: Path = _ROOT, own: Path = Path("/proc/self/cgroup")) -> int:
    """The least of the machine's memory and the limits of all cgroups that this process is in."""
    machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine_bytes, *_limits(root, own)])


def _limits(root: Path, own: Path) -> Iterator[int]:
    """A limit of the first version that is none is a huge number; one of the second is `max`."""
    for folder in _folders(root, own):
        for name in _FILES:
            file = folder / name
            if file.is_file():
                text = file.read_text("ascii").strip()
                if text.isdecimal():
                    yield int(text)


def _folders(root: Path, own: Path) -> Iterator[Path]:
    """Within a container the root is its own cgroup; else the process says which ones it is in."""
    yield from (root, root / "memory")
    for line in own.read_text("utf-8").splitlines() if own.is_file() else ():
        _, controllers, path = line.split(":", 2)
        if controllers in {"", "memory"}:
            group = Path(path.lstrip("/"))
            for folder in (group, *group.parents):
                yield root / controllers / folder


def budget_for(settings: Settings) -> Budget:
    """Return the budget that was set, or half of the machine's memory."""
    return budget_of(settings.memory_bytes, memory_of_machine_bytes())
