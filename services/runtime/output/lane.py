"""Lanes on a broker: a producer each, for many partitions of this instance.

`services/group/lane.py` says who may begin, who the others wait for, and when all of it ends; here
is what that does. A lane lives from one epoch to the next. A failure ends its life: its open
transaction is discarded, the partitions that had sent something begin again from what is committed,
and the lane has a new producer under a new epoch at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from aiokafka.client import ConnectionGroup
from aiokafka.errors import IllegalOperation, KafkaError
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from headrace.services.group import lane as rules
from headrace.services.kafka import transactions
from headrace.services.kafka.member_offsets import Member, Offsets, Teller, tell_offsets
from headrace.services.kafka.takeovers import Takeovers
from headrace.services.kafka.unfinished import Known, Takeover, Told
from headrace.services.observe.logs import logger as logger_of
from headrace.services.runtime.output.producer import (
    ENOUGH_S,
    Name,
    make_producer,
    stop_producer,
    tell_ended,
    telling_failures,
    whole,
)

logger = logger_of(__name__)


class LaneBrokenError(Exception):
    """A lane has discarded all that was sent in it since its last commit."""

    def __init__(self, problem: Exception | None) -> None:
        """The transaction failed of this; None where another partition could not go on."""
        super().__init__("another partition failed" if problem is None else repr(problem))
        self.problem = problem


class Shared(NamedTuple):
    """The part that all lanes of an instance have in common."""

    client: Mapping[str, Any]
    group: str
    timeout_ms: int
    session_timeout_ms: int
    member: Callable[[], Member | None]
    """Tells as whom the group knows this instance."""
    takeovers: Takeovers
    known: Known
    """All that is written, by whomever."""


class _Life:
    """A lane, from one epoch to the next."""

    def __init__(self, producer: Any) -> None:
        """Its producer is still to be started."""
        self.producer = producer
        self.told: list[Told] = []
        """Of transactions that were before it."""
        self.teller: Teller
        self.broken: asyncio.Future[LaneBrokenError] = asyncio.Future()
        self.ended: asyncio.Future[None] = asyncio.Future()
        """The transaction that is open now."""

    def check(self) -> None:
        """Raise what broke it."""
        if self.broken.done():
            raise LaneBrokenError(self.broken.result().problem)

    async def until(self, event: asyncio.Future[Any]) -> None:
        """Wait for something, or until it is broken."""
        if not event.done():
            both = {event, self.broken}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not event.done():
            self.check()


class Lane:
    """One of an instance's lanes."""

    def __init__(self, shared: Shared, name: str) -> None:
        """It connects when somebody needs it."""
        self.name = name
        self.shared = shared
        self.seats = 0
        self._rules: rules.Lane[Seat, Offsets] = rules.Lane()
        self._rules.broke()
        self._life: _Life | None = None
        self._starting: asyncio.Task[None] | None = None
        self._beside: set[asyncio.Task[None]] = set()

    # A life begins, and ends.

    async def life(self) -> _Life:
        """Its life, which may have to begin first."""
        while self._life is None:
            if self._starting is None or self._starting.done():
                self._starting = asyncio.create_task(self._start(), name=self.name)
            await asyncio.shield(self._starting)
        return self._life

    async def _start(self) -> None:
        shared = self.shared
        name = Name(self.name, shared.timeout_ms, shared.known)
        life = _Life(make_producer(shared.client, name))
        try:
            await whole(self._connect(life, name))
        except BaseException:
            await stop_producer(life.producer)
            raise
        self._life = life
        self._rules.revived()

    async def _connect(self, life: _Life, name: Name) -> None:
        producer = life.producer
        transactions.on_lost_connection(producer, partial(self._lost_connection, life))
        await producer.client.bootstrap()
        takeover = Takeover(producer.client, *name)
        identity, life.told = await takeover.give()
        tell_ended(takeover.ended)
        life.teller = Teller(self.name, identity, self.shared.group, "")
        await transactions.start_as(producer, identity)
        transactions.announce_group(producer, self.shared.group)
        transactions.tell_offsets_by(producer, partial(self._tell, life))

    def _lost_connection(self, life: _Life) -> None:
        problem = transactions.ConnectionLostError("a connection was lost")
        self._break(life, problem)

    def _break(self, life: _Life, problem: Exception | None) -> None:
        """Discard what was not committed, and begin another life."""
        if life is not self._life:
            return
        self._life = None
        self._rules.broke()
        life.broken.set_result(LaneBrokenError(problem))
        self._go(stop_producer(life.producer))
        self._go(self._revive())

    async def _revive(self) -> None:
        """Begin at once: readers wait until a new epoch ends what was sent."""
        try:
            await self.life()
        except KafkaError as problem:
            logger.warning("a lane does not begin again yet", lane=self.name, why=repr(problem))

    def _go(self, beside: Any) -> None:
        running = asyncio.ensure_future(beside)
        self._beside.add(running)
        running.add_done_callback(self._beside.discard)

    async def stop(self) -> None:
        """Let go; what was not committed is aborted by the broker, or by the next life."""
        life, self._life = self._life, None
        for one in self._beside:
            one.cancel()
        if self._starting is not None:
            self._starting.cancel()
        if life is not None:
            await stop_producer(life.producer)

    # A transaction begins, and ends.

    async def begin(self, seat: Seat, life: _Life) -> None:
        """Let a partition begin to send, once the others do not wait for their end."""
        life.check()
        while not self._rules.may_begin():
            await life.until(life.ended)
            life.check()
        if self._rules.begin(seat):
            member = self.shared.member()
            life.teller = life.teller._replace(began_as="" if member is None else member.member_id)
            life.ended = asyncio.Future()
            transactions.begin(life.producer)

    def owes(self, seat: Seat) -> bool:
        """Whether others wait for what a partition has still to send."""
        return self._rules.owes(seat)

    async def commit(self, seat: Seat, life: _Life, offsets: Offsets) -> None:
        """All of a partition is sent; wait until all of the lane counts."""
        life.check()
        was_open = self._rules.stage is rules.Stage.OPEN
        ended = life.ended
        together = self._rules.done(seat, offsets)
        if together is not None:
            told = {place: one for each in together.values() for place, one in each.items()}
            self._go(self._end(life, told))
        elif was_open:
            for other in self._rules.partitions:
                other.wake()
        await life.until(ended)

    async def _end(self, life: _Life, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        producer = life.producer
        try:
            with telling_failures(producer):
                await producer.send_offsets_to_transaction(offsets, self.shared.group)
                await producer.commit_transaction()
        except (KafkaError, IllegalOperation) as problem:
            self._break(life, problem)
            return
        if life is self._life:
            self._rules.ended()
            life.ended.set_result(None)

    async def _tell(
        self, life: _Life, node: int, offsets: dict[TopicPartition, OffsetAndMetadata]
    ) -> None:
        async def send(request: Any) -> Any:
            client = life.producer.client
            return await client.send(node, request, group=ConnectionGroup.COORDINATION)

        within_s = self.shared.session_timeout_ms / 1000
        await tell_offsets(send, life.teller, self.shared.member, offsets, within_s)

    async def leave(self, seat: Seat, life: _Life) -> None:
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
    """The part that a partition brings with it to its lane."""

    known: Known
    former: tuple[str, ...]
    """The ids of transactions that it had for itself in earlier versions."""
    wake: Callable[[], None]
    """Called when the others wait for it."""


class Seat:
    """A partition's place in a lane; a `Way` for its outbox."""

    is_transactional = True

    def __init__(self, lane: Lane, ours: Ours) -> None:
        """It is in no transaction."""
        self.name = lane.name
        self.lane = lane
        self._ours = ours
        self._life: _Life | None = None
        self._offsets: Offsets = {}
        self.wake = ours.wake
        lane.seats += 1

    async def start(self) -> None:
        """Be ready to send, and end what an earlier version or an outage left open here."""
        self._life = await self.lane.life()
        takeovers, known = self.lane.shared.takeovers, self._ours.known
        for former in self._ours.former:
            tell_ended(await takeovers.retire(former, known))
        tell_ended(await takeovers.look(self.lane.name, self._life.told, known))

    def _lives(self) -> _Life:
        assert self._life is not None
        self._life.check()
        return self._life

    @property
    def producer(self) -> Any:
        """The lane's, as long as it is the one that this began with."""
        return self._lives().producer

    @property
    def is_awaited(self) -> bool:
        """Whether the others of the lane wait until this commits."""
        return self.lane.owes(self)

    async def begin(self) -> None:
        """Begin to send; it belongs together with all that others send in the lane."""
        await self.lane.begin(self, self._lives())

    @contextmanager
    def telling_failures(self) -> Iterator[Any]:
        """The lane's producer, for a while; where the lane is broken, that is what is said."""
        life = self._lives()
        try:
            with telling_failures(life.producer):
                yield life.producer
        except (KafkaError, *transactions.OUT_OF_STATE):
            life.check()
            raise

    async def heard(self, acknowledged: asyncio.Future[Any]) -> Any:
        """Wait for the broker's answer to a batch."""
        life = self._lives()
        await life.until(acknowledged)
        with self.telling_failures():
            return await acknowledged

    async def tell_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Tell them with those of the others."""
        self._offsets = dict(offsets)

    async def commit(self) -> None:
        """Make everything since `begin` count, when all of the lane does."""
        await self.lane.commit(self, self._lives(), self._offsets)

    async def abandon(self) -> None:
        """Discard what was sent since `begin`."""
        if self._life is not None:
            await self.lane.leave(self, self._life)

    async def settled(self) -> None:
        """Wait until all readers see what was committed last, whoever comes next among them."""
        await self.lane.shared.takeovers.settled(self.lane.name)

    async def stop(self) -> None:
        """Leave the lane."""
        await self.abandon()
        self._life = None
        self.lane.seats -= 1
