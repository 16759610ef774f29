"""Move the state of one operator into another number of tasks, row by row.

Every key goes to the task to which the spread sends its next record, and has the rows there that it
had before. A record that is held goes with its key, and one without a key with its partition.

    versions, corrections    by key; a table of aggregates has groups for keys; runs of versions
                             become rows of their table
    subscriptions            by foreign key, and values that stand in a group by group
    held records             by key, in slices of the same width
    numbers                  as `moved_numbers` says of each

A table may have more rows in one task than in another, and then a key is in different rows of them
(`table_rows`). But keys of one hash modulo the fewest rows stay together: they are a group. A group
is moved by itself, and becomes one row of each new task. So a state is never in memory at once.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headrace.contracts.errors import StateCorrupt
from headrace.spark_jobs.versioned.corrections import decode_kept, encode_kept
from headrace.spark_jobs.versioned.grace import Held, HeldRecords, decode_slice
from headrace.spark_jobs.versioned.layout import (
    decode_numbers,
    decode_slices,
    decode_subscriptions,
    decode_versions,
    encode_subscriptions,
    encode_versions,
)
from headrace.spark_jobs.versioned.moved_numbers import (
    Placed,
    held_names,
    is_standing,
    moved_numbers,
    refuse_other_stages,
    tasks_before,
)
from headrace.spark_jobs.versioned.row_bytes import Kind
from headrace.spark_jobs.versioned.runs import histories_together
from headrace.spark_jobs.versioned.spread import task_number, task_of
from headrace.spark_jobs.versioned.state import MemoryRows, TaskState
from headrace.spark_jobs.versioned.table_rows import (
    RUN,
    base_of,
    bytes_number,
    modulus_of,
    row_name,
    rows_number,
    table_of,
    tables_in,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    Bucket = dict[bytes, Any]

KIND_AT = 1
"""The byte of a row that tells its kind."""
_SLICES = "slices"
_ROWS_MAX = 1 << 62
_CODECS: Mapping[Kind, tuple[Callable[[bytes], Bucket], Callable[[Bucket], bytes]]] = {
    Kind.VERSIONS: (decode_versions, encode_versions),
    Kind.SUBSCRIPTIONS: (decode_subscriptions, encode_subscriptions),
    Kind.HELD: (decode_kept, encode_kept),
}


class StoredRow(NamedTuple):
    """A row of a task's state."""

    task: int
    name: str
    row: bytes


def moved(
    headers: Mapping[int, bytes], rows: Iterable[StoredRow], tasks: int
) -> Iterator[StoredRow]:
    """Yield the rows of the new tasks, their headers last.

    `headers` are those of all tasks that there are. `rows` are all other rows; rows of one group of
    `Groups` follow each other.
    """
    groups = Groups.of(headers.values())
    moving = _Moving({task: decode_numbers(row) for task, row in headers.items()}, groups, tasks)
    for group, together in groupby(rows, lambda row: groups.group_of(row.name)):
        yield from moving.take(group, [*together])
    yield from moving.rest()


class Groups(NamedTuple):
    """The groups of a state's rows: the rows that may hold the same keys, in all tasks."""

    held: frozenset[str]
    """The names of held records, whose rows are a group each."""
    row_counts: Mapping[str, int]
    """How many rows each table has in the new tasks: no more than it has in any task."""
    row_count: int
    """How many rows other tables have."""

    @classmethod
    def of(cls, headers: Iterable[bytes]) -> Groups:
        """Find the groups by the headers of all tasks."""
        numbers = [*map(decode_numbers, headers)]
        if not numbers:
            return cls(frozenset(), {}, 1)
        buckets = min(each["buckets"] for each in numbers)
        tables = {table for each in numbers for table in tables_in(each)}
        fewest: dict[str, int] = {}
        for table in tables:
            # A run has as many rows as its table had once, and a task may have none.
            missing = buckets if table == table_of(table) else _ROWS_MAX
            rows = min(each.get(rows_number(table), missing) for each in numbers)
            fewest[table_of(table)] = min(rows, fewest.get(table_of(table), rows))
        base = base_of(buckets)
        counts = {table: modulus_of(base, count) for table, count in fewest.items()}
        return cls(frozenset(held_names(numbers)), counts, buckets)

    def group_of(self, name: str) -> str:
        """Return the group of a row: the name of the row that it becomes, if it is a table's."""
        table, _, place = name.rpartition("/")
        if table in self.held or not place.isdecimal():
            return name
        table = table_of(table)
        return row_name(table, int(place) % self.count_of(table))

    def count_of(self, table: str) -> int:
        """Return how many rows a table has in each new task."""
        return self.row_counts.get(table, self.row_count)


