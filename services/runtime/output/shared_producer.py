"""Shared producers on a broker: each has one transaction for many partitions of this instance.

`services/group/shared_transaction.py` says who may begin, who the others wait for, and when all of
it ends; here is what that does. A producer lives from one epoch to the next. A failure ends its
life: its open transaction is discarded, the partitions that had sent something begin again from
what is committed, and it has a new epoch at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple

from aiokafka.client import ConnectionGroup
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from headrace.contracts.errors import HeadraceError
from headrace.services.group import shared_transaction as rules
from headrace.services.kafka import transactions
from headrace.services.kafka.limits import Limits
from headrace.services.kafka.member_offsets import Member, Offsets, Teller, tell_offsets
from headrace.services.kafka.takeovers import Takeovers, hear
from headrace.services.kafka.unfinished import Known, Takeover
from headrace.services.observe.logs import logger as logger_of
from headrace.services.runtime.output.batches import Batches
from headrace.services.runtime.output.life import Life, TransactionBrokenError
from headrace.services.runtime.output.producer import (
    ENOUGH_S,
    Name,
    make_producer,
    stop_producer,
    tell_ended,
    telling_failures,
    whole,
)
from headrace.services.runtime.output.times import Times

logger = logger_of(__name__)


class Common(NamedTuple):
    """All that the producers of an instance have in common."""

    client: Mapping[str, Any]
    group: str
    timeout_ms: int
    session_timeout_ms: int
    member: Callable[[], Member | None]
    """Tells as whom the group knows this instance."""
    takeovers: Takeovers
    known: Known
    """All that is written, by whomever."""
    limits: Limits


class SharedProducer:
    """One of an instance's producers."""

    def __init__(self, common: Common, name: str) -> None:
        """It connects when somebody needs it."""
        self.name = name
        self.common = common
        self.seats = 0
        self.times = Times()
        self._rules: rules.SharedTransaction[Seat, Offsets] = rules.SharedTransaction()
        self._rules.broke()
        self._life: Life | None = None
        self._starting: asyncio.Task[None] | None = None
        self._beside: set[asyncio.Task[None]] = set()
        self._stopping: set[asyncio.Task[None]] = set()
        """Producers of former lives, that still close their connections."""

    # A life begins, and ends.

    async def life(self) -> Life:
        """Its life, which may have to begin first."""
        while self._life is None:
            if self._starting is None or self._starting.done():
                self._starting = asyncio.create_task(self._start(), name=self.name)
                self._starting.add_done_callback(hear)
            await asyncio.shield(self._starting)
        return self._life

    async def _start(self) -> None:
        common = self.common
        name = Name(self.name, common.timeout_ms, common.known)
        life = Life(make_producer(common.client, name), common.limits)
        try:
            await whole(self._connect(life, name))
        except BaseException:
            await stop_producer(life.producer)
            raise
        self._life = life
        self._rules.revived()

    async def _connect(self, life: Life, name: Name) -> None:
        producer = life.producer
        transactions.on_lost_connection(producer, partial(self._lost_connection, life))
        await producer.client.bootstrap()
        takeover = Takeover(producer.client, *name)
        identity, life.told = await takeover.give()
        tell_ended(takeover.ended)
        life.teller = Teller(self.name, identity, self.common.group, "")
        await transactions.start_as(producer, identity)
        transactions.announce_group(producer, self.common.group)
        transactions.tell_offsets_by(producer, partial(self._tell, life))

    def _lost_connection(self, life: Life) -> None:
        problem = transactions.ConnectionLostError("a connection was lost")
        self._break(life, problem)

    def _break(self, life: Life, problem: Exception | None) -> None:
        """Discard what was not committed, and begin another life."""
        if life is not self._life:
            return
        self._life = None
        discarded = [*self._rules.partitions]
        self._rules.broke()
        self.times.forget()
        life.breaks(problem)
        if life.ending is not None:
            # Its producer answers no more, and would be waited for and kept for ever.
            life.ending.cancel()
        for seat in discarded:
            seat.wake()
        self._go(stop_producer(life.producer), self._stopping)
        self._go(self._revive(), self._beside)

    async def _revive(self) -> None:
        """Begin at once: readers wait until a new epoch ends what was sent."""
        try:
            await self.life()
        except (KafkaError, HeadraceError) as problem:
            logger.warning("a producer does not begin again yet", producer=self.name, why=problem)

    def _go(
        self, beside: Coroutine[Any, Any, None], among: set[asyncio.Task[None]]
    ) -> asyncio.Task[None]:
        running = asyncio.create_task(beside)
        among.add(running)
        running.add_done_callback(among.discard)
        return running

    async def stop(self) -> None:
        """Let go; what was not committed is aborted by the broker, or by the next life."""
        life, self._life = self._life, None
        ends = [*self._beside, *([] if self._starting is None else [self._starting])]
        for one in ends:
            one.cancel()
        if life is not None:
            await stop_producer(life.producer)
        # A connection that is not closed by then would never be.
        if ends := [*ends, *self._stopping]:
            await asyncio.wait(ends)

    # A transaction begins, and ends.

    async def begin(self, seat: Seat, life: Life) -> None:
        """Let a partition begin to send, once the others do not wait for their end."""
        life.check()
        while not self._rules.may_begin():
            await life.until(life.ended)
            life.check()
        if self._rules.begin(seat):
            member = self.common.member()
            life.teller = life.teller._replace(began_as="" if member is None else member.member_id)
            life.ended = asyncio.Future()
            transactions.begin(life.producer)

    def owes(self, seat: Seat) -> bool:
        """Whether others wait for what a partition has still to send."""
        return self._rules.owes(seat)

    async def commit(self, seat: Seat, life: Life, offsets: Offsets) -> None:
        """All of a partition is sent; wait until the whole transaction counts."""
        life.check()
        was_open = self._rules.stage is rules.Stage.OPEN
        ended = life.ended
        together = self._rules.done(seat, offsets)
        if together is not None:
            told = {place: one for each in together.values() for place, one in each.items()}
            life.ending = self._go(self._end(life, told), self._beside)
            life.ending.add_done_callback(partial(self._hear_end, life))
        elif was_open:
            for other in self._rules.partitions:
                other.wake()
        await life.until(ended)

    async def _end(self, life: Life, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        producer = life.producer
        try:
            with telling_failures(producer):
                await self.times.say(life.batches)
                await life.batches.settle()
                await producer.send_offsets_to_transaction(offsets, self.common.group)
                await producer.commit_transaction()
        except (KafkaError, *transactions.OUT_OF_STATE) as problem:
            self._break(life, problem)
            return
        if life is self._life:
            self._rules.ended()
            life.ended.set_result(None)

    def _hear_end(self, life: Life, ending: asyncio.Task[None]) -> None:
        """Tell all that wait for the end of a failure that is none of Kafka's."""
        problem = None if ending.cancelled() else ending.exception()
        if isinstance(problem, Exception):
            self._break(life, problem)

    async def _tell(
        self, life: Life, node: int, offsets: dict[TopicPartition, OffsetAndMetadata]
    ) -> None:
        async def send(request: Any) -> Any:
            client = life.producer.client
            return await client.send(node, request, group=ConnectionGroup.COORDINATION)

        within_s = self.common.session_timeout_ms / 1000
        await tell_offsets(send, life.teller, self.common.member, offsets, within_s)

    async def leave(self, seat: Seat, life: Life) -> None:
        """A partition goes; what it has sent goes with it, unless it is just about to count."""
        if self._rules.breaks_without(seat):
            self._break(life, None)
        elif seat in self._rules.partitions and life is self._life:
            ended = life.ended
            ends: set[asyncio.Future[Any]] = {ended, life.broken}
            await asyncio.wait(ends, timeout=ENOUGH_S, return_when=asyncio.FIRST_COMPLETED)
            # A partition that begins again must know what it came to. A new epoch decides.
            if not ended.done():
                self._break(life, None)


class Ours(NamedTuple):
    """The part that a partition brings with it to its producer."""

    known: Known
    former: tuple[str, ...]
    """The ids of transactions that it had for itself in earlier versions."""
    wake: Callable[[], None]
    """Called when the others wait for it."""
    check_counted: Callable[[], Awaitable[None]]
    """Raises where the group does not count this instance any more."""


class Seat:
    """A partition's place with a producer; a `Way` for its outbox."""

    is_transactional = True

    def __init__(self, shared: SharedProducer, ours: Ours) -> None:
        """It is in no transaction."""
        self.name = shared.name
        self.shared = shared
        self._ours = ours
        self._life: Life | None = None
        self._offsets: Offsets = {}
        self.wake = ours.wake
        self.times = shared.times
        shared.seats += 1

    async def start(self) -> None:
        """Be ready to send, and end what an earlier version or an outage left open here."""
        for former in self._ours.former:
            tell_ended(await self.shared.common.takeovers.retire(former, self._ours.known))
        await self._join()

    async def _join(self) -> None:
        life = await self.shared.life()
        look = self.shared.common.takeovers.look
        tell_ended(await look(self.shared.name, life.told, self._ours.known))
        self._life = life

    def _lives(self) -> Life:
        assert self._life is not None
        self._life.check()
        return self._life

    @property
    def producer(self) -> Any:
        """The producer's, as long as it is the one that this began with."""
        return self._lives().producer

    @property
    def batches(self) -> Batches:
        """Those that all partitions fill that send by the same producer."""
        return self._lives().batches

    @property
    def is_awaited(self) -> bool:
        """Whether the others in the transaction wait until this commits, or it was discarded."""
        is_discarded = self._life is not None and self._life.broken.done()
        return is_discarded or self.shared.owes(self)

    async def begin(self) -> None:
        """Begin to send; it belongs together with all that others send by this producer.

        Where others have broken a transaction, nothing of this partition was in it. So it goes on
        in the producer's next life from where it is, unless the instance was counted out.
        """
        while True:
            try:
                return await self.shared.begin(self, self._lives())
            except TransactionBrokenError:
                await self._ours.check_counted()
                await self._join()

    def telling_failures(self) -> AbstractContextManager[Any]:
        """The producer, for a while; where its transaction is broken, that is what is said."""
        return self._lives().telling_failures()

    async def heard(self, acknowledged: asyncio.Future[Any]) -> Any:
        """Wait for the broker's answer to a batch."""
        return await self._lives().heard(acknowledged)

    async def tell_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Tell them with those of the others."""
        self._offsets = dict(offsets)

    async def commit(self) -> None:
        """Make everything since `begin` count, when the whole transaction does."""
        await self.shared.commit(self, self._lives(), self._offsets)

    async def abandon(self) -> None:
        """Discard what was sent since `begin`."""
        if self._life is not None:
            await self.shared.leave(self, self._life)

    async def settled(self) -> None:
        """Wait until all readers see what was committed last, whoever comes next among them."""
        await self.shared.common.takeovers.settled(self.shared.name)

    async def stop(self) -> None:
        """Leave the producer."""
        await self.abandon()
        self._life = None
        self.shared.seats -= 1
