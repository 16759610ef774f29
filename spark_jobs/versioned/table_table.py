"""The table-table join by primary key, as a stream of changes (rule F3).

A change of either side meets the other side's latest value. A versioned side drops a record that
comes behind a later one of its key. So the last result of a key is always the join of the latest of
both sides (KIP-914). The result is not versioned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from headrace.spark_jobs.versioned.changes import Change, Changes, LatestAtOnce, ends_of, one_by_one
from headrace.spark_jobs.versioned.functions import as_value, of_step, of_step_for_all
from headrace.spark_jobs.versioned.history import Version
from headrace.spark_jobs.versioned.meeting import Keys, Meetings, Side
from headrace.spark_jobs.versioned.records import are_present, objects
from headrace.spark_jobs.versioned.state import MERGED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.contracts.record import Record
    from headrace.spark_jobs.versioned.arrival import Arrival, Arrivals
    from headrace.spark_jobs.versioned.history import VersionedStore
    from headrace.spark_jobs.versioned.records import Objects
    from headrace.spark_jobs.versioned.state import TaskState
    from headrace.spark_jobs.versioned.tables import Table

    Joiner = Callable[[bytes | None, bytes | None], bytes | None]
    """Joins a left and a right value; the missing side of an outer join is None."""


class TableTableJoin:
    """Two tables joined by their keys, inner, left or outer; itself a table without a store."""

    versioned = False
    retention_ms: int | None = None

    def __init__(  # noqa: PLR0913 (each is one decision of the user)
        self,
        state: TaskState,
        name: str,
        left: Table,
        right: Table,
        *,
        joiner: Joiner,
        join: Literal["inner", "left", "outer"],
        last_alone: bool = False,
    ) -> None:
        self.name = name
        self._state = state
        self._left = left
        self._right = right
        self._joiner = of_step(name, joiner, as_value)
        self._join_each = of_step_for_all(name, joiner, as_value)
        self._left_alone = join != "inner"
        self._right_alone = join == "outer"
        self._last_alone = last_alone
        self._sends_old = False
        left.make_readable()
        right.make_readable()
        if self._left_alone:
            left.send_old(force=True)
        if self._right_alone:
            right.send_old(force=True)

    def take(self, cause: int, arrival: Arrival) -> Sequence[Change]:
        """Return the changes of the result by an arrival of either side."""
        results: list[Change] = []
        for change in self._left.take(cause, arrival):
            results += self._meet(change, from_left=True)
        for change in self._right.take(cause, arrival):
            results += self._meet(change, from_left=False)
        return results

    def take_all(self, arrivals: Arrivals) -> Changes:
        """Do as `take` for many: in columns, if both sides can."""
        left, right = self._left, self._right
        if not (isinstance(left, LatestAtOnce) and isinstance(right, LatestAtOnce)):
            return one_by_one(self, arrivals)
        keys = Keys(arrivals)
        before = left.latest_all(keys.keys), right.latest_all(keys.keys)
        lefts, rights = self._latest_alone(left, arrivals), self._latest_alone(right, arrivals)
        return self._meet_all(keys.meet(Side(before[0], lefts), Side(before[1], rights)))

    def latest(self, key: bytes) -> Version | None:
        """Return the join of both sides' latest values."""
        left, right = self._left.latest(key), self._right.latest(key)
        versions = [version for version in (left, right) if version is not None]
        if (left is None and not self._right_alone) or (right is None and not self._left_alone):
            return None
        if not versions:
            return None
        value = self._joiner(left and left.value, right and right.value)
        latest_ms = max(version.valid_from_ms for version in versions)
        return None if value is None else Version(value, latest_ms, None)

    def values_as_of(self, records: Sequence[Record]) -> list[bytes | None]:
        """Return the latest values: the result is not versioned."""
        keys = [record.key for record in records]
        versions = [None if key is None else self.latest(key) for key in keys]
        return [None if version is None else version.value for version in versions]

    def expired(self, records: Sequence[Record], *, all_of_them: bool) -> list[int]:  # noqa: ARG002
        """Return no place: the result is not versioned."""
        return []

    def send_old(self, *, force: bool) -> bool:  # noqa: ARG002
        """Send old values: both sides have stores in any case."""
        self._left.send_old(force=True)
        self._right.send_old(force=True)
        self._sends_old = True
        return True

    def make_readable(self) -> None:
        """Do nothing: both sides are readable."""

    def versioned_stores(self) -> list[VersionedStore]:
        """Return the versioned stores above both sides."""
        return self._left.versioned_stores() + self._right.versioned_stores()

    def _meet(self, change: Change, *, from_left: bool) -> Sequence[Change]:
        own, other = (self._left, self._right) if from_left else (self._right, self._left)
        self._state.count(f"{self.name}:taken")
        if own.versioned and not change.is_latest:
            self._state.count(f"{self.name}:dropped:out-of-order")
            return ()
        met = other.latest(change.key)
        own_alone = self._left_alone if from_left else self._right_alone
        other_alone = self._right_alone if from_left else self._left_alone
        nothing_there = change.new is None and change.old is None
        if met is None and (not own_alone or nothing_there):
            self._state.count(f"{self.name}:unmatched")
            return ()

        def joined(value: bytes | None) -> bytes | None:
            if value is None and (met is None or not other_alone):
                return None
            met_value = None if met is None else met.value
            pair = (value, met_value) if from_left else (met_value, value)
            return self._joiner(*pair)

        self._state.count(f"{self.name}:emitted")
        time_ms = change.timestamp_ms
        return (
            change._replace(
                new=joined(change.new),
                old=joined(change.old) if self._sends_old else None,
                timestamp_ms=time_ms if met is None else max(time_ms, met.valid_from_ms),
            ),
        )

    def _latest_alone(self, side: LatestAtOnce, arrivals: Arrivals) -> Changes:
        """Return the changes of a side, without those out of order."""
        changes = side.take_all(arrivals)
        self._state.count(f"{self.name}:taken", len(changes.causes))
        if not side.versioned:
            return changes
        latest = changes.where(changes.are_latest)
        dropped = len(changes.causes) - len(latest.causes)
        self._state.count(f"{self.name}:dropped:out-of-order", dropped)
        return latest

    def _meet_all(self, meetings: Meetings) -> Changes:
        """Do as `_meet` for many that are the latest."""
        changes, are_left, met = meetings
        own_alone = np.where(are_left, self._left_alone, self._right_alone)
        is_there = are_present(changes.news) | are_present(changes.olds)
        matched = are_present(met.values) | (own_alone & is_there)
        found = first = last = meetings.where(matched)
        if self._last_alone:
            first, last = (found.where(places) for places in ends_of(found.changes.keys))
        changes = last.changes
        emitted, left = len(found.are_left), len(changes.causes)
        self._state.count(f"{self.name}:unmatched", len(matched) - emitted)
        self._state.count(f"{self.name}:emitted", emitted)
        self._state.count(MERGED, emitted - left)
        nothing = np.full(left, None, object)
        return changes._replace(
            news=self._joined_all(changes.news, last),
            olds=self._joined_all(first.changes.olds, first) if self._sends_old else nothing,
            times_ms=np.maximum(changes.times_ms, last.met.times_ms),
        )

    def _joined_all(self, values: Objects, meetings: Meetings) -> Objects:
        """Join values of the changed side with what the changes meet."""
        changes, are_left, (met, _) = meetings
        other_alone = np.where(are_left, self._right_alone, self._left_alone)
        called = np.flatnonzero(are_present(values) | (are_present(met) & other_alone))
        lefts, rights = np.where(are_left, values, met), np.where(are_left, met, values)
        pairs = zip(lefts[called].tolist(), rights[called].tolist(), strict=True)
        joined = np.full(len(values), None, object)
        joined[called] = objects(self._join_each(changes.causes[called].tolist(), pairs))
        return joined
