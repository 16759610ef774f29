"""Lanes: the source partitions whose records meet behind a repartition, and the time of each.

A place is told of each record its source partition and how far that partition was, mostly of a
whole run of records at once (`headrace.contracts.origin`). A source partition without records for
this place sends its time in a row. A lane is awake, or idle:
silent for so long that nobody waits for it any more. The bound is the least (time, partition) of
all lanes that are awake, so every one of them has passed it. No record on time can come before the
bound, in whatever order partitions were read. So an operator that goes by the bound does not depend
on that order.

A new state expects the lanes of all source partitions, and the bound waits for those that have not
spoken. A state from before there were lanes expects none: each lane counts from its first message.
So does a partition that was added to the source later.

State, in the rows about the state as a whole
    'lane' partition (4)     stream time (8) | the last state that it sent (1), as in a row of times
    'latest'                 the latest time of any record or lane (8)
    'bound'                  the bound's time (8) and partition (4); missing where it is no further
                             than the lanes are
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from operator import itemgetter
from struct import Struct
from typing import NamedTuple

from headrace.contracts.origin import (
    AWAKE,
    IDLE,
    NO_OFFSET,
    UNKNOWN_PARTITION,
    Origin,
    read_origin,
    read_run_times,
    read_times,
)
from headrace.contracts.record import NO_TIME_MS, Record
from headrace.services.operators.operator import Batch, Origins, View
from headrace.services.operators.rows import TIME_BIAS, pack_time, unpack_time

_SPACE = b"lane"
_LATEST_KEY = b"latest"
_BOUND_KEY = b"bound"
_partition = Struct(">i")
_row = Struct(">QB")
PARTITION_MAX = (1 << 31) - 1
_time_of = itemgetter(2)


class Bound(NamedTuple):
    """Every lane that is awake has passed this: bounds are compared by time, then by partition."""

    time_ms: int
    partition: int


class Heard(NamedTuple):
    """All that was heard up to a record."""

    times_ms: dict[int, int]
    states: dict[int, int]
    changed: set[int]
    slowest: int
    bound: Bound
    latest_ms: int
    run_lane: int
    run_times_ms: list[int]


NOTHING = Bound(NO_TIME_MS, UNKNOWN_PARTITION)


class Lanes:
    """The source partitions of one place behind a repartition."""

    def __init__(self, view: View, expected: Iterable[int] = ()) -> None:
        """Go on where the view was saved; a new state expects these partitions to speak."""
        self._view = view
        self._space = view.prefix + _SPACE
        self.times_ms: dict[int, int] = {}
        self.states: dict[int, int] = {}
        self._changed: set[int] = set()
        self._load()
        for partition in expected:
            if partition not in self.times_ms:
                self._put(partition, NO_TIME_MS, AWAKE)
        self._slowest = UNKNOWN_PARTITION
        keys = [view.prefix + _LATEST_KEY, view.prefix + _BOUND_KEY]
        self._saved: dict[bytes, bytes | None] = dict(zip(keys, view.get_many(keys), strict=True))
        """The rows that speak of all lanes."""
        latest, bound = self._saved.values()
        # A lane that wakes up may be behind: the bound does not go back for it.
        self.bound = max(self._least(), NOTHING if bound is None else _unpack_bound(bound))
        self.latest_ms = NO_TIME_MS if latest is None else unpack_time(latest)
        """No record and no lane has a later time."""
        self._run_lane, self._run_times_ms = UNKNOWN_PARTITION, list[int]()
        """The source partition of the records that come next, and its time with each, as told."""
        self._step_causes: list[int] = []
        self._steps: list[tuple[int, int]] = []
        self._bound_before = self.bound
        self.behind: set[int] = set()
        """Causes of records whose lane was behind the bound: the bound had not waited for it."""

    def _load(self) -> None:
        end = self._space[:-1] + bytes([self._space[-1] + 1])
        for key, row in self._view.range(self._space, end):
            (partition,) = _partition.unpack(key[-_partition.size :])
            self.times_ms[partition] = unpack_time(row)
            self.states[partition] = row[_row.size - 1]

    def _put(self, partition: int, time_ms: int, state: int) -> None:
        self.times_ms[partition] = time_ms
        self.states[partition] = state
        self._changed.add(partition)

    @property
    def are_all_idle(self) -> bool:
        """Whether every lane is idle, so that the bound waits for none.

        An unknown source partition does not count: no row tells its state, so it never falls idle.
        """
        known = [state for lane, state in self.states.items() if lane != UNKNOWN_PARTITION]
        return bool(known) and all(state == IDLE for state in known)

    def skip(self, records: Sequence[Record]) -> None:
        """Pass over records that state has already; what they say of later ones counts."""
        left, self._run_times_ms = 0, []
        for at, record in enumerate(records):
            if left:
                left -= 1
            elif (run := read_run_times(record)) is not None:
                self._run_lane, times_ms = run
                left = len(times_ms)
                self._run_times_ms = times_ms[len(records) - at - 1 :]

    def take(self, batch: Batch) -> Batch:
        """Return the records of a batch with their origins; take in and remove what tells of them.

        No record is missing between those of one batch and of the next.
        """
        self._step_causes, self._steps, self.behind = [], [], set()
        self._bound_before = self.bound
        origins = Origins()
        taken = Batch([], [], origins=origins)
        at, end = 0, len(batch.records)
        while at < end:
            if not self._run_times_ms:
                self._take_one(taken, origins, batch.records[at], batch.causes[at])
                at += 1
                continue
            until = min(end, at + len(self._run_times_ms))
            causes = batch.causes[at:until]
            times_ms = self._run_times_ms[: until - at]
            del self._run_times_ms[: until - at]
            self._hear_run(self._run_lane, times_ms, causes)
            taken.records += batch.records[at:until]
            taken.causes += causes
            origins.lanes += repeat(self._run_lane, until - at)
            origins.times_ms += times_ms
            at = until
        self.latest_ms = max((self.latest_ms, *map(_time_of, taken.records)))
        return taken

    def _take_one(self, taken: Batch, origins: Origins, record: Record, cause: int) -> None:
        """Take a record that no run has, or a row."""
        if (origin := read_origin(record[3])) is not None:
            record = record._replace(headers=record[3][:-1])
        elif (run := read_run_times(record)) is not None:
            self._run_lane, self._run_times_ms = run
            return
        elif (times := read_times(record)) is not None:
            self._hear_row(times, cause)
            return
        else:
            origin = self._of_an_older_version(record)
        self._hear(origin[0], origin[2], AWAKE, cause)
        taken.records.append(record)
        taken.causes.append(cause)
        origins.lanes.append(origin[0])
        origins.times_ms.append(origin[2])

    def _of_an_older_version(self, record: Record) -> Origin:
        time_ms = self.times_ms.get(UNKNOWN_PARTITION, NO_TIME_MS)
        return UNKNOWN_PARTITION, NO_OFFSET, max(time_ms, record[2])

    def _hear(self, lane: int, time_ms: int, state: int, cause: int) -> None:
        """Take in the time of a lane; the bound may move, if it waited for that lane."""
        if self._note(lane, time_ms, state, cause):
            self._move(cause)

    def _hear_row(self, times: Iterable[tuple[int, int, int]], cause: int) -> None:
        """Take in the times of several lanes at once; the bound moves once."""
        may_move = [self._note(*time, cause) for time in times]
        if any(may_move):
            self._move(cause)

    def _note(self, lane: int, time_ms: int, state: int, cause: int) -> bool:
        """Put the time of a lane; return whether the bound may have waited for it."""
        bound = self.bound
        if time_ms <= bound[0] and (time_ms, lane) < bound:
            self.behind.add(cause)
        before_ms = self.times_ms.get(lane, NO_TIME_MS)
        said_as_much = self.states.get(lane) == state
        if said_as_much and time_ms <= before_ms:
            return False
        self._put(lane, max(before_ms, time_ms), state)
        self.latest_ms = max(self.latest_ms, time_ms)
        # Else the others did not wait for this lane.
        return not said_as_much or self._slowest in {lane, PARTITION_MAX}

    def _move(self, cause: int) -> None:
        """Move the bound to where the lanes are now, if that is later."""
        least = self._least()
        if least > self.bound:
            self.bound = least
            self._step_causes.append(cause)
            self._steps.append(least)

    def _hear_run(self, lane: int, times_ms: list[int], causes: list[int]) -> None:
        """Take in the times of one lane's records, as if each was heard by itself.

        If the bound waits for this lane, it moves with it, up to where the next lane is.
        """
        first_ms, last_ms = times_ms[0], times_ms[-1]
        self._hear(lane, first_ms, AWAKE, causes[0])
        if times_ms != sorted(times_ms) or (first_ms, lane) < self.bound:
            for time_ms, cause in zip(times_ms[1:], causes[1:], strict=True):
                self._hear(lane, time_ms, AWAKE, cause)
            return
        if last_ms <= self.times_ms[lane]:
            return
        self._put(lane, last_ms, AWAKE)
        self.latest_ms = max(self.latest_ms, last_ms)
        if self._slowest != lane:
            return
        # The bound is where the first record left it: at this lane's own time.
        begin, end = bisect_right(times_ms, first_ms), len(times_ms)
        others = min(self._awake(but=lane), default=None)
        if others is not None:
            others_ms, other = others
            passes = bisect_right if lane < other else bisect_left
            end = passes(times_ms, others_ms, begin)
        self._step_causes += causes[begin:end]
        self._steps += zip(times_ms[begin:end], repeat(lane))
        if others is not None and end < len(times_ms):
            self._step_causes.append(causes[end])
            self._steps.append(others)
        self.bound = Bound(*self._steps[-1])
        self._slowest = self.bound.partition

    def _awake(self, but: int = UNKNOWN_PARTITION) -> Iterator[tuple[int, int]]:
        """Yield time and number of each lane that the bound waits for."""
        states = self.states
        # Plain tuples: with hundreds of lanes, making bounds would cost more than comparing them.
        for lane, time_ms in self.times_ms.items():
            if states[lane] != IDLE and lane not in (but, UNKNOWN_PARTITION):
                yield time_ms, lane

    def _least(self) -> Bound:
        """Return the bound of the lanes as they are now."""
        least = min(self._awake(), default=None)
        if least is None and self.times_ms:
            # As in a single partition: time is as far as the latest record.
            least = max(self.times_ms.values()), PARTITION_MAX
        bound = NOTHING if least is None else Bound(*least)
        self._slowest = bound.partition
        return bound

    def bound_at(self, cause: int) -> Bound:
        """Return the bound after the record with this cause, and all before it."""
        place = bisect_right(self._step_causes, cause)
        return Bound(*self._steps[place - 1]) if place else self._bound_before

    def bound_before(self, cause: int) -> Bound:
        """Return the bound before the record with this cause."""
        place = bisect_left(self._step_causes, cause)
        return Bound(*self._steps[place - 1]) if place else self._bound_before

    def steps_behind(
        self, bound: tuple[int, int], until: int | None
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the causes at which it moved behind a bound, up to a cause; and the new bounds."""
        start = bisect_right(self._steps, bound)
        end = len(self._steps) if until is None else bisect_right(self._step_causes, until)
        return self._step_causes[start:end], self._steps[start:end]

    def heard(self) -> Heard:
        """Return all that was heard so far, to go back to."""
        return Heard(
            dict(self.times_ms),
            dict(self.states),
            set(self._changed),
            self._slowest,
            self.bound,
            self.latest_ms,
            self._run_lane,
            list(self._run_times_ms),
        )

    def go_back(self, heard: Heard) -> None:
        """Forget what was heard since then; it comes again."""
        self.times_ms, self.states, self._changed = heard.times_ms, heard.states, heard.changed
        self._slowest, self.bound = heard.slowest, heard.bound
        self.latest_ms = heard.latest_ms
        self._run_lane, self._run_times_ms = heard.run_lane, heard.run_times_ms

    def _is_ahead(self) -> bool:
        """Return whether the slowest lane is behind the bound, because it woke up there."""
        time_ms = self.times_ms.get(self._slowest)
        return time_ms is not None and (time_ms, self._slowest) < self.bound

    def save(self) -> None:
        """Put the times and states that lanes have sent since the last save."""
        times_ms, states = self.times_ms, self.states
        rows: dict[bytes, bytes | None] = {
            self._space + _partition.pack(lane): _row.pack(times_ms[lane] + TIME_BIAS, states[lane])
            for lane in self._changed
        }
        prefix = self._view.prefix
        of_all = {
            prefix + _LATEST_KEY: pack_time(self.latest_ms) if self.times_ms else None,
            prefix + _BOUND_KEY: _pack_bound(self.bound) if self._is_ahead() else None,
        }
        rows |= {key: row for key, row in of_all.items() if row != self._saved[key]}
        if rows:
            self._view.put_many(rows)
            self._saved = of_all
            self._changed.clear()


def _pack_bound(bound: Bound) -> bytes:
    return pack_time(bound.time_ms) + _partition.pack(bound.partition)


def _unpack_bound(row: bytes) -> Bound:
    (partition,) = _partition.unpack(row[-_partition.size :])
    return Bound(unpack_time(row), partition)
