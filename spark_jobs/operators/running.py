"""Open a topology over one task's state, for one batch: arrivals in, columns of results out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.contracts.record import Record
from headrace.spark_jobs.operators.results import Results
from headrace.spark_jobs.operators.topology import (
    LookUp,
    Stage,
    Step,
    StreamJoin,
    TableStep,
    Topic,
    Topology,
    WindowStep,
)
from headrace.spark_jobs.operators.updates import merged
from headrace.spark_jobs.shapes import CHANGED, COLD, CORRECTED, JOINED, LATE, PASSED
from headrace.spark_jobs.versioned.arrival import observe_lateness
from headrace.spark_jobs.versioned.changes import all_changes
from headrace.spark_jobs.versioned.records import Records, objects

if TYPE_CHECKING:
    from headrace.spark_jobs.versioned.arrival import Arrivals
    from headrace.spark_jobs.versioned.changes import Updates
    from headrace.spark_jobs.versioned.functions import StepFailed
    from headrace.spark_jobs.versioned.progress import TaskProgress
    from headrace.spark_jobs.versioned.records import Integers
    from headrace.spark_jobs.versioned.state import TaskState
    from headrace.spark_jobs.versioned.stream_table import Matches, StreamTableJoin
    from headrace.spark_jobs.versioned.tables import Table
    from headrace.spark_jobs.versioned.window_fold import WindowFold
    from headrace.spark_jobs.versioned.window_join import WindowJoin


class Running(ABC):
    """A topology that takes the batches of a task."""

    is_behind = False
    """Whether it waits for the tasks of another topology, and not for partitions."""

    @abstractmethod
    def process(self, arrivals: Arrivals) -> list[Results]:
        """Take arrivals in their order."""

    def advance(self, progress_ms: int) -> list[Results]:  # noqa: ARG002
        """Note that all inputs have passed a time; return what it releases. Tables hold nothing."""
        return []

    def failed(self) -> list[tuple[Record, StepFailed]]:
        """Return the records that failed since the last call; others raise."""
        return []

    def held(self) -> int:
        """Return how many records are held."""
        return 0

    def balances(self) -> dict[str, int]:
        """Return, by step, records taken less verdicts and held ones; other than zero is a loss."""
        return {}


class OpenTask(NamedTuple):
    """A task over its rows."""

    state: TaskState
    running: Running
    progress: TaskProgress | None
    """The progress that it has read, None if it needs none."""
    name: str
    """The name of its topology."""
    before: dict[str, int]
    """Its numbers as they were last written."""
    said: list[str]
    """The options that have changed since."""


def open_topology(topology: Topology, state: TaskState) -> Running:
    """Open a topology over the state of a task."""
    if isinstance(topology, LookUp):
        return _RunningLookUp(topology, state)
    if isinstance(topology, StreamJoin):
        return _RunningStreamJoin(topology, state)
    if isinstance(topology, WindowStep):
        return _RunningWindows(topology, state)
    running = topology.open(state)
    if isinstance(running, Running):
        return running
    return _RunningTable(topology, running, state)


class _RunningTable(Running):
    def __init__(self, step: Step | Stage, table: Table, state: TaskState) -> None:
        self._updates: Updates = step.updates if isinstance(step, TableStep) else "each"
        self._table = table
        self._state = state
        self._newest_alone = isinstance(step, Topic) and step.newest_alone

    def process(self, arrivals: Arrivals) -> list[Results]:
        observe_lateness(self._state, arrivals)
        changes = all_changes(self._table, arrivals)
        changes = merged(changes, self._updates, self._state)
        if self._newest_alone:
            changes = changes.where(changes.are_latest)
        return [Results.of(CHANGED, changes)]


class _RunningLookUp(Running):
    def __init__(self, step: LookUp, state: TaskState) -> None:
        self._name = step.name
        self._says_progress = step.says_progress
        self._join: StreamTableJoin = step.open(state)
        self._state = state
        self._failed: list[tuple[Record, StepFailed]] = []

    def process(self, arrivals: Arrivals) -> list[Results]:
        observe_lateness(self._state, arrivals)
        matches = self._join.process(arrivals)
        self._failed += matches.failed
        late = _of_stream(LATE, matches.late, arrivals.records.take(matches.late), None)
        return [_joined(matches), _cold(matches), _corrected(matches), late]

    def advance(self, progress_ms: int) -> list[Results]:
        matches = self._join.advance(progress_ms, 0)
        self._failed += matches.failed
        return [
            _joined(matches),
            _cold(matches),
            *_passed(progress_ms, says_progress=self._says_progress),
        ]

    def failed(self) -> list[tuple[Record, StepFailed]]:
        failed, self._failed = self._failed, []
        return failed

    def held(self) -> int:
        return self._join.held.count

    def balances(self) -> dict[str, int]:
        return {self._name: self._join.balance()}


class _RunningStreamJoin(Running):
    def __init__(self, step: StreamJoin, state: TaskState) -> None:
        self._name = step.name
        self._says_progress = step.says_progress
        self._join: WindowJoin = step.open(state)
        self._state = state

    def process(self, arrivals: Arrivals) -> list[Results]:
        observe_lateness(self._state, arrivals)
        late = self._join.process(arrivals)
        return [_of_stream(LATE, late, arrivals.records.take(late), None)]

    def advance(self, progress_ms: int) -> list[Results]:
        met = self._join.advance(progress_ms)
        records = Records.of([each.record for each in met])
        return [
            Results(
                JOINED,
                np.zeros(len(met), np.int64),
                records,
                records.keys,
                objects([each.value for each in met]),
                np.array([each.time_ms for each in met], np.int64),
            ),
            *_passed(progress_ms, says_progress=self._says_progress),
        ]

    def failed(self) -> list[tuple[Record, StepFailed]]:
        return self._join.failed()

    def held(self) -> int:
        return self._join.held

    def balances(self) -> dict[str, int]:
        return {self._name: self._join.balance()}


class _RunningWindows(Running):
    def __init__(self, step: WindowStep, state: TaskState) -> None:
        self._step = step
        self.is_behind = step.is_behind
        self._windows: WindowFold = step.open(state)
        self._state = state

    def process(self, arrivals: Arrivals) -> list[Results]:
        if not self._step.is_behind:
            observe_lateness(self._state, arrivals)
        late = self._windows.process(arrivals)
        if self._step.is_behind:
            # The join has handed the record back, as it came.
            return []
        return [_of_stream(LATE, late, arrivals.records.take(late), None)]

    def advance(self, progress_ms: int) -> list[Results]:
        closed = self._windows.advance(progress_ms)
        topic = self._step.topic
        made = Records.of([_made(each.group, each.value, each.time_ms, topic) for each in closed])
        return [_of_stream(JOINED, np.zeros(len(made), np.int64), made, None)]

    def held(self) -> int:
        return self._windows.held

    def balances(self) -> dict[str, int]:
        return {self._step.name: self._windows.balance()}


def _passed(progress_ms: int, *, says_progress: bool) -> list[Results]:
    """Say, behind released rows, how far the task is."""
    if not says_progress:
        return []
    passed = Records.of([_made(None, None, progress_ms)])
    return [_of_stream(PASSED, np.zeros(1, np.int64), passed, None)]


def _made(key: bytes | None, value: bytes | None, time_ms: int, topic: str = "") -> Record:
    return Record(key, value, time_ms, (), topic, 0, None)


def _joined(matches: Matches) -> Results:
    made = _of_stream(JOINED, matches.causes, matches.records, matches.table_values)
    if matches.made is not None:
        return made.with_made(matches.made)
    return made if matches.rows is None else made.with_rows(matches.rows)


def _cold(matches: Matches) -> Results:
    return _of_stream(COLD, matches.cold_causes, matches.cold, None)


def _corrected(matches: Matches) -> Results:
    corrections = matches.corrections
    causes = np.array([each.cause for each in corrections], np.int64)
    values = pa.array([each.table_value for each in corrections], pa.large_binary())
    records = Records.of([each.record for each in corrections])
    made = _of_stream(CORRECTED, causes, records, values)
    return made if matches.corrected_rows is None else made.with_rows(matches.corrected_rows)


def _of_stream(
    verdict: str, causes: Integers, records: Records, table_values: pa.LargeBinaryArray | None
) -> Results:
    return Results(
        verdict, causes, records, records.keys, records.values, records.times_ms, table_values
    )
