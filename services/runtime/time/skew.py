"""Keeps source partitions together in time, so that what waits for the slowest stays small.

Behind a repartition a record waits until all partitions that are awake have passed it. One that is
read hours ahead of the others would fill every place with records that wait. So a task of the first
hop that is ahead of the slowest by more than `max-skew` takes no more, until that one has moved.

Within this process a partition that is ahead by a small part of that gives way to one that has
records at hand. The places behind the repartition commit again and again, and what waits in them by
then is written to their changelogs: with all partitions about as far, hardly anything does.

How far the partitions of this process are, their tasks say; of those of other processes the places
behind the repartition are told, and the first place here is enough. A partition that is idle, or at
its end, is not waited for, and neither is one of which nobody here has ever heard. The slowest
never waits, so it is no stand-still.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from headrace.contracts.origin import AWAKE, UNKNOWN_PARTITION
from headrace.contracts.record import NO_TIME_MS, Record
from headrace.services.operators.lanes import Lanes

_PIECES_PER_SKEW = 4
_GIVES_WAY_PER_SKEW = 16
_NOT_BEGUN = NO_TIME_MS, AWAKE
_AT_MOST_S = 1.0
"""A partition that falls silent says so by and by; who waits looks again."""


class Skew:
    """The source partitions of a worker's pipeline."""

    def __init__(self, max_skew_ms: int, says_origins: Callable[[], bool]) -> None:
        """Begin without reports; no partition waits while `says_origins` is false."""
        self._says_origins = says_origins
        self.max_skew_ms = max_skew_ms
        self._own: dict[int, tuple[int, int]] = {}
        """Time and state of each partition whose task runs here."""
        self._places: dict[int, Lanes] = {}
        self._taking: set[int] = set()
        """Those of them that have records at hand."""
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self.slowest: tuple[int, int] | None = None
        """Time and partition of who is waited for."""

    def is_at(self, partition: int, time_ms: int, state: int = AWAKE) -> None:
        """A task of the first hop has come so far."""
        self._own[partition] = time_ms, state
        slowest = self.slowest
        # Most say nothing that anybody waits for: they are ahead of the slowest, and awake.
        is_behind = slowest is None or (time_ms, partition) < slowest
        if is_behind or state != AWAKE or (slowest is not None and slowest[1] == partition):
            self._look()
        elif self._waiting:
            self._let_go()

    def left(self, partition: int) -> None:
        """It runs here no more."""
        self._own.pop(partition, None)
        self._taking.discard(partition)
        self._look()

    def takes(self, partition: int) -> None:
        """A task of the first hop has records at hand."""
        self._taking.add(partition)

    def has_taken(self, partition: int) -> None:
        """It has taken them."""
        self._taking.discard(partition)
        self._let_go()

    def hears(self, place: int, lanes: Lanes) -> None:
        """A place behind the repartition was told of the others."""
        self._places[place] = lanes
        if place == min(self._places):
            self._look()

    def hears_no_more(self, place: int) -> None:
        """The place is somebody else's now."""
        self._places.pop(place, None)
        self._look()

    def _look(self) -> None:
        self.slowest = min(self._awake(), default=None)
        self._let_go()

    def _let_go(self) -> None:
        if self._waiting:
            goes_first_ms = self._goes_first_ms()
            for partition in list(self._waiting):
                if not self.is_ahead(partition) and not self._is_behind(partition, goes_first_ms):
                    self._waiting.pop(partition).set_result(None)

    def _goes_first_ms(self) -> int | None:
        """How far the slowest is that has records at hand."""
        return min((self._own[partition][0] for partition in self._taking), default=None)

    def _is_behind(self, partition: int, goes_first_ms: int | None) -> bool:
        """Whether another one, which is so far, goes before a partition."""
        time_ms, _ = self._own.get(partition, _NOT_BEGUN)
        if goes_first_ms is None or time_ms == NO_TIME_MS:
            return False
        return time_ms - goes_first_ms > self.max_skew_ms // _GIVES_WAY_PER_SKEW

    def _awake(self) -> Iterator[tuple[int, int]]:
        for partition, (time_ms, state) in self._own.items():
            if state == AWAKE:
                yield time_ms, partition
        if self._places:
            lanes = self._places[min(self._places)]
            for partition, time_ms in lanes.times_ms.items():
                is_ours = partition in self._own or partition == UNKNOWN_PARTITION
                if lanes.states[partition] == AWAKE and not is_ours:
                    yield time_ms, partition

    @property
    def slowest_elsewhere_ms(self) -> int:
        """How far the slowest is, where others than this process have source partitions, too.

        They wait for a partition of ours only once they are `max-skew` ahead of what they were told
        of it. So who was told of a later time than the slowest's need not be told more as yet; and
        in this process tasks say how far they are without being asked.
        """
        lanes = self._places[min(self._places)] if self._places else None
        is_all_here = lanes is not None and lanes.times_ms.keys() <= self._own.keys()
        return NO_TIME_MS if is_all_here or self.slowest is None else self.slowest[0]

    def ahead_ms(self, partition: int) -> int:
        """How far a partition is ahead of the slowest."""
        time_ms, _ = self._own.get(partition, _NOT_BEGUN)
        return 0 if self.slowest is None or time_ms == NO_TIME_MS else time_ms - self.slowest[0]

    def is_ahead(self, partition: int) -> bool:
        """Whether a partition must wait; one that has not begun need not."""
        return self._says_origins() and self.ahead_ms(partition) > self.max_skew_ms

    def gives_way(self, partition: int) -> bool:
        """Whether a partition lets one of this process go first."""
        return self._says_origins() and self._is_behind(partition, self._goes_first_ms())

    def is_waiting(self, partition: int) -> bool:
        """Whether a partition waits now for one that is `max-skew` behind it."""
        return partition in self._waiting and self.is_ahead(partition)

    async def wait(self, partition: int, timeout_s: float) -> None:
        """Wait until a partition may go on, or for so long."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[partition] = waiting
        try:
            await asyncio.wait([waiting], timeout=min(timeout_s, _AT_MOST_S))
        finally:
            self._waiting.pop(partition, None)

    def wake(self, partition: int) -> None:
        """Let a partition look again, for another reason than that it may go on."""
        if (waiting := self._waiting.pop(partition, None)) is not None:
            waiting.set_result(None)

    def pieces(self, records: list[Record]) -> Iterator[list[Record]]:
        """Records in pieces that are short in time, each at least one."""
        span_ms = max(1, self.max_skew_ms // _PIECES_PER_SKEW)
        start = 0
        while start < len(records):
            until_ms = records[start].timestamp_ms + span_ms
            end = next(
                (at for at in range(start + 1, len(records)) if records[at][2] > until_ms),
                len(records),
            )
            yield records[start:end]
            start = end
