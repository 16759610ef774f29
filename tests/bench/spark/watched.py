"""A contestant as a process with children, watched from outside: CPU time and memory, by program.

The measurement begins when the contestant says "running" and ends when it says "done", or when
somebody else sees that it is. The start of a session or a client is told apart.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.bench.processes import stat_of

ROOT = Path(__file__).parents[3]
_SAMPLE_S = 0.1
_PATIENCE_S = 1_800.0
_END_WITHIN_S = 60.0
_TAIL_LINES = 30


class Watched(NamedTuple):
    """The time and memory of a contestant."""

    seconds: float
    cpu_seconds: dict[str, float]
    """By program: `java` or `python`."""
    start_up_cpu_seconds: float
    resident_bytes_max: dict[str, int]


class Failed(Exception):
    """A contestant ended before he was done; his last words are in the message."""


class _Tree:
    """All processes below one, also those that have gone meanwhile."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._cpu: dict[int, tuple[str, float]] = {}
        self.resident_max: defaultdict[str, int] = defaultdict(int)

    def sample(self) -> dict[str, float]:
        """CPU seconds so far, by program."""
        resident: defaultdict[str, int] = defaultdict(int)
        for pid, program, cpu_s, resident_bytes in _descendants(self._root):
            self._cpu[pid] = program, cpu_s
            resident[program] += resident_bytes
        for program, size in resident.items():
            self.resident_max[program] = max(self.resident_max[program], size)
        found: defaultdict[str, float] = defaultdict(float)
        for program, cpu_s in self._cpu.values():
            found[program] += cpu_s
        return dict(found)


def watch(
    arguments: list[str],
    environment: Mapping[str, str],
    log: Path,
    is_done: Callable[[], bool] | None = None,
) -> Watched:
    """Run a contestant to his end."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            arguments, cwd=ROOT, env={**os.environ, **environment}, stdout=file, stderr=file
        )
        try:
            return _watched(process, log, is_done or (lambda: _has_said(log, "done")))
        finally:
            process.terminate()
            process.wait(_END_WITHIN_S)


def _watched(process: subprocess.Popen[bytes], log: Path, is_done: Callable[[], bool]) -> Watched:
    tree = _Tree(process.pid)
    begun: tuple[float, dict[str, float]] | None = None
    give_up_at = time.monotonic() + _PATIENCE_S
    while time.monotonic() < give_up_at:
        cpu = tree.sample()
        now_s = time.monotonic()
        if begun is None and _has_said(log, "running"):
            begun = now_s, cpu
        if begun is not None and is_done():
            began_s, before = begun
            used = {name: cpu_s - before.get(name, 0.0) for name, cpu_s in tree.sample().items()}
            start_up = sum(before.values())
            return Watched(time.monotonic() - began_s, used, start_up, dict(tree.resident_max))
        if process.poll() is not None:
            break
        time.sleep(_SAMPLE_S)
    last = "\n".join(log.read_text("utf-8", "replace").splitlines()[-_TAIL_LINES:])
    message = f"it ended ({process.poll()}), or stood still:\n{last}"
    raise Failed(message)


def _has_said(log: Path, word: str) -> bool:
    return f"{word}\n".encode() in log.read_bytes()


def _descendants(root: int) -> list[tuple[int, str, float, int]]:
    """A process and all below it: pid, program, CPU seconds, resident bytes."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    known: dict[int, tuple[int, str, float, int]] = {}
    for each in Path("/proc").iterdir():
        if not each.name.isdigit():
            continue
        try:
            stat = stat_of(int(each.name))
        except OSError:
            # It has ended since it was listed.
            continue
        pid, program = int(each.name), "java" if stat.program == "java" else "python"
        children[stat.parent].append(pid)
        known[pid] = pid, program, stat.cpu_seconds, stat.resident_bytes
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        if pid in known:
            found.append(known[pid])
        waiting += children[pid]
    return found
