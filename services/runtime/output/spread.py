"""Which partition of a repartition topic a record goes to, and what each of them is told of time.

Records of one id meet in one partition, by the hash that Kafka's own clients use. A record without
an id has no duplicates to meet: it stays in the partition it came from. A partition is told of each
record where it came from and how far its partition was by then (`headrace.contracts.origin`). One
that was given no record is told the time all the same: with a commit, or soon behind it, so that a
time which moves all the while is told once a second and not with each commit.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Sequence
from itertools import repeat
from operator import itemgetter
from typing import NamedTuple, Protocol, TypeVar

from headrace.contracts.errors import RecordUndecodable, TopicRefused
from headrace.contracts.hops import Hop
from headrace.contracts.origin import (
    AWAKE,
    IDLE,
    NO_OFFSET,
    Origin,
    SourceTime,
    origin_header,
)
from headrace.contracts.policies import ReorderPolicy
from headrace.contracts.record import NO_TIME_MS, Record
from headrace.contracts.selectors import select
from headrace.services.operators.chain import Chain
from headrace.services.operators.operator import Aside, Batch
from headrace.services.operators.progress import progress_ms
from headrace.services.operators.readable import dead_aside
from headrace.services.operators.waits import waits_ms
from headrace.services.runtime.output.partitioner import murmur2

What = TypeVar("What")
SAY_AGAIN_S = 1.0


class Part(NamedTuple):
    """The records for one partition."""

    records: list[Record]
    places: Sequence[int]
    """Of each, where it stands in the batch that left the operators."""
    origins: Sequence[Origin] = ()
    """The origin of each, which the outbox tells; none where each record says its own."""


class Group(Protocol):
    """Those who read the repartition topic, and what all of them know of it."""

    says_origins: bool
    """Whether a record says where it came from; one of an older version would pass it on."""
    says_runs: bool
    """Whether that may be said of a run of records, before it."""


class _Said(NamedTuple):
    """The last time and state that a partition of the repartition topic was told."""

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
        self._operators = hop.operators
        reorders = (one for one in hop.operators if isinstance(one, ReorderPolicy))
        self._has_idle = any(one.idle_ms is not None for one in reorders)
        self._clock_s = clock_s
        self._said: dict[int, _Said] = {}

    @property
    def time_ms(self) -> int:
        """How far this partition is, for those behind it: what waits here is not there yet."""
        return max(NO_TIME_MS, self._chain.time_ms - self._waits_ms)

    def _time_in_ms(self, state: int) -> int:
        """How far this partition is in a state that it tells."""
        if state == IDLE and self._has_idle:
            # A silence has released what waited here, and places would hold it until it ends.
            return max(self.time_ms, progress_ms(self._operators, self._chain))
        return self.time_ms

    def by_partition(self, batch: Batch, partitions: int) -> tuple[dict[int, Part], list[Aside]]:
        """The records of each partition, in order, and those whose id cannot be read."""
        if partitions != self.over:
            message = (
                f"`{self.topic}` had {self.over} partitions and has {partitions} now: an id"
                " comes in another partition than the one that knows it; stop all instances, and"
                " begin anew with `headrace reset`"
            )
            raise TopicRefused(message)
        ids, dead = self._ids(batch)
        home = self._home
        places: dict[int, list[int]] = defaultdict(list)
        for place, identity in ids.items():
            places[(home if identity is None else murmur2(identity)) % partitions].append(place)
        if not self._group.says_origins:
            return {
                to: Part(_at(of_one, batch.records), of_one) for to, of_one in places.items()
            }, dead
        origins = self._origins(batch)
        spread = {
            to: Part(_at(of_one, batch.records), of_one, _at(of_one, origins))
            for to, of_one in places.items()
        }
        at_s = self._clock_s()
        self._said |= {to: _Said(part.origins[-1][2], AWAKE, at_s) for to, part in spread.items()}
        if not self._group.says_runs:
            spread = {to: _with_headers(part) for to, part in spread.items()}
        return spread, dead

    def _ids(self, batch: Batch) -> tuple[dict[int, bytes | None], list[Aside]]:
        """The id of each record by its place, and those whose id cannot be read."""
        try:
            return dict(enumerate(map(self._select, batch.records))), []
        except RecordUndecodable:
            return self._ids_one_by_one(batch)

    def _ids_one_by_one(self, batch: Batch) -> tuple[dict[int, bytes | None], list[Aside]]:
        ids: dict[int, bytes | None] = {}
        dead: list[Aside] = []
        for place, (record, cause) in enumerate(zip(batch.records, batch.causes, strict=True)):
            try:
                ids[place] = self._select(record)
            except RecordUndecodable as problem:
                dead.append(dead_aside(cause, self._operator, record, problem))
        return ids, dead

    def _origins(self, batch: Batch) -> list[Origin]:
        times_ms = self._chain.times_ms(batch.causes)
        if wait_ms := self._waits_ms:
            # A record that waited is on time, however far the one has leapt that let it go.
            befores_ms = self._chain.times_ms(batch.causes, before=True)
            times_ms = [
                max(NO_TIME_MS, before_ms - wait_ms, min(record[2], time_ms - wait_ms))
                for record, before_ms, time_ms in zip(
                    batch.records, befores_ms, times_ms, strict=True
                )
            ]
        offsets = [NO_OFFSET if record[6] is None else record[6] for record in batch.records]
        return list(zip(repeat(self._home), offsets, times_ms))

    def times(
        self,
        partitions: int,
        state: int,
        *,
        urgent_before_ms: int,
        told: Container[int] = (),
    ) -> Iterator[tuple[int, SourceTime]]:
        """Yield what a commit tells partitions which do not know it from records.

        One that was told of a time before the urgent one does not wait for the second to be over.
        Neither does one that is `told` something by others.
        """
        if not self._group.says_origins:
            return
        time_ms, now_s = self._time_in_ms(state), self._clock_s()
        says, said_now = SourceTime(self._home, time_ms, state), _Said(time_ms, state, now_s)
        for to in range(partitions):
            said = self._said.get(to, _NOTHING)
            is_due = said.is_due(time_ms, now_s, urgent_before_ms)
            if said.state != state or is_due or (said.time_ms < time_ms and to in told):
                self._said[to] = said_now
                yield to, says

    def owes(self, *, urgent_before_ms: int) -> bool:
        """Whether anybody is to be told now of a later time than before."""
        time_ms, now_s = self.time_ms, self._clock_s()
        return self._group.says_origins and any(
            self._said.get(to, _NOTHING).is_due(time_ms, now_s, urgent_before_ms)
            for to in range(self.over)
        )


def _at(places: list[int], of_all: list[What]) -> list[What]:
    """Return the elements at these places."""
    if len(places) == 1:
        return [of_all[places[0]]]
    return list(itemgetter(*places)(of_all))


def _with_headers(part: Part) -> Part:
    records = [
        record._replace(headers=(*record.headers, origin_header(*origin)))
        for record, origin in zip(part.records, part.origins, strict=True)
    ]
    return Part(records, part.places)
