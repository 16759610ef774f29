"""Producers of an instance that runs at least once, and the fence that it puts up itself.

Brokers refuse nobody's batches without a transaction. So an instance stops sending by its own
clock, before its group can give its partitions away (`services/group/term.py`):

    open    the group has answered; each batch asks once more right before it is written
    shut    producers give up what they hold, and close their connections; tasks begin again from
            their last commit once the group has answered, and still counts this instance

A partition that begins again goes on as the same producer, in its next epoch. So brokers refuse
what the instance itself has sent before, if that comes late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from aiokafka.structs import OffsetAndMetadata, TopicPartition

from headrace.services.kafka import fenced, transactions
from headrace.services.kafka.requests import Identity
from headrace.services.observe.logs import logger as logger_of
from headrace.services.runtime.output.producer import make_producer, stop_producer, whole

_LOOK_AGAIN_S = 0.1
logger = logger_of(__name__)


class Fence:
    """One instance's."""

    def __init__(
        self,
        client: Mapping[str, Any],
        ends_at_s: Callable[[], float],
        check_counted: Callable[[], Awaitable[None]],
    ) -> None:
        """The group has told until when to send; `check_counted` raises where it counts us out."""
        self.client = client
        self.check_counted = check_counted
        self.last: dict[TopicPartition, Identity] = {}
        """The identity as which each source partition has sent."""
        self._ends_at_s = ends_at_s
        self._producers: set[FencedProducer] = set()
        self._watching: asyncio.Task[None] | None = None

    def is_open(self) -> bool:
        """Whether anything may be sent now."""
        return fenced.now_s() < self._ends_at_s()

    async def until_open(self) -> None:
        """Wait until something may be sent."""
        while not self.is_open():  # noqa: ASYNC110 - another thread hears of it
            await asyncio.sleep(_LOOK_AGAIN_S)

    def watch(self, producer: FencedProducer) -> None:
        """Have a producer give up what it holds when nothing may be sent any more."""
        self._producers.add(producer)
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch(), name="fence")

    def leave(self, producer: FencedProducer) -> None:
        """A producer holds nothing any more."""
        self._producers.discard(producer)

    async def _watch(self) -> None:
        while self._producers:
            if self.is_open():
                # A machine that slept has an end that no timer knows of.
                await asyncio.sleep(_LOOK_AGAIN_S)
                continue
            logger.warning(
                "the group has been silent for so long that others may soon have our partitions;"
                " what was not committed is given up",
                partitions=len(self._producers),
            )
            for producer in [*self._producers]:
                producer.give_up()

    def stop(self) -> None:
        """Watch no more; all producers have stopped."""
        if self._watching is not None:
            self._watching.cancel()


class FencedProducer:
    """One partition's, which is idempotent; a `Way` for its outbox."""

    name = None
    is_transactional = False
    is_awaited = False
    times = batches = None

    def __init__(self, fence: Fence, source: TopicPartition) -> None:
        """It connects when it starts."""
        self.producer: Any = None
        self._fence = fence
        self._source = source
        self._has_given_up = False

    async def start(self) -> None:
        """Connect, as a member that the group counts now."""
        self._check()
        await self._fence.check_counted()
        producer = self.producer = make_producer(self._fence.client, None)
        fenced.send_only_while(producer, self._may_send)
        await whole(self._start(producer))
        self._fence.watch(self)

    async def _start(self, producer: Any) -> None:
        last = self._fence.last
        identity = fenced.next_identity(last.get(self._source))
        if identity is None:
            await producer.start()
        else:
            await producer.client.bootstrap()
            await transactions.start_as(producer, identity)
        last[self._source] = fenced.identity_of(producer)

    def _may_send(self) -> bool:
        return not self._has_given_up and self._fence.is_open()

    def _check(self) -> None:
        if not self._may_send():
            raise fenced.GivenUpError

    async def begin(self) -> None:
        """Begin to send, if it may."""
        self._check()

    @contextmanager
    def telling_failures(self) -> Iterator[Any]:
        """Give the producer for a while."""
        yield self.producer

    async def heard(self, acknowledged: asyncio.Future[Any]) -> Any:
        """Wait for the broker's answer to a batch."""
        return await acknowledged

    async def tell_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Do nothing: the consumer commits them."""

    async def commit(self) -> None:
        """Do nothing: what was acknowledged counts."""

    async def abandon(self) -> None:
        """Send nothing any more of what was not acknowledged."""
        self.give_up()

    async def settled(self) -> None:
        """Do nothing: a reader of the changelog asks for itself."""

    def give_up(self) -> None:
        """Send nothing any more, whatever was not acknowledged."""
        self._has_given_up = True
        self._fence.leave(self)
        if self.producer is not None:
            fenced.give_up(self.producer)

    async def stop(self) -> None:
        """Let go; what was not acknowledged is done again from the last commit."""
        self.give_up()
        producer, self.producer = self.producer, None
        if producer is not None:
            await stop_producer(producer)
