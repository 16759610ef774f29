"""Starts one contestant as a process, watches it from outside, and ends it.

No contestant times itself. Every few milliseconds the race notes how much CPU time the process has
used (all its threads, from the kernel), how far its group has committed, and where its output ends.
So what counts is the same for all: from the first commit that is seen to the last one for CPU time,
and to the last record of the output for time on the wall. The time before the first commit is
start-up, and is reported apart.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from tests.bench.processes import stat_of
from tests.bench.race.cluster import Cluster

ROOT = Path(__file__).parents[3]
_SAMPLE_S = 0.05
_PATIENCE_S = 120.0
"""Without any progress for so long, something is wrong."""
_STOP_S = 40.0
_TAIL_LINES = 30


class Command(NamedTuple):
    """How a process is started."""

    arguments: list[str]
    environment: Mapping[str, str]


class Sample(NamedTuple):
    """A worker at one moment."""

    seconds: float
    """Since the process was started."""
    cpu_seconds: float
    committed: int
    ends: Mapping[int, int]


class Watched(NamedTuple):
    """All that was seen of a process."""

    samples: list[Sample]
    resident_bytes: int


class WorkerFailed(Exception):
    """A contestant ended, or stood still; its last words are in the message."""


@asynccontextmanager
async def running(command: Command, log: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process whose output goes to a file, and which is gone afterwards."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HEADRACE_", "RACE_"))
    }
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            *command.arguments,
            cwd=ROOT,
            env={**kept, **command.environment},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
        try:
            yield process
        finally:
            await _end(process)


async def watch(
    command: Command, log: Path, cluster: Cluster, topics: tuple[str, str, str], goal: int
) -> Watched:
    """Run a contestant until its group has committed `goal` records.

    `topics` are the group, the topic that it reads and the one that it writes.
    """
    group, source, sink = topics
    samples: list[Sample] = []
    started = changed = monotonic()
    async with cluster.ends(sink) as ends, running(command, log) as process:
        while not samples or samples[-1].committed < goal:
            await asyncio.sleep(_SAMPLE_S)
            if process.returncode is not None:
                raise WorkerFailed(_last_words(f"ended ({process.returncode})", log))
            sample = Sample(
                monotonic() - started,
                cpu_seconds(process.pid),
                await cluster.committed(group, source),
                await ends(),
            )
            if not samples or sample[2:] != samples[-1][2:]:
                changed = monotonic()
            if monotonic() - changed > _PATIENCE_S:
                raise WorkerFailed(_last_words(f"stands still at {sample.committed:,}", log))
            samples.append(sample)
        resident = resident_bytes_max(process.pid)
    return Watched(samples, resident)


def cpu_seconds(pid: int) -> float:
    """CPU time of all threads of a process so far."""
    return stat_of(pid).cpu_seconds


def resident_bytes_max(pid: int) -> int:
    """The most memory that a process has had."""
    lines = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
    (peak,) = (line for line in lines if line.startswith("VmHWM:"))
    return int(peak.split()[1]) * 1024


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _STOP_S)
        except TimeoutError:
            process.kill()
            await process.wait()


def _last_words(what: str, log: Path) -> str:
    lines = log.read_text("utf-8", "replace").splitlines()[-_TAIL_LINES:]
    return "\n".join([f"a contestant {what}; it says:", *lines])
