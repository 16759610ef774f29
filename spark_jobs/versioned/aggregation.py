"""Aggregations of tables, with retraction: a value that leaves a group is subtracted (rule F6).

    change of a row -> Regrouping -> change within groups -> Folding -> change of an aggregate

A row that moves from one group to another is subtracted from the old one first, then added to the
new one. In one task `Aggregated` does both. Over many tasks, `Regrouping` runs where the rows are
and `Folding` where the groups are.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from headrace.spark_jobs.versioned.arrival import in_order
from headrace.spark_jobs.versioned.changes import Change, Changes
from headrace.spark_jobs.versioned.functions import as_group, as_value, of_step, of_step_for_all
from headrace.spark_jobs.versioned.history import PlainStore
from headrace.spark_jobs.versioned.layout import decode_subscriptions, encode_subscriptions
from headrace.spark_jobs.versioned.records import are_present, objects
from headrace.spark_jobs.versioned.state import Buckets, TaskState
from headrace.spark_jobs.versioned.table_rows import TableRows
from headrace.spark_jobs.versioned.tables import Plain, Storage, StoredTable, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.spark_jobs.versioned.arrival import Arrival
    from headrace.spark_jobs.versioned.history import VersionedStore
    from headrace.spark_jobs.versioned.records import Integers, Objects

    Grouped = tuple[bytes, bytes] | None
    Regroup = Callable[[bytes, bytes], tuple[bytes, bytes] | None]
    """The group of a row and its value there, None where it is in no group."""
    Fold = Callable[[bytes, bytes, bytes], bytes]
    """Takes group, value and aggregate so far; returns the new aggregate."""

_long = Struct(">q")


class Aggregation(NamedTuple):
    """How values become one aggregate, and how one of them is taken out again."""

    initial: Callable[[], bytes] | None
    """The aggregate of nothing; None where the first value is the first aggregate."""
    add: Fold
    subtract: Fold


def sum_of(number_of: Callable[[bytes], int]) -> Aggregation:
    """Make the sum of a number in each value, as eight bytes, big-endian."""

    def add(_: bytes, value: bytes, total: bytes) -> bytes:
        return write_long(read_long(total) + number_of(value))

    def subtract(_: bytes, value: bytes, total: bytes) -> bytes:
        return write_long(read_long(total) - number_of(value))

    return Aggregation(lambda: write_long(0), add, subtract)


def count() -> Aggregation:
    """Count the rows of a group, as eight bytes, big-endian."""
    return sum_of(lambda _: 1)


def numbers_of(number_of: Callable[[bytes], int]) -> Aggregation:
    """Keep all numbers of a group, ascending, eight bytes each, since a minimum may be taken out.

    `least` and `greatest` read it; a mapped table of one of them is the minimum or the maximum.
    """

    def add(_: bytes, value: bytes, numbers: bytes) -> bytes:
        place, packed = _place(numbers, number_of(value))
        return numbers[:place] + packed + numbers[place:]

    def subtract(_: bytes, value: bytes, numbers: bytes) -> bytes:
        place, packed = _place(numbers, number_of(value))
        return numbers[:place] + numbers[place + len(packed) :]

    return Aggregation(lambda: b"", add, subtract)


def least(_: bytes, numbers: bytes) -> bytes | None:
    """Return the least of a group's numbers, None of an empty group."""
    return numbers[: _long.size] or None


def greatest(_: bytes, numbers: bytes) -> bytes | None:
    """Return the greatest of a group's numbers, None of an empty group."""
    return numbers[-_long.size :] or None


def _place(numbers: bytes, number: int) -> tuple[int, bytes]:
    """Return where a number is or would be, in bytes, and the number as bytes."""
    place = int(np.searchsorted(np.frombuffer(numbers, ">i8"), number))
    return place * _long.size, write_long(number)


def reduce(
    adder: Callable[[bytes, bytes], bytes], subtractor: Callable[[bytes, bytes], bytes]
) -> Aggregation:
    """Combine two functions of the aggregate so far and a value; it begins as the first value."""
    return Aggregation(
        None,
        lambda _, value, total: adder(total, value),
        lambda _, value, total: subtractor(total, value),
    )


def write_long(number: int) -> bytes:
    """Pack a count or a sum into its eight bytes."""
    return _long.pack(number)


def read_long(packed: bytes) -> int:
    """Unpack a count or a sum."""
    number: int = _long.unpack(packed)[0]
    return number


