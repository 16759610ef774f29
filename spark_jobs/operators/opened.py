"""A topology over the state of one task, for one batch: arrivals in, columns of results out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_jobs.operators.topology import LookUp, Topology
from spark_jobs.shapes import CHANGED, COLD, CORRECTED, JOINED, LATE
from spark_jobs.versioned.arrival import observe_lateness

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from contracts.record import Record
    from spark_jobs.versioned.arrival import Arrival
    from spark_jobs.versioned.state import TaskState
    from spark_jobs.versioned.stream_table import Matches, StreamTableJoin
    from spark_jobs.versioned.tables import Change, Table


@dataclass(slots=True)
class Results:
    """Rows that leave with one verdict, in columns."""

    verdict: str
    causes: list[int] = field(default_factory=list)
    """Index, in the batch, of the arrival that caused each row."""
    records: list[Record] = field(default_factory=list)
    """Whose headers and origin each row has."""
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    times_ms: list[int] = field(default_factory=list)
    table_values: list[bytes | None] | None = None

    def add_changes(self, changes: Iterable[Change]) -> None:
        """Append changes of a table."""
        for change in changes:
            self.causes.append(change.cause)
            self.records.append(change.record)
            self.keys.append(change.key)
            self.values.append(change.new)
            self.times_ms.append(change.timestamp_ms)

    def add(self, cause: int, record: Record, key: bytes | None, value: bytes | None) -> None:
        """Append a message, at its record's time."""
        self.causes.append(cause)
        self.records.append(record)
        self.keys.append(key)
        self.values.append(value)
        self.times_ms.append(record.timestamp_ms)


class Opened(ABC):
    """What takes the batches of a task."""

    @abstractmethod
    def process(self, arrivals: Sequence[Arrival]) -> list[Results]:
        """Take arrivals in their order."""

    def advance(self, progress_ms: int) -> list[Results]:  # noqa: ARG002
        """All inputs have passed a time; tables wait for none."""
        return []

    def balances(self) -> dict[str, int]:
        """By step, what came in less what became of it: zero, or something was lost."""
        return {}


def open_topology(topology: Topology, state: TaskState) -> Opened:
    """A topology over the state of a task."""
    if isinstance(topology, LookUp):
        return _OpenedLookUp(topology.name, topology.open(state), state)
    opened = topology.open(state)
    return opened if isinstance(opened, Opened) else _OpenedTable(opened, state)


class _OpenedTable(Opened):
    def __init__(self, table: Table, state: TaskState) -> None:
        self._table = table
        self._state = state

    def process(self, arrivals: Sequence[Arrival]) -> list[Results]:
        observe_lateness(self._state, [arrival for arrival in arrivals if arrival[0] >= 0])
        results = Results(CHANGED)
        for cause, arrival in enumerate(arrivals):
            results.add_changes(self._table.take(cause, arrival))
        return [results]


class _OpenedLookUp(Opened):
    def __init__(self, name: str, join: StreamTableJoin, state: TaskState) -> None:
        self._name = name
        self._join = join
        self._state = state

    def process(self, arrivals: Sequence[Arrival]) -> list[Results]:
        observe_lateness(self._state, arrivals)
        matches = self._join.process(arrivals)
        late = Results(LATE)
        for place in matches.late:
            record = arrivals[place].record
            late.add(place, record, record.key, record.value)
        return [_joined(matches), _cold(matches), _corrected(matches), late]

    def advance(self, progress_ms: int) -> list[Results]:
        matches = self._join.advance(progress_ms, 0)
        return [_joined(matches), _cold(matches)]

    def balances(self) -> dict[str, int]:
        return {self._name: self._join.balance()}


def _joined(matches: Matches) -> Results:
    return _of_stream(JOINED, matches.causes, matches.records, matches.table_values)


def _cold(matches: Matches) -> Results:
    return _of_stream(COLD, matches.cold_causes, matches.cold, None)


def _corrected(matches: Matches) -> Results:
    corrections = matches.corrections
    causes = [each.cause for each in corrections]
    values = [each.table_value for each in corrections]
    return _of_stream(CORRECTED, causes, [each.record for each in corrections], values)


def _of_stream(
    verdict: str,
    causes: list[int],
    records: list[Record],
    table_values: list[bytes | None] | None,
) -> Results:
    return Results(
        verdict,
        causes,
        records,
        [record[0] for record in records],
        [record[1] for record in records],
        [record[2] for record in records],
        table_values,
    )
