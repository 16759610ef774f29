"""Workers to look at: snapshots made by hand, and of chains that really ran."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from headrace.contracts.decision import Reason
from headrace.contracts.policies import (
    AggregatePolicy,
    AnyOperator,
    BufferPolicy,
    DeduplicatePolicy,
    ReorderPolicy,
    SuppressPolicy,
    Tumbling,
)
from headrace.contracts.record import Record
from headrace.contracts.topology import with_names, with_windows
from headrace.services.observe.histogram import COMMIT_RECORDS, COMMIT_SECONDS, Histogram
from headrace.services.observe.metrics import Metrics
from headrace.services.observe.snapshot import (
    CopySnapshot,
    StateMemory,
    TaskSnapshot,
    WorkerSnapshot,
    lateness_snapshot,
    operator_snapshot,
)
from headrace.services.operators.chain import Chain
from headrace.services.operators.lateness import Lateness
from headrace.services.operators.operator import Batch
from headrace.services.state.memory import MemoryStore
from headrace.services.state.overlay import Overlay

WINDOW = Tumbling(size_ms=10_000, grace_ms=1_000)
WHOLE_CHAIN: tuple[AnyOperator, ...] = (
    ReorderPolicy(
        grace_ms=5_000, late="topic", buffer=BufferPolicy(bytes=1 << 20, when_full="spill")
    ),
    DeduplicatePolicy(by="key", interval_ms=60_000),
    AggregatePolicy(function="count", window=WINDOW),
    SuppressPolicy(until="window-closes"),
)


def task(partition: int = 3, **fields: Any) -> TaskSnapshot:
    """A task in the middle of its topic, with nothing to do."""
    idle = TaskSnapshot(
        hop="state",
        topic="clicks.raw",
        partition=partition,
        state="running",
        position=100,
        fetched=100,
        committed=100,
        end=100,
        readable_end=100,
        waiting_records=0,
        waiting_bytes=0,
        uncommitted_records=0,
        taken_records=0,
        taken_bytes=0,
        guarded_records=0,
        repeated_records=0,
        intake_dead={},
        intake_ahead=0,
        unsent={},
        lateness=Lateness(),
        operators=(),
        progress_ms=None,
        commits=0,
        failed_commits=0,
        commit_seconds=Histogram(COMMIT_SECONDS).snapshot(),
        commit_records=Histogram(COMMIT_RECORDS).snapshot(),
        restored_records=0,
        restore_ms=0,
        restore_remaining=0,
    )
    return replace(idle, **fields)


def worker(*tasks: TaskSnapshot, **fields: Any) -> WorkerSnapshot:
    """A worker that runs."""
    running = WorkerSnapshot("clicks", "a", "running", taken_at_s=60.0, since_s=50.0, tasks=tasks)
    return replace(running, **fields)


def clicks(count: int, step_ms: int = 1_000, first: int = 0) -> list[Record]:
    """A stream in which every fourth record comes late, and every fifth again."""
    return [
        Record(
            b"user-%d" % (number - (number % 5 == 4)),
            b'{"page":%d}' % number,
            max(0, number * step_ms - (9_000 if number % 4 == 3 else 0)),
            (),
            "clicks.raw",
            3,
            number,
        )
        for number in range(first, first + count)
    ]


class Ran:
    """A task whose chain takes records."""

    def __init__(self, policies: Sequence[AnyOperator] = WHOLE_CHAIN, partition: int = 3) -> None:
        """Begin over an empty store."""
        overlay = Overlay(MemoryStore(), "clicks")
        named = with_windows(with_names(tuple(policies)))
        self._chain = Chain(named, overlay.view)
        self._partition = partition
        self._taken = 0
        self._seconds, self._records = Histogram(COMMIT_SECONDS), Histogram(COMMIT_RECORDS)
        self._commits = 0

    def take(self, records: list[Record]) -> None:
        """A batch, and a commit of 20 ms."""
        self._chain.process(Batch.of(records))
        self._taken += len(records)
        self._commits += 1
        self._seconds.take(0.02)
        self._records.take(len(records))

    def snapshot(self, **fields: Any) -> TaskSnapshot:
        """Return its snapshot."""
        shown = task(
            self._partition,
            taken_records=self._taken,
            lateness=lateness_snapshot(self._chain.lateness),
            operators=tuple(map(operator_snapshot, self._chain.operators)),
            commits=self._commits,
            commit_seconds=self._seconds.snapshot(),
            commit_records=self._records.snapshot(),
        )
        return replace(shown, **fields)


def busy_worker() -> WorkerSnapshot:
    """One partition at work, one that restores: what the page of metrics is shown for."""
    ran = Ran()
    ran.take(clicks(60))
    working = ran.snapshot(
        position=63,
        fetched=70,
        committed=50,
        end=100,
        readable_end=90,
        waiting_records=7,
        waiting_bytes=70,
        uncommitted_records=13,
        taken_records=63,
        taken_bytes=1_234,
        guarded_records=2,
        repeated_records=1,
        intake_dead={Reason.UNDECODABLE: 1},
        intake_ahead=2,
        unsent={Reason.TOO_LARGE: 3},
        progress_ms=54_000,
        restored_records=10,
        restore_ms=500,
        behind_ms=6_500,
        waits_for=5,
        skew_ms=61_500,
    )
    restoring = task(
        4,
        state="restoring",
        position=None,
        fetched=None,
        end=None,
        readable_end=None,
        restored_records=500,
        restore_ms=1_250,
        restore_remaining=700,
    )
    memory = StateMemory(block_cache_bytes=3_000, write_buffer_bytes=1_000, limit_bytes=10_000)
    return worker(
        working,
        restoring,
        rebalances=2,
        heartbeat_at_s=59.5,
        copies=(
            CopySnapshot("clicks/5", "learner", 800),
            CopySnapshot("clicks/6", "standby", None),
        ),
        paused_ms={"clicks/4": 1_250},
        memory=memory,
    )


def page_of(snapshot: WorkerSnapshot) -> str:
    """The page of metrics, without what is the process's own."""
    return Metrics(lambda: snapshot).text().decode().partition("# HELP process_")[0]