class Parts(NamedTuple):
    """Changes within groups, in columns."""

    places: Integers
    """Which of the changes of rows each belongs to."""
    groups: Objects
    olds: Objects
    news: Objects


class Regrouping:
    """At the rows: turns a change into changes within groups."""

    def __init__(self, state: TaskState, step: str, regroup: Regroup) -> None:
        self._state = state
        self._name = f"{step}:rows"
        self._regroup = of_step(step, regroup, as_group)
        self._regroup_all = of_step_for_all(step, regroup, as_group)

    def split(self, change: Change, *, versioned: bool) -> list[Change]:
        """Return one change if the group stays, else the old group's, then the new one's."""
        self._state.count(f"{self._name}:taken")
        if versioned and not change.is_latest:
            self._state.count(f"{self._name}:ignored")
            return []
        old = None if change.old is None else self._regroup(change.key, change.old)
        new = None if change.new is None else self._regroup(change.key, change.new)
        return [
            change._replace(key=group, old=old_value, new=new_value)
            for _, group, old_value, new_value in self._within([old], [new])
        ]

    def split_all(self, changes: Changes, *, versioned: bool) -> Parts:
        """Do as `split` for many."""
        size = len(changes.causes)
        taken = np.flatnonzero(changes.are_latest) if versioned else np.arange(size)
        self._state.count(f"{self._name}:taken", size)
        self._state.count(f"{self._name}:ignored", size - len(taken))
        # A function is called as often as one by one, and in the same order.
        values = np.stack([changes.olds[taken], changes.news[taken]], axis=1)
        present = are_present(values)
        calls = np.nonzero(present)[0]
        keys, causes = changes.keys[taken][calls], changes.causes[taken][calls]
        given = zip(keys.tolist(), values[present].tolist(), strict=True)
        grouped = np.full(values.shape, None, object)
        grouped[present] = objects(self._regroup_all(causes.tolist(), given))
        made = self._within(*grouped.T.tolist())
        ats, groups, olds, news = zip(*made, strict=True) if made else [()] * 4
        places = taken[np.array(ats, np.intp)]
        return Parts(places, objects(groups), objects(olds), objects(news))

    def _within(
        self, olds: list[Grouped], news: list[Grouped]
    ) -> list[tuple[int, bytes, bytes | None, bytes | None]]:
        """Return change, group, old and new value of each change within a group."""
        made: list[tuple[int, bytes, bytes | None, bytes | None]] = []
        ungrouped = 0
        for at, (old, new) in enumerate(zip(olds, news, strict=True)):
            if old is None:
                if new is None:
                    ungrouped += 1
                else:
                    made.append((at, new[0], None, new[1]))
            elif new is None:
                made.append((at, old[0], old[1], None))
            elif old[0] == new[0]:
                made.append((at, new[0], old[1], new[1]))
            else:
                made += (at, old[0], old[1], None), (at, new[0], None, new[1])
        self._state.count(f"{self._name}:emitted", len(olds) - ungrouped)
        self._state.count(f"{self._name}:ungrouped", ungrouped)
        return made


