"""Lanes: the source partitions whose records meet behind a repartition, and the time of each.

A record carries its source partition and how far that partition was (`headrace.contracts.origin`).
A source partition without records for this place sends its time in a row. A lane is awake, or idle:
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
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
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
    read_origins,
    read_times,
)
from headrace.contracts.record import NO_TIME_MS, Record
from headrace.services.operators.operator import Batch, View
from headrace.services.operators.rows import make_record, pack_time, unpack_time

_SPACE = b"lane"
_LATEST_KEY = b"latest"
_partition = Struct(">i")
_ROW_BYTES = 9
PARTITION_MAX = (1 << 31) - 1
_UNHEARD = NO_TIME_MS - 1
_time_of = itemgetter(2)


class Bound(NamedTuple):
    """Every lane that is awake has passed this: bounds are compared by time, then by partition."""

    time_ms: int
    partition: int


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
        self.bound = self._least()
        row = view.get_many([view.prefix + _LATEST_KEY])[0]
        self.latest_ms = NO_TIME_MS if row is None else unpack_time(row)
        """No record and no lane has a later time."""
        self._step_causes: list[int] = []
        self._steps: list[Bound] = []
        self._bound_before = self.bound
        self.behind: set[int] = set()
        """Causes of records whose lane was behind the bound: the bound had not waited for it."""

    def _load(self) -> None:
        end = self._space[:-1] + bytes([self._space[-1] + 1])
        for key, row in self._view.range(self._space, end):
            (partition,) = _partition.unpack(key[-_partition.size :])
            self.times_ms[partition] = unpack_time(row)
            self.states[partition] = row[_ROW_BYTES - 1]

    def _put(self, partition: int, time_ms: int, state: int) -> None:
        self.times_ms[partition] = time_ms
        self.states[partition] = state
        self._changed.add(partition)

    @property
    def are_all_idle(self) -> bool:
        """Whether every lane is idle, so that the bound waits for none."""
        return bool(self.states) and all(state == IDLE for state in self.states.values())

    def take(self, batch: Batch) -> Batch:
        """Return the records of a batch with their origins; take in and remove rows of times."""
        self._step_causes, self._steps, self.behind = [], [], set()
        self._bound_before = self.bound
        origins = read_origins(batch.records)
        if origins is None or not origins:
            return self._take_one_by_one(batch)
        records = [
            make_record((key, value, time_ms, headers[:-1], topic, partition, offset))
            for key, value, time_ms, headers, topic, partition, offset in batch.records
        ]
        self.latest_ms = max(self.latest_ms, *map(_time_of, records))
        times_ms = self.times_ms
        for (lane, _, time_ms), cause in zip(origins, batch.causes, strict=True):
            # Most records are no news: their lane is awake, as far already, and not behind.
            if (
                time_ms <= self.bound[0]
                or time_ms > times_ms.get(lane, _UNHEARD)
                or self.states[lane]
            ):
                self._hear(lane, time_ms, AWAKE, cause)
        return Batch(records, batch.causes, None, origins)

    def _take_one_by_one(self, batch: Batch) -> Batch:
        """Take a batch in which not all are records of this version."""
        records: list[Record] = []
        causes: list[int] = []
        origins: list[Origin] = []
        for record, cause in zip(batch.records, batch.causes, strict=True):
            origin = read_origin(record[3])
            if origin is not None:
                records.append(record._replace(headers=record[3][:-1]))
            elif (times := read_times(record)) is not None:
                for lane, time_ms, state in times:
                    self._hear(lane, time_ms, state, cause)
                continue
            else:
                origin = self._of_an_older_version(record)
                records.append(record)
            self.latest_ms = max(self.latest_ms, record[2])
            self._hear(origin[0], origin[2], AWAKE, cause)
            causes.append(cause)
            origins.append(origin)
        return Batch(records, causes, None, origins)

    def _of_an_older_version(self, record: Record) -> Origin:
        time_ms = self.times_ms.get(UNKNOWN_PARTITION, NO_TIME_MS)
        return UNKNOWN_PARTITION, NO_OFFSET, max(time_ms, record[2])

    def _hear(self, lane: int, time_ms: int, state: int, cause: int) -> None:
        """Take in the time of a lane; the bound may move, if it waited for that lane."""
        bound = self.bound
        if time_ms <= bound[0] and (time_ms, lane) < bound:
            self.behind.add(cause)
        before_ms = self.times_ms.get(lane, NO_TIME_MS)
        said_as_much = self.states.get(lane) == state
        if said_as_much and time_ms <= before_ms:
            return
        self._put(lane, max(before_ms, time_ms), state)
        self.latest_ms = max(self.latest_ms, time_ms)
        if said_as_much and self._slowest not in {lane, PARTITION_MAX}:
            # The others did not wait for this lane.
            return
        least = self._least()
        if least > bound:
            self.bound = least
            self._step_causes.append(cause)
            self._steps.append(least)

    def _least(self) -> Bound:
        """Return the bound of the lanes as they are now."""
        awake = [
            Bound(time_ms, lane)
            for lane, time_ms in self.times_ms.items()
            if self.states[lane] != IDLE and lane != UNKNOWN_PARTITION
        ]
        if awake:
            least = min(awake)
        elif self.times_ms:
            # As in a single partition: time is as far as the latest record.
            least = Bound(max(self.times_ms.values()), PARTITION_MAX)
        else:
            least = NOTHING
        self._slowest = least.partition
        return least

    def bound_at(self, cause: int) -> Bound:
        """Return the bound after the record with this cause, and all before it."""
        place = bisect_right(self._step_causes, cause)
        return self._steps[place - 1] if place else self._bound_before

    def bound_before(self, cause: int) -> Bound:
        """Return the bound before the record with this cause."""
        place = bisect_left(self._step_causes, cause)
        return self._steps[place - 1] if place else self._bound_before

    def steps(self) -> Iterator[tuple[int, Bound]]:
        """Iterate over the causes at which the bound moved, and the new bounds."""
        return zip(self._step_causes, self._steps, strict=True)

    def save(self) -> None:
        """Put the times and states that lanes have sent since the last save."""
        if not self._changed:
            return
        rows: dict[bytes, bytes | None] = {
            self._space + _partition.pack(lane): pack_time(self.times_ms[lane])
            + bytes([self.states[lane]])
            for lane in self._changed
        }
        rows[self._view.prefix + _LATEST_KEY] = pack_time(self.latest_ms)
        self._view.put_many(rows)
        self._changed.clear()
