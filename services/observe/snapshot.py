"""A worker at one moment: everything that metrics, health and the watchdog read.

The runtime fills these between two batches, when somebody asks; nothing here costs a record
anything. Counters of a task count from the moment it was opened, its chain's included: who throws
a chain away closes the task, retires its last snapshot, and opens another.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Literal

from headrace.contracts.decision import Reason
from headrace.contracts.record import NO_TIME_MS
from headrace.services.observe.histogram import HistogramSnapshot
from headrace.services.operators.aggregate import Aggregate
from headrace.services.operators.deduplicate import Deduplicate
from headrace.services.operators.distinct import Distinct
from headrace.services.operators.filter import Filter
from headrace.services.operators.lateness import Lateness
from headrace.services.operators.operator import Counts, Operator
from headrace.services.operators.reorder import Reorder
from headrace.services.operators.sample import Sample
from headrace.services.operators.suppress import Suppress
from headrace.services.operators.table import Table
from headrace.services.operators.updates import BufferSamples

WorkerState = Literal["starting", "restoring", "running", "stopping"]
TaskState = Literal["restoring", "running", "closing"]
CopyRole = Literal["learner", "standby"]
OperatorKind = Literal[
    "reorder", "deduplicate", "distinct", "table", "filter", "sample", "aggregate", "suppress"
]


@dataclass(frozen=True, slots=True)
class SuppressSnapshot:
    """Numbers that only a suppress has."""

    samples: BufferSamples
    """Of its buffer, as Kafka Streams samples."""
    wait_ms: int
    """How far stream time must pass an update's time before it leaves."""


@dataclass(frozen=True, slots=True)
class OperatorSnapshot:
    """One operator of one task."""

    name: str
    kind: OperatorKind
    counts: Counts
    """A copy; `counts.balance()` is zero, or a record was lost or invented."""
    stream_time_ms: int | None
    """The latest time it has seen; None before the first record, and where it looks at none."""
    held_bytes: int | None
    """None where nothing is held, or what is held is not weighed."""
    suppress: SuppressSnapshot | None


@dataclass(frozen=True, slots=True)
class TaskSnapshot:
    """One partition of one hop."""

    hop: str
    topic: str
    partition: int
    state: TaskState

    position: int | None
    """Every source offset before this one is decided, those that carry no record included (markers
    of transactions, what compaction took): where nothing waits, it is the consumer's position."""
    fetched: int | None
    """The consumer's position: every offset before this one was handed over."""
    committed: int | None
    end: int | None
    """The partition's end (high water mark), asked of the broker apart from fetching: a consumer
    that stopped fetching does not hear of new records."""
    readable_end: int | None
    """Up to where a consumer can read now: the last stable offset, behind which a transaction of
    the producer's is open. Where uncommitted records are read it is `end`."""
    waiting_records: int
    """Handed over and not yet decided."""
    waiting_bytes: int
    """Of keys and values; a batch that was handed over counts until all of it is decided."""
    uncommitted_records: int
    """Decided and not yet committed."""

    taken_records: int
    """Decided: turned away by the guard or the intake, or given to the operators."""
    taken_bytes: int
    guarded_records: int
    """Taken, and turned away because state says that they were processed before."""
    repeated_records: int
    """Taken, and processed for the state alone: what comes of them was sent once."""
    intake_dead: Mapping[Reason, int]
    """Taken, and turned away because they could not be read."""
    intake_ahead: int
    """Given to the operators, though far ahead of the clock."""
    unsent: Mapping[Reason, int]
    """They left the operators and are dead, since they could not be sent."""
    lateness: Lateness
    """A copy of the chain's."""
    operators: tuple[OperatorSnapshot, ...]
    """In the chain's order."""
    progress_ms: int | None
    """The lowest timestamp that a later record on time can have, as of the last commit."""

    commits: int
    failed_commits: int
    commit_seconds: HistogramSnapshot
    commit_records: HistogramSnapshot
    restored_records: int
    restore_ms: int
    """How long it restored, until now where it still does."""
    restore_remaining: int | None
    """Changelog offsets that are still to be restored; None while nobody knows."""
    awaits_schema: bool = False
    """Whether it stands still until a schema registry answers."""
    behind_ms: int | None = None
    """How far progress is behind the clock; None before any, and where the source is idle."""
    waits_for: int | None = None
    """The source partition that it waits for, being ahead of it by more than `max-skew`."""
    skew_ms: int | None = None
    """How far it is ahead of the slowest source partition; None without a repartition behind it."""


@dataclass(frozen=True, slots=True)
class StateMemory:
    """The memory that RocksDB uses in the whole process."""

    block_cache_bytes: int
    """Blocks, indexes and blooms, and the write buffers, which are charged to the cache."""
    write_buffer_bytes: int
    """The write buffers alone."""
    limit_bytes: int


@dataclass(frozen=True, slots=True)
class CopySnapshot:
    """The state of a task that runs elsewhere, or nowhere, kept up here."""

    task: str
    """Its topic and partition, with a slash between."""
    role: CopyRole
    lag: int | None
    """Changelog records that it lacks; None while nobody knows."""


@dataclass(frozen=True, slots=True)
class WorkerSnapshot:
    """The whole process."""

    pipeline: str
    instance: str
    state: WorkerState
    taken_at_s: float
    """When this was, by a clock that only goes forward."""
    since_s: float
    """Since when it is in this state, by the same clock."""
    tasks: tuple[TaskSnapshot, ...] = ()
    rebalances: int = 0
    heartbeat_at_s: float | None = None
    """When the group's coordinator last answered, by the same clock; None before it ever did."""
    copies: tuple[CopySnapshot, ...] = ()
    paused_ms: Mapping[str, int] = field(default_factory=dict)
    """By topic and partition: how long it stood still here because it came or went."""
    memory: StateMemory | None = None
    """None before any state is open."""


def operator_snapshot(operator: Operator) -> OperatorSnapshot:
    """Return the snapshot of an operator."""
    match operator:
        case Reorder():
            return _snapshot(operator, "reorder", operator.stream_time_ms, operator.held_bytes)
        case Deduplicate():
            return _snapshot(operator, "deduplicate", operator.stream_time_ms)
        case Distinct():
            return _snapshot(operator, "distinct", operator.stream_time_ms)
        case Aggregate():
            return _snapshot(operator, "aggregate", operator.stream_time_ms)
        case Suppress():
            suppress = SuppressSnapshot(copy(operator.samples), operator.wait_ms)
            time_ms, weight = operator.stream_time_ms, operator.weight
            return _snapshot(operator, "suppress", time_ms, weight, suppress)
        case Table():
            return _snapshot(operator, "table")
        case Filter():
            return _snapshot(operator, "filter")
        case Sample():
            return _snapshot(operator, "sample")
        case _:
            message = f"an operator of class {type(operator).__name__} has no snapshot"
            raise AssertionError(message)


def lateness_snapshot(lateness: Lateness) -> Lateness:
    """A copy of how late records came."""
    return copy(lateness)


def _snapshot(
    operator: Operator,
    kind: OperatorKind,
    stream_time_ms: int = NO_TIME_MS,
    held_bytes: int | None = None,
    suppress: SuppressSnapshot | None = None,
) -> OperatorSnapshot:
    counts = copy(operator.counts)
    counts.dropped = dict(counts.dropped)
    time_ms = None if stream_time_ms == NO_TIME_MS else stream_time_ms
    return OperatorSnapshot(operator.name, kind, counts, time_ms, held_bytes, suppress)