class Folding(StoredTable):
    """At the groups: keeps their aggregates."""

    def __init__(
        self, state: TaskState, name: str, aggregation: Aggregation, storage: Storage
    ) -> None:
        super().__init__(state, name, storage)
        initial, add, subtract = aggregation
        self._initial = None if initial is None else of_step(name, initial, as_value)
        self._add = of_step(name, add, as_value)
        self._subtract = of_step(name, subtract, as_value)

    def fold(self, change: Change) -> Sequence[Change]:
        """Subtract the old value, then add the new one; return the change of the aggregate.

        There is an old value or a new one.
        """
        key, new, old, time_ms = change[1:5]
        before = self._readable().latest(key)
        if before is None:
            aggregate = self._fold(key, old, new, None)
        else:
            aggregate = self._fold(key, old, new, before.value)
            time_ms = max(time_ms, before.valid_from_ms)
        return self._accept(change._replace(new=aggregate, timestamp_ms=time_ms))

    def fold_all(self, changes: Changes) -> Changes:
        """Do as `fold` for many; a plain store must not take or answer anything one by one."""
        store = self._readable()
        if isinstance(store, PlainStore):
            return self._fold_into(store, changes)
        # Each aggregate is a version, and a version may be rejected.
        pairs = zip(changes.causes.tolist(), changes.one_by_one(), strict=True)
        with in_order(pairs) as numbered:
            return Changes.of([each for _, change in numbered for each in self.fold(change)])

    def _fold_into(self, store: PlainStore, changes: Changes) -> Changes:
        """Read the aggregate of each group once, and put the last one."""
        groups = [*dict.fromkeys(changes.keys.tolist())]
        standing = store.latest_all(objects(groups))
        values = zip(standing.values.tolist(), standing.times_ms.tolist(), strict=True)
        latest = dict(zip(groups, values, strict=True))
        befores: list[bytes | None] = []
        afters: list[bytes | None] = []
        times_ms: list[int] = []
        columns = (changes.keys, changes.olds, changes.news, changes.times_ms)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        with in_order(zip(changes.causes.tolist(), rows, strict=True)) as numbered:
            for _, (group, old, new, time_ms) in numbered:
                before, before_ms = latest[group]
                after = self._fold(group, old, new, before)
                after_ms = time_ms if before is None else max(time_ms, before_ms)
                latest[group] = after, after_ms
                befores.append(before)
                afters.append(after)
                times_ms.append(after_ms)
        last, last_ms = zip(*latest.values(), strict=True) if latest else ((), ())
        store.put_all(objects(groups), objects(last), np.array(last_ms, np.int64))
        olds = objects(befores) if self._sends_old else np.full(len(befores), None, object)
        return changes._replace(
            news=objects(afters), olds=olds, times_ms=np.array(times_ms, np.int64)
        )

    def _fold(
        self, group: bytes, old: bytes | None, new: bytes | None, aggregate: bytes | None
    ) -> bytes | None:
        """Return a group's aggregate after a change."""
        if old is not None and aggregate is not None:
            aggregate = self._subtract(group, old, aggregate)
        if new is None:
            return aggregate
        if aggregate is None and self._initial is not None:
            aggregate = self._initial()
        return new if aggregate is None else self._add(group, new, aggregate)


class Standing:
    """The value that a group still has of each row whose last change failed there.

    It is stored like subscriptions: group, row, and the value behind a byte; no byte for none.
    """

    def __init__(self, state: TaskState, step: str) -> None:
        self._numbers = state.numbers
        self._count = f"{step}:forgone"
        table = TableRows(state, f"{step}:standing")
        self._rows = Buckets(table, decode_subscriptions, encode_subscriptions)
        state.add(self)

    def pop(self, group: bytes, row: bytes, sent: bytes | None) -> bytes | None:
        """Return the value that the group has of a row; from now on it is the one in the change."""
        if not self._numbers.get(self._count):
            return sent
        if row not in self._rows.to_read(group).get(group, {}):
            return sent
        self._numbers[self._count] -= 1
        stands = self._rows.to_change(group)[group].pop(row)
        return stands[1:] if stands else None

    def pop_all(
        self, groups: Objects, rows: list[bytes | None], sent: list[bytes | None]
    ) -> list[bytes | None]:
        """Do as `pop` for many."""
        if not self._numbers.get(self._count):
            return sent
        asked = zip(groups.tolist(), rows, sent, strict=True)
        return [self.pop(group, row or b"", value) for group, row, value in asked]

    def put(self, group: bytes, row: bytes, value: bytes | None) -> None:
        """Note the value that the group has of a row, whatever the next change says."""
        stands = b"" if value is None else b"\1" + value
        self._rows.to_change(group).setdefault(group, {})[row] = stands
        self._numbers[self._count] = self._numbers.get(self._count, 0) + 1

    def save(self) -> None:
        """Write out what changed."""
        self._rows.save()


class Aggregated(Folding):
    """A table grouped by something and aggregated; itself a table."""

    def __init__(
        self,
        state: TaskState,
        name: str,
        parent: Table,
        regroup: Regroup,
        aggregation: Aggregation,
        storage: Storage | None = None,
    ) -> None:
        super().__init__(state, name, aggregation, Plain() if storage is None else storage)
        self._parent = parent
        self._regrouping = Regrouping(state, name, regroup)
        parent.send_old(force=True)

    def take(self, cause: int, arrival: Arrival) -> Sequence[Change]:
        """Return the changes of the aggregates by an arrival."""
        return [
            result
            for change in self._parent.take(cause, arrival)
            for within in self._regrouping.split(change, versioned=self._parent.versioned)
            for result in self.fold(within)
        ]

    def versioned_stores(self) -> list[VersionedStore]:
        """Return its own versioned stores and those above."""
        return super().versioned_stores() + self._parent.versioned_stores()
