"""The join of two streams within a window: records of one key whose times are near meet.

Progress alone decides what leaves and when. Once all inputs have passed a time, the records up to
there are complete, and the join takes them in the order of their times, however they were read:

    a pair            leaves when progress has passed the later one of both
    a record alone    leaves when progress has passed the last time at which it could have met one

A record that progress has passed before it came is late: it meets nothing, and is handed back. In
a left or outer join a record stays for two windows: the first to be met, the second for those that
it met to see that they are not alone. A record without a key meets nothing, so it leaves alone or
is dropped. With a grace, the join takes progress to be so much earlier. A row on which the joiner
fails does not leave, and its record is handed back; all other rows of that record leave.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from headrace.spark_jobs.versioned.arrival import Arrivals
from headrace.spark_jobs.versioned.functions import StepFailed, as_value, of_step
from headrace.spark_jobs.versioned.grace import HeldRecords
from headrace.spark_jobs.versioned.records import are_present
from headrace.spark_jobs.versioned.stream_table import NO_PROGRESS_MS, SLICES_PER_GRACE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from headrace.contracts.record import Record
    from headrace.spark_jobs.versioned.arrival import Arrival
    from headrace.spark_jobs.versioned.state import TaskState

    Joiner = Callable[[bytes | None, bytes | None], bytes]

_Place = tuple[int, str, int, int]
_Order = tuple[int, _Place | tuple[()], _Place | tuple[()]]
"""When a row is complete, and where its records stand; an empty one stands for none."""


class Met(NamedTuple):
    """A row that leaves: a pair, or a record alone."""

    record: Record
    """The left record, or the right one alone."""
    value: bytes | None
    time_ms: int
    """The later time of both."""


@dataclass(slots=True)
class _Side:
    """The records of one key on one side, in their order, and their times."""

    records: list[Record]
    times_ms: list[int]

    @classmethod
    def of(cls, records: list[Record]) -> _Side:
        records.sort(key=_place)
        return cls(records, [record.timestamp_ms for record in records])

    def near(self, from_ms: int, until_ms: int) -> list[Record]:
        """Return the records between two times, both included."""
        times = self.times_ms
        return self.records[bisect_left(times, from_ms) : bisect_right(times, until_ms)]


class WindowJoin:
    """Two streams, inner, left or outer."""

    def __init__(  # noqa: PLR0913 (each is one decision of the user)
        self,
        state: TaskState,
        name: str,
        streams: tuple[int, int],
        *,
        joiner: Joiner,
        join: Literal["inner", "left", "outer"],
        within_ms: int,
        grace_ms: int = 0,
    ) -> None:
        """Join two inputs, by number; times at most `within_ms` apart are near.

        A record is on time until progress is `grace_ms` past it.
        """
        self._state = state
        self._name = name
        self._streams = streams
        self._joiner = of_step(name, joiner, as_value)
        self._failed: list[tuple[_Order, Record, StepFailed]] = []
        self._join = join
        self._within_ms = within_ms
        self._grace_ms = grace_ms
        self._stand_alone = (join != "inner", join == "outer")
        """Whether a record of the left side, and one of the right, leaves without another."""
        self._kept_ms = within_ms if join == "inner" else 2 * within_ms
        self._progress_name = f"{name}:progress_ms"
        self._progress_ms = state.numbers.get(self._progress_name, NO_PROGRESS_MS)
        slice_ms = 1 + within_ms // SLICES_PER_GRACE
        self._held = [
            HeldRecords(state, f"{name}:{side}", slice_ms) for side in ("left-held", "right-held")
        ]

    @property
    def held(self) -> int:
        """How many records are kept."""
        return sum(side.count for side in self._held)

    def process(self, arrivals: Sequence[Arrival]) -> NDArray[np.int64]:
        """Keep the records of a batch; return the places of the late ones in it."""
        arrivals = Arrivals.of(arrivals)
        late = np.zeros(len(arrivals), np.bool_)
        sides = zip(self._streams, self._held, self._stand_alone, strict=True)
        for number, held, alone in sides:
            places = np.flatnonzero(arrivals.inputs == number)
            records = arrivals.records.take(places)
            has_value, has_key = are_present(records.values), are_present(records.keys)
            whole = has_value & (has_key | alone)
            on_time = whole & (records.times_ms >= self._progress_ms)
            late[places[whole & ~on_time]] = True
            held.hold(np.zeros(int(np.sum(on_time)), np.int64), records.take(on_time))
            self._state.count(f"{self._name}:taken", len(places))
            self._state.count(f"{self._name}:dropped:null-value", int(np.sum(~has_value)))
            self._state.count(f"{self._name}:dropped:null-key", int(np.sum(has_value & ~whole)))
            self._state.count(f"{self._name}:dropped:late", int(np.sum(whole & ~on_time)))
        return np.flatnonzero(late)

    def advance(self, progress_ms: int) -> list[Met]:
        """Note that all inputs have passed a time; return the rows that this completes."""
        before_ms = self._progress_ms
        progress_ms -= self._grace_ms
        if progress_ms <= before_ms:
            return []
        keys = self._stirring(before_ms, progress_ms)
        lefts, rights = self._sides(keys, before_ms - self._kept_ms, progress_ms - 1)
        rows: list[tuple[_Order, Met]] = []
        nothing = _Side([], [])
        for key in lefts.keys() | rights.keys():
            sides = lefts.get(key, nothing), rights.get(key, nothing)
            for left, right in [sides] if key is not None else _apart(*sides):
                rows += self._rows(left, right, before_ms, progress_ms)
        rows.sort(key=lambda row: (row[0], row[1].record.key or b""))
        self._progress_ms = self._state.numbers[self._progress_name] = progress_ms
        for held in self._held:
            gone = held.release(progress_ms - 1 - self._kept_ms)
            self._state.count(f"{self._name}:passed", len(gone.records))
        return [row for _, row in rows]

    def failed(self) -> list[tuple[Record, StepFailed]]:
        """Return the record of each row on which the joiner failed since the last call."""
        failed, self._failed = self._failed, []
        failed.sort(key=lambda row: (row[0], row[1].key or b""))
        return [(record, error) for _, record, error in failed]

    def balance(self) -> int:
        """Return zero, unless a record was lost or invented."""
        return self._state.balance(self._name, self.held)

    def _stirring(self, before_ms: int, progress_ms: int) -> set[bytes | None]:
        """Return the keys of which a row may be complete now and was not before."""
        last_ms, within_ms = progress_ms - 1, self._within_ms
        keys: set[bytes | None] = set()
        for held, stands_alone in zip(self._held, self._stand_alone, strict=True):
            keys.update(held.between(before_ms, last_ms).keys)
            if stands_alone:
                keys.update(held.between(before_ms - within_ms, last_ms - within_ms).keys)
        return keys

    def _sides(
        self, keys: set[bytes | None], from_ms: int, until_ms: int
    ) -> list[dict[bytes | None, _Side]]:
        """Return the records of some keys between two times, of each side by key.

        A window has many more records than a micro-batch, and most of their keys are silent.
        """
        if not keys:
            return [{}, {}]
        found = (held.between(from_ms, until_ms) for held in self._held)
        return [_by_key(each.take(_is_among(keys, each.keys))) for each in found]

    def _rows(
        self, left: _Side, right: _Side, before_ms: int, progress_ms: int
    ) -> Iterator[tuple[_Order, Met]]:
        """Yield the rows of a key that are complete now and were not before, and their order."""
        within_ms = self._within_ms
        order: _Order
        for one in left.records:
            time_ms = one.timestamp_ms
            # Of two that progress had passed before, the pair has left.
            from_ms = time_ms - within_ms if time_ms >= before_ms else before_ms
            for other in right.near(max(from_ms, time_ms - within_ms), time_ms + within_ms):
                both_ms = max(time_ms, other.timestamp_ms)
                order = both_ms, _place(one), _place(other)
                yield from self._row(order, one, (one.value, other.value), both_ms)
        if self._join != "inner":
            for one in self._alone(left, right, before_ms, progress_ms):
                order = one.timestamp_ms + within_ms, _place(one), ()
                yield from self._row(order, one, (one.value, None), one.timestamp_ms)
        if self._join == "outer":
            for one in self._alone(right, left, before_ms, progress_ms):
                order = one.timestamp_ms + within_ms, (), _place(one)
                yield from self._row(order, one, (None, one.value), one.timestamp_ms)

    def _row(
        self, order: _Order, one: Record, values: tuple[bytes | None, bytes | None], time_ms: int
    ) -> Iterator[tuple[_Order, Met]]:
        """Yield the row of a record, unless the joiner fails on it."""
        try:
            yield order, Met(one, self._joiner(*values), time_ms)
        except StepFailed as failed:
            self._failed.append((order, one, failed))

    def _alone(
        self, side: _Side, others: _Side, before_ms: int, progress_ms: int
    ) -> Iterator[Record]:
        """Yield the records that can meet nothing any more, since now, and have met nothing."""
        within_ms = self._within_ms
        for one in side.near(before_ms - within_ms, progress_ms - 1 - within_ms):
            time_ms = one.timestamp_ms
            if not others.near(time_ms - within_ms, time_ms + within_ms):
                yield one


def _apart(left: _Side, right: _Side) -> list[tuple[_Side, _Side]]:
    """Return two sides without a key so that they do not meet."""
    return [(left, _Side([], [])), (_Side([], []), right)]


def _place(record: Record) -> _Place:
    """Return what orders records: their times, and at equal times where they stand."""
    offset = -1 if record.offset is None else record.offset
    return record.timestamp_ms, record.topic, record.partition, offset


def _is_among(keys: set[bytes | None], column: NDArray[np.object_]) -> NDArray[np.bool_]:
    """Return which items of a column are one of these keys."""
    return np.fromiter(map(keys.__contains__, column), np.bool_, len(column))


def _by_key(records: Iterable[Record]) -> dict[bytes | None, _Side]:
    found: dict[bytes | None, list[Record]] = defaultdict(list)
    for record in records:
        found[record.key].append(record)
    return {key: _Side.of(each) for key, each in found.items()}