class _Moving:
    def __init__(
        self, headers: Mapping[int, Mapping[str, int]], groups: Groups, tasks: int
    ) -> None:
        self._headers = headers
        self._groups = groups
        numbers = headers.values()
        self._before = tasks_before(numbers) if headers else tasks
        refuse_other_stages(numbers, tasks)
        self._placed = [Placed() for _ in range(tasks)]
        self._held: dict[str, list[Held]] = defaultdict(list)
        self._listed: set[tuple[int, str]] = set()
        self._read: set[tuple[int, str]] = set()

    def take(self, group: str, rows: Sequence[StoredRow]) -> Iterator[StoredRow]:
        """Take the rows of a group; yield those that are complete by then."""
        table, _, part = group.rpartition("/")
        kinds = {Kind(row.row[KIND_AT]) for row in rows}
        if len(kinds) != 1 or not {row.task for row in rows} <= self._headers.keys():
            message = (
                f"the row `{group}` of this state belongs to no task, or is of several kinds; start"
                " the query from an older or a new checkpoint"
            )
            raise StateCorrupt(message)
        (kind,) = kinds
        if table in self._groups.held and kind in {Kind.HELD, Kind.SLICES}:
            for row in rows:
                self._hold(row.task, table, part, row.row)
            return
        if kind not in _CODECS:
            message = (
                f"the row `{group}` of this state is of {kind.name.lower()}, and it is not known to"
                " which tasks they go; upgrade headrace, or start the job with a new checkpoint"
            )
            raise StateCorrupt(message)
        yield from self._keyed(kind, group, table, rows)

    def rest(self) -> Iterator[StoredRow]:
        """Yield held records and headers."""
        if not self._headers:
            return
        missing = self._listed ^ self._read
        if missing:
            message = (
                f"the row `{min(missing)[1]}` of held records is gone, or is not listed; start the"
                " query from an older or a new checkpoint"
            )
            raise StateCorrupt(message)
        held = {name: self._spread(name) for name in self._groups.held}
        numbers = moved_numbers([*self._headers.values()], self._placed)
        for task, own in enumerate(numbers):
            for table, size in self._placed[task].tables.items():
                own[rows_number(table)] = self._groups.count_of(table)
                own[bytes_number(table)] = size
            rows = MemoryRows()
            state = TaskState(rows)
            state.numbers = own
            for name, of_tasks in held.items():
                records = HeldRecords(state, name, own[f"{name}:slice_ms"])
                records.hold(*of_tasks[task])
            state.save()
            for name, row in rows.items():
                yield StoredRow(task, name, row)

    def _keyed(
        self, kind: Kind, group: str, table: str, rows: Sequence[StoredRow]
    ) -> Iterator[StoredRow]:
        decode, encode = _CODECS[kind]
        buckets: dict[int, Bucket] = defaultdict(dict)
        for row in sorted(rows, key=_age_of):
            for key, entry in decode(row.row).items():
                bucket = buckets[self._task_of(key, 0, row.task, row.name)]
                if kind is Kind.VERSIONS and key in bucket:
                    bucket[key] = histories_together(bucket[key], entry)
                else:
                    bucket[key] = entry
        for task, bucket in sorted(buckets.items()):
            placed = self._placed[task]
            encoded = encode(bucket)
            placed.tables[table] += len(encoded)
            if is_standing(table):
                placed.standing[table] += sum(map(len, bucket.values()))
            yield StoredRow(task, group, encoded)

    def _hold(self, task: int, table: str, part: str, row: bytes) -> None:
        if part == _SLICES:
            self._listed |= {(task, f"{table}/{number}") for number in decode_slices(row)}
            return
        self._read.add((task, f"{table}/{part}"))
        held = decode_slice(row)
        for record in held.records:
            self._task_of(record.key, record.partition, task, table)
        self._held[table].append(held)

    def _spread(self, name: str) -> list[Held]:
        """Return the held records of each new task, and count them."""
        held = Held.together(self._held[name])
        after = len(self._placed)
        found = [task_of(one.key, one.partition, after) for one in held.records]
        tasks = np.array(found, np.int64)
        for task, placed in enumerate(self._placed):
            placed.held[name] = found.count(task)
        return [held.take(tasks == task) for task in range(after)]

    def _task_of(self, key: bytes | None, partition: int, task: int, name: str) -> int:
        """Return the new task of a key; refuse one that stood where no record of it would go."""
        number = task_number(key, partition)
        if number % self._before != task:
            message = (
                f"the row `{name}` of task {task} has a key whose records go to another task, so it"
                " is not known to which tasks its keys go; start the job with a new checkpoint"
            )
            raise StateCorrupt(message)
        return number % len(self._placed)


def _age_of(row: StoredRow) -> tuple[bool, int]:
    """Order the rows of a group: runs as they were written, and the table itself behind them."""
    _, is_run, number = row.name.rpartition("/")[0].partition(RUN)
    return not is_run, int(number or 0)
