"""Which partition of a repartition topic a record goes to, and what each of them is told of time.

Records of one id meet in one partition, by the hash that Kafka's own clients use. A record without
an id has no duplicates to meet: it stays in the partition it came from. Each says where it came
from and how far its partition was by then (`headrace.contracts.origin`). A partition of the topic
that was given no record is told the time all the same: with a commit, or soon behind it, so that a
time which moves all the while costs a row a second and not a row a commit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from aiokafka.partitioner import murmur2

from headrace.contracts.errors import RecordUndecodable, TopicRefused
from headrace.contracts.hops import Hop
from headrace.contracts.origin import AWAKE, SourceTime, origin_header, times_headers
from headrace.contracts.record import NO_TIME_MS, Record
from headrace.contracts.selectors import select
from headrace.services.operators.chain import Chain
from headrace.services.operators.operator import Aside, Batch
from headrace.services.operators.readable import dead_aside
from headrace.services.operators.rows import make_record
from headrace.services.operators.waits import waits_ms

SAY_AGAIN_S = 1.0


class Part(NamedTuple):
    """What goes to one partition."""

    records: list[Record]
    places: list[int]
    """Of each, where it stands in the batch that left the operators."""


class Group(Protocol):
    """Those who read the repartition topic."""

    says_origins: bool
    """Whether all of them know what is said there; one of an older version would pass it on."""


class _Said(NamedTuple):
    """What a partition of the repartition topic was told last."""

    time_ms: int
    state: int
    at_s: float

    def is_due(self, time_ms: int, now_s: float, urgent_before_ms: int) -> bool:
        """Whether a later time is to be told now."""
        is_old = self.at_s + SAY_AGAIN_S <= now_s
        return self.time_ms < time_ms and (is_old or self.time_ms < urgent_before_ms)


_NOTHING = _Said(NO_TIME_MS - 1, AWAKE, float("-inf"))


class Spread:
    """The way from one partition of a hop to those of the next."""

    def __init__(
        self,
        hop: Hop,
        home: int,
        chain: Chain,
        group: Group,
        over: int,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Spread over so many partitions; the chain knows how far its own partition is."""
        end = hop.end
        assert end is not None
        self._group = group
        self.over = over
        """How many partitions there were when this began."""
        self.topic = end.topic.name
        self._operator = end.operator
        self._select = select(end.id, chain.read_behind)
        self._home = home
        self._chain = chain
        self._waits_ms = waits_ms(hop.operators)
        self._clock_s = clock_s
        self._said: dict[int, _Said] = {}

    @property
    def time_ms(self) -> int:
        """How far this partition is, for those behind it: what waits here is not there yet."""
        return max(NO_TIME_MS, self._chain.time_ms - self._waits_ms)

    def by_partition(self, batch: Batch, partitions: int) -> tuple[dict[int, Part], list[Aside]]:
        """The records of each partition, in order, and those whose id cannot be read."""
        if partitions != self.over:
            message = (
                f"`{self.topic}` had {self.over} partitions and has {partitions} now: an id"
                " comes in another partition than the one that knows it; stop all instances, and"
                " begin anew with `headrace reset`"
            )
            raise TopicRefused(message)
        spread: dict[int, Part] = {}
        told_ms: dict[int, int] = {}
        dead = []
        home, waits, now_ms = self._home, self._waits_ms, self.time_ms
        time_at, at_s = self._chain.times_ms(), self._clock_s()
        for place, (record, cause) in enumerate(zip(batch.records, batch.causes, strict=True)):
            try:
                identity = self._select(record)
            except RecordUndecodable as problem:
                dead.append(dead_aside(cause, self._operator, record, problem))
                continue
            to = (home if identity is None else murmur2(identity) & 0x7FFFFFFF) % partitions
            if to not in spread:
                spread[to] = Part([], [])
            if not self._group.says_origins:
                spread[to].records.append(record)
                spread[to].places.append(place)
                continue
            key, value, timestamp_ms, headers, topic, partition, offset = record
            time_ms = max(NO_TIME_MS, time_at[cause] - waits) if cause in time_at else now_ms
            headers = (*headers, origin_header(home, offset, time_ms))
            sent = (key, value, timestamp_ms, headers, topic, partition, offset)
            spread[to].records.append(make_record(sent))
            spread[to].places.append(place)
            told_ms[to] = time_ms
        self._said |= {to: _Said(time_ms, AWAKE, at_s) for to, time_ms in told_ms.items()}
        return spread, dead

    def rows(
        self, partitions: int, state: int, *, urgent_before_ms: int
    ) -> Iterator[tuple[int, Record]]:
        """What partitions are told with a commit, those that do not know it from records.

        One that was told of a time before the urgent one does not wait for the second to be over.
        """
        if not self._group.says_origins:
            return
        time_ms, now_s = self.time_ms, self._clock_s()
        headers = times_headers([SourceTime(self._home, time_ms, state)])
        for to in range(partitions):
            said = self._said.get(to, _NOTHING)
            if said.state != state or said.is_due(time_ms, now_s, urgent_before_ms):
                self._said[to] = _Said(time_ms, state, now_s)
                yield to, Record(None, None, max(0, time_ms), headers, self.topic, to, None)

    def owes(self, partitions: int, *, urgent_before_ms: int) -> bool:
        """Whether anybody is to be told now of a later time than before."""
        time_ms, now_s = self.time_ms, self._clock_s()
        return self._group.says_origins and any(
            self._said.get(to, _NOTHING).is_due(time_ms, now_s, urgent_before_ms)
            for to in range(partitions)
        )
