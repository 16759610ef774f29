"""Move the state of one operator into another number of tasks, row by row.

Every key goes to the task to which the spread sends its next record, and has the rows there that it
had before. A record that is held goes with its key, and one without a key with its partition.

    versions, corrections    by key; a table of aggregates has groups for keys
    subscriptions            by foreign key, and values that stand in a group by group
    held records             by key, in slices of the same width
    numbers                  as `moved_numbers` says of each

A bucket of a key does not depend on its task. So a bucket is moved by itself, and all buckets of a
state are never in memory at once.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headrace.contracts.errors import StateCorrupt
from headrace.spark_jobs.versioned.corrections import decode_kept, encode_kept
from headrace.spark_jobs.versioned.grace import Held, HeldRecords, decode_slice
from headrace.spark_jobs.versioned.layout import (
    Kind,
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
from headrace.spark_jobs.versioned.spread import task_number, task_of
from headrace.spark_jobs.versioned.state import MemoryRows, TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    Bucket = dict[bytes, Any]

KIND_AT = 1
"""The byte of a row that tells its kind."""
_SLICES = "slices"
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

    `headers` are those of all tasks that there are. `rows` are all other rows; rows of one name
    follow each other.
    """
    moving = _Moving({task: decode_numbers(row) for task, row in headers.items()}, tasks)
    alike: dict[int, bytes] = {}
    name = None
    for row in rows:
        if row.name != name and name is not None:
            yield from moving.take(name, alike)
            alike = {}
        name = row.name
        alike[row.task] = row.row
    if name is not None:
        yield from moving.take(name, alike)
    yield from moving.rest()


class _Moving:
    def __init__(self, headers: Mapping[int, Mapping[str, int]], tasks: int) -> None:
        self._headers = headers
        numbers = headers.values()
        self._before = tasks_before(numbers) if headers else tasks
        refuse_other_stages(numbers, tasks)
        self._held_names = held_names(numbers)
        self._placed = [Placed() for _ in range(tasks)]
        self._held: dict[str, list[Held]] = defaultdict(list)
        self._listed: set[tuple[int, str]] = set()
        self._read: set[tuple[int, str]] = set()

    def take(self, name: str, rows: Mapping[int, bytes]) -> Iterator[StoredRow]:
        """Take the rows of one name, by task; yield those that are complete by then."""
        table, _, part = name.rpartition("/")
        kinds = {Kind(row[KIND_AT]) for row in rows.values()}
        if len(kinds) != 1 or not rows.keys() <= self._headers.keys():
            message = (
                f"the row `{name}` of this state belongs to no task, or is of several kinds; start"
                " the query from an older or a new checkpoint"
            )
            raise StateCorrupt(message)
        (kind,) = kinds
        if table in self._held_names and kind in {Kind.HELD, Kind.SLICES}:
            for task, row in rows.items():
                self._hold(task, table, part, row)
            return
        if kind not in _CODECS:
            message = (
                f"the row `{name}` of this state is of {kind.name.lower()}, and it is not known to"
                " which tasks they go; upgrade headrace, or start the job with a new checkpoint"
            )
            raise StateCorrupt(message)
        yield from self._keyed(kind, name, table, rows)

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
        held = {name: self._spread(name) for name in self._held_names}
        numbers = moved_numbers([*self._headers.values()], self._placed)
        for task, own in enumerate(numbers):
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
        self, kind: Kind, name: str, table: str, rows: Mapping[int, bytes]
    ) -> Iterator[StoredRow]:
        decode, encode = _CODECS[kind]
        buckets: dict[int, Bucket] = defaultdict(dict)
        for task, row in rows.items():
            for key, entry in decode(row).items():
                buckets[self._task_of(key, 0, task, name)][key] = entry
        for task, bucket in sorted(buckets.items()):
            placed = self._placed[task]
            placed.tables.add(table)
            if is_standing(table):
                placed.standing[table] += sum(map(len, bucket.values()))
            yield StoredRow(task, name, encode(bucket))

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
