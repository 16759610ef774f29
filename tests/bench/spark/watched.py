"""A contestant as a process with children, watched from outside: CPU time and memory, by program.

The measurement begins when the contestant says "running" and ends when it says "done", or when
somebody else sees that it is. The start of a session or a client is told apart.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from tests.bench.processes import memory_bytes, stat_of

ROOT = Path(__file__).parents[3]
_SAMPLE_S = 0.1
_MEMORY_SAMPLE_S = 1.0
_PATIENCE_S = 1_800.0
_END_WITHIN_S = 60.0
_TAIL_LINES = 30


class Watched(NamedTuple):
    """The time and memory of a contestant."""

    seconds: float
    cpu_seconds: dict[str, float]
    """By program: `java`, `python`, or `workers`, the Python below Java."""
    before: dict[str, float]
    """By program, what had been used when the measurement began."""
    memory_bytes_max: dict[str, int]
    warm_seconds: float = 0.0
    warm_cpu_seconds: dict[str, float] = {}  # noqa: RUF012 (a named tuple's default)
    """The part behind the moment at which the contestant was warm, if somebody sees that."""

    @property
    def start_up_cpu_seconds(self) -> float:
        """All that had been used when the measurement began."""
        return sum(self.before.values())


class Failed(Exception):
    """A contestant ended before he was done; his last words are in the message."""


class Tree:
    """All processes below one, also those that have gone meanwhile."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._cpu: dict[int, tuple[str, float]] = {}
        self._weigh_at_s = 0.0
        self.memory_max: defaultdict[str, int] = defaultdict(int)

    def sample(self) -> dict[str, float]:
        """CPU seconds so far, by program."""
        found = _descendants(self._root)
        for pid, program, cpu_s in found:
            self._cpu[pid] = program, cpu_s
        if time.monotonic() >= self._weigh_at_s:
            self._weigh(found)
            self._weigh_at_s = time.monotonic() + _MEMORY_SAMPLE_S
        return self.used()

    def _weigh(self, found: list[tuple[int, str, float]]) -> None:
        memory: defaultdict[str, int] = defaultdict(int)
        for pid, program, _ in found:
            # One that has ended meanwhile has none.
            with contextlib.suppress(OSError):
                memory[program] += memory_bytes(pid)
        for program, size in memory.items():
            self.memory_max[program] = max(self.memory_max[program], size)

    def used(self) -> dict[str, float]:
        """CPU seconds as the last sample found them, by program."""
        found: defaultdict[str, float] = defaultdict(float)
        for program, cpu_s in self._cpu.values():
            found[program] += cpu_s
        return dict(found)


@contextmanager
def running(
    command: list[str], log: Path, environment: Mapping[str, str] = MappingProxyType({})
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process, and tell it to stop at the end; until then it must run."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **environment}, stdout=file, stderr=file
        )
    try:
        yield process
    finally:
        has_ended = process.poll() is not None
        process.terminate()
        process.wait(_END_WITHIN_S)
        if has_ended:
            # It explains what went wrong in the block.
            raise Failed(_said(process, log))


def watch(
    arguments: list[str],
    environment: Mapping[str, str],
    log: Path,
    is_done: Callable[[], bool] | None = None,
    is_warm: Callable[[], bool] | None = None,
) -> Watched:
    """Run a contestant to his end; with `is_warm`, the part behind that is told apart."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            arguments, cwd=ROOT, env={**os.environ, **environment}, stdout=file, stderr=file
        )
        try:
            done = is_done or (lambda: _has_said(log, "done"))
            return _watched(process, log, done, is_warm or (lambda: False))
        finally:
            process.terminate()
            process.wait(_END_WITHIN_S)


def _watched(
    process: subprocess.Popen[bytes],
    log: Path,
    is_done: Callable[[], bool],
    is_warm: Callable[[], bool],
) -> Watched:
    tree = Tree(process.pid)
    begun: tuple[float, dict[str, float]] | None = None
    warm: tuple[float, dict[str, float]] | None = None
    give_up_at = time.monotonic() + _PATIENCE_S
    while time.monotonic() < give_up_at:
        cpu = tree.sample()
        now_s = time.monotonic()
        if begun is None and _has_said(log, "running"):
            begun = now_s, cpu
        if begun is not None and warm is None and is_warm():
            warm = time.monotonic(), tree.sample()
        if begun is not None and is_done():
            began_s, before = begun
            warm_s, warmed = warm or begun
            cpu, now_s = tree.sample(), time.monotonic()
            return Watched(
                now_s - began_s,
                _since(cpu, before),
                before,
                dict(tree.memory_max),
                now_s - warm_s,
                _since(cpu, warmed),
            )
        if process.poll() is not None:
            break
        time.sleep(_SAMPLE_S)
    raise Failed(_said(process, log))


def _said(process: subprocess.Popen[bytes], log: Path) -> str:
    last = "\n".join(log.read_text("utf-8", "replace").splitlines()[-_TAIL_LINES:])
    return f"it ended ({process.poll()}), or stood still:\n{last}"


def _since(now: dict[str, float], before: dict[str, float]) -> dict[str, float]:
    return {name: cpu_s - before.get(name, 0.0) for name, cpu_s in now.items()}


def _has_said(log: Path, word: str) -> bool:
    return f"{word}\n".encode() in log.read_bytes()


def _descendants(root: int) -> list[tuple[int, str, float]]:
    """A process and all below it: pid, program, CPU seconds.

    Python that runs below Java, as Spark's workers do, is another program.
    """
    children: defaultdict[int, list[int]] = defaultdict(list)
    known: dict[int, tuple[int, str, float]] = {}
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
        known[pid] = pid, program, stat.cpu_seconds
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        if pid in known:
            found.append(known[pid])
            if known[pid][1] != "python":
                for child in children[pid]:
                    if child in known:
                        known[child] = child, "workers", known[child][2]
        waiting += children[pid]
    return found
