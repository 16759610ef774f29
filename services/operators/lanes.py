"""Lanes: the source partitions whose records meet behind a repartition, and the time of each.

A record says which partition it came from and how far that partition was
(`headrace.contracts.origin`); a partition that has nothing for this place says its time in a row.
A lane is awake, or idle: silent for so long that nobody waits for it any more. What every lane that
is awake has passed is the bound: (time, partition), the least of all. Nothing on time comes before
it any more, whatever was read first; so what goes by the bound does not depend on who read what
when.

Lanes that say nothing yet hold the bound back, for the source has them. State that was written
before there were lanes expects nobody: each counts from its first word. So does a partition that
was added to the source later.

State, in the rows about the state as a whole
    'lane' partition (4)     stream time (8) | what it last said of itself (1), as in a row of times
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
        """Causes of records whose lane was behind the bound: it had not been waited for."""

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
        """Whether nobody is waited for."""
        return bool(self.states) and all(state == IDLE for state in self.states.values())

    def take(self, batch: Batch) -> Batch:
        """The records of a batch, each with its origin; rows of times are heard, and gone."""
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
            # Most are no news: their lane is awake, as far already, and not behind.
            if (
                time_ms <= self.bound[0]
                or time_ms > times_ms.get(lane, _UNHEARD)
                or self.states[lane]
            ):
                self._hear(lane, time_ms, AWAKE, cause)
        return Batch(records, batch.causes, None, origins)

    def _take_one_by_one(self, batch: Batch) -> Batch:
        """The same where not all are records of this version."""
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
        """A lane says its time; it may move the bound, if the bound waited for it."""
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
            # It was not the one that the others wait for.
            return
        least = self._least()
        if least > bound:
            self.bound = least
            self._step_causes.append(cause)
            self._steps.append(least)

    def _least(self) -> Bound:
        """The bound as the lanes have it now."""
        awake = [
            Bound(time_ms, lane)
            for lane, time_ms in self.times_ms.items()
            if self.states[lane] != IDLE and lane != UNKNOWN_PARTITION
        ]
        if awake:
            least = min(awake)
        elif self.times_ms:
            # As in one partition: what came last is as far as time is.
            least = Bound(max(self.times_ms.values()), PARTITION_MAX)
        else:
            least = NOTHING
        self._slowest = least.partition
        return least

    def bound_at(self, cause: int) -> Bound:
        """The bound once the record with this cause, and all before it, were heard."""
        place = bisect_right(self._step_causes, cause)
        return self._steps[place - 1] if place else self._bound_before

    def bound_before(self, cause: int) -> Bound:
        """The bound when the record with this cause came, and was not heard yet."""
        place = bisect_left(self._step_causes, cause)
        return self._steps[place - 1] if place else self._bound_before

    def steps(self) -> Iterator[tuple[int, Bound]]:
        """Where in the batch the bound moved, and to what."""
        return zip(self._step_causes, self._steps, strict=True)

    def save(self) -> None:
        """Put what lanes have said since."""
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
