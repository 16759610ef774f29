"""Aggregations of tables, with retraction: a value that leaves a group is subtracted (rule F6).

    change of a row -> Regrouping -> change within groups -> Folding -> change of an aggregate

A row that moves from one group to another is subtracted from the old one first, then added to the
new one. In one task `Aggregated` does both. Over many tasks, `Regrouping` runs where the rows are
and `Folding` where the groups are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headrace.spark_jobs.versioned.arrival import in_order
from headrace.spark_jobs.versioned.changes import Change, Changes, ends_of
from headrace.spark_jobs.versioned.functions import (
    as_group,
    as_it_is,
    as_value,
    of_step,
    of_step_for_all,
)
from headrace.spark_jobs.versioned.history import PlainStore
from headrace.spark_jobs.versioned.layout import decode_subscriptions, encode_subscriptions
from headrace.spark_jobs.versioned.records import are_present, objects
from headrace.spark_jobs.versioned.state import MERGED, Buckets, TaskState
from headrace.spark_jobs.versioned.table_rows import TableRows
from headrace.spark_jobs.versioned.tables import Plain, Storage, StoredTable, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from headrace.spark_jobs.versioned.arrival import Arrival
    from headrace.spark_jobs.versioned.history import VersionedStore
    from headrace.spark_jobs.versioned.records import Integers, Objects
    from headrace.spark_jobs.versioned.replacing import Latest
    from headrace.spark_jobs.versioned.totals import Aggregation

    Grouped = tuple[bytes, bytes] | None
    Regroup = Callable[[bytes, bytes], tuple[bytes, bytes] | None]
    """The group of a row and its value there, None where it is in no group."""


class Parts(NamedTuple):
    """Changes within groups, in columns."""

    places: Integers
    """Which of the changes of rows each belongs to."""
    groups: Objects
    olds: Objects
    news: Objects

    def where(self, which: NDArray[np.bool_]) -> Parts:
        """Return those for which a mask is true."""
        return Parts._make(column[which] for column in self)


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
        self,
        state: TaskState,
        name: str,
        aggregation: Aggregation,
        storage: Storage,
        *,
        last_alone: bool = False,
    ) -> None:
        super().__init__(state, name, storage)
        initial, add, subtract, form, _ = aggregation
        use = as_value if form is None else as_it_is
        self._initial = None if initial is None else of_step(name, initial, use)
        self._add = of_step(name, add, use)
        self._subtract = of_step(name, subtract, use)
        self._read = as_it_is if form is None else of_step(name, form.read, use)
        self._write = as_it_is if form is None else of_step(name, form.write, as_value)
        self._last_alone = last_alone
        """Whether only the last change of each group in a batch leaves."""

    def fold(self, change: Change) -> Sequence[Change]:
        """Subtract the old value, then add the new one; return the change of the aggregate.

        There is an old value or a new one.
        """
        key, new, old, time_ms = change[1:5]
        before = self._readable().latest(key)
        aggregate = None
        if before is not None:
            aggregate = self._read(before.value)
            time_ms = max(time_ms, before.valid_from_ms)
        after = self._written(self._fold(key, old, new, aggregate))
        return self._accept(change._replace(new=after, timestamp_ms=time_ms))

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
        """Read the aggregate of each group once, and put the last one.

        An aggregate is written only behind a change that leaves.
        """
        firsts, lasts = ends_of(changes.keys)
        groups = changes.keys[firsts]
        standing = store.latest_all(groups)
        latest = self._read_all(changes.causes[firsts], groups, standing)
        is_last = np.zeros(len(changes.causes), np.bool_)
        is_last[lasts] = True
        leaves = is_last if self._last_alone else np.ones_like(is_last)
        afters: list[bytes | None] = []
        times_ms: list[int] = []
        columns = (changes.keys, changes.olds, changes.news, changes.times_ms, leaves)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        with in_order(zip(changes.causes.tolist(), rows, strict=True)) as numbered:
            for _, (group, old, new, time_ms, it_leaves) in numbered:
                before, before_ms = latest[group]
                after = self._fold(group, old, new, before)
                after_ms = time_ms if before is None else max(time_ms, before_ms)
                latest[group] = after, after_ms
                if it_leaves:
                    afters.append(self._written(after))
                    times_ms.append(after_ms)
        self._state.count(MERGED, len(leaves) - len(afters))
        left = changes.where(leaves)
        left = left._replace(news=objects(afters), times_ms=np.array(times_ms, np.int64))
        put = left.where(is_last[leaves])
        store.put_all(put.keys, put.news, put.times_ms)
        before_all = dict(zip(groups.tolist(), standing.values.tolist(), strict=True))
        return left._replace(olds=self._olds_of(left, before_all))

    def _read_all(
        self, causes: Integers, groups: Objects, standing: Latest
    ) -> dict[bytes, tuple[Any, int]]:
        """Return the aggregate of each group, and its time."""
        with in_order(zip(causes.tolist(), standing.values.tolist(), strict=True)) as numbered:
            aggregates = [None if value is None else self._read(value) for _, value in numbered]
        latest = zip(aggregates, standing.times_ms.tolist(), strict=True)
        return dict(zip(groups.tolist(), latest, strict=True))

    def _olds_of(self, changes: Changes, standing: dict[bytes, bytes | None]) -> Objects:
        """Return the aggregate before each change, if old values are sent."""
        if not self._sends_old:
            return np.full(len(changes.causes), None, object)
        olds: list[bytes | None] = []
        for group, new in zip(changes.keys.tolist(), changes.news.tolist(), strict=True):
            olds.append(standing[group])
            standing[group] = new
        return objects(olds)

    def _fold(self, group: bytes, old: bytes | None, new: bytes | None, aggregate: Any) -> Any:
        """Return a group's aggregate after a change."""
        if old is not None and aggregate is not None:
            aggregate = self._subtract(group, old, aggregate)
        if new is None:
            return aggregate
        if aggregate is None and self._initial is not None:
            aggregate = self._initial()
        return self._read(new) if aggregate is None else self._add(group, new, aggregate)

    def _written(self, aggregate: Any) -> bytes | None:
        return None if aggregate is None else self._write(aggregate)


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
        return [
            value if row is None else self.pop(group, row, value) for group, row, value in asked
        ]

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
