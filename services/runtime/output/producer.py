"""A producer, and its transactions: what outboxes send through.

Exactly once, a producer fences all earlier ones with its transactional id when it starts, and ends
what they left open. A request whose answer never came may still be on its way when its
transaction is over, and would be taken for one of the next. So behind a connection that was lost,
the next transaction has a new epoch, and the request is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple, Protocol

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from headrace.services.kafka import seams, transactions
from headrace.services.kafka.fenced import take_unsent_as_heard
from headrace.services.kafka.limits import BATCH_BYTES
from headrace.services.kafka.requests import Identity
from headrace.services.kafka.unfinished import Ended, Known, Takeover
from headrace.services.observe.logs import logger as logger_of
from headrace.services.runtime.output.batches import Batches, Sender
from headrace.services.runtime.output.times import Times

_REQUEST_BYTES_MAX = 64 << 20
_RETRY_MS = 50
ENOUGH_S = 2.0
Offsets = dict[TopicPartition, OffsetAndMetadata]
logger = logger_of(__name__)


class Name(NamedTuple):
    """Under which transactional id a producer commits, and what is known of that."""

    transactional_id: str
    timeout_ms: int
    known: Known


class Way(Sender, Protocol):
    """How an outbox sends, and makes it count."""

    @property
    def name(self) -> str | None:
        """The id under which a successor has to end what is left open; None for one partition's."""
        ...

    @property
    def producer(self) -> Any:
        """The producer that carries it."""
        ...

    @property
    def times(self) -> Times | None:
        """The times that partitions which commit together tell; None for one that does so alone."""
        ...

    @property
    def batches(self) -> Batches | None:
        """Those that partitions which commit together fill; None for one that does so alone."""
        ...

    @property
    def is_awaited(self) -> bool:
        """Whether others wait until this commits, or hears that it cannot."""
        ...

    async def start(self) -> None:
        """Be ready to send."""
        ...

    async def begin(self) -> None:
        """Begin to send; all of it belongs together."""
        ...

    async def tell_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Make offsets part of what is committed."""
        ...

    async def commit(self) -> None:
        """Make everything since `begin` count."""
        ...

    async def abandon(self) -> None:
        """Discard what was sent since `begin`."""
        ...

    async def settled(self) -> None:
        """Wait until all readers see what was committed last."""
        ...

    async def stop(self) -> None:
        """Let go."""
        ...


class Producer:
    """One producer, and who it is to the brokers; a `Way` of one outbox alone."""

    is_transactional = True
    times = batches = None

    def __init__(self, client: Mapping[str, Any], group: str, name: Name) -> None:
        """Offsets are this group's."""
        self.name: str | None = None
        self.producer: Any = None
        self._client = client
        self._group = group
        self._name = name
        self._identity: Identity | None = None
        self._has_lost_connection = False
        """Whether some request may still reach a broker, and its answer nobody."""

    @property
    def is_awaited(self) -> bool:
        """It has no others."""
        return False

    async def settled(self) -> None:
        """Do nothing: a reader of the changelog asks for itself."""

    async def start(self) -> None:
        """Connect; fence earlier users of this transactional id, and end what they left open."""
        self.producer = make_producer(self._client, self._name)
        await whole(self._start(self.producer))

    async def _start(self, producer: Any) -> None:
        # A connection tells of its end whoever was to hear when it was made, so this comes first.
        transactions.on_lost_connection(producer, self._lost_connection)
        await producer.client.bootstrap()
        identity = await self._take(producer)
        await transactions.start_as(producer, identity)
        transactions.announce_group(producer, self._group)

    async def _take(self, producer: Any) -> Identity:
        takeover = Takeover(producer.client, *self._name)
        self._has_lost_connection = False
        identity = self._identity = await takeover.take(self._identity)
        tell_ended(takeover.ended)
        return identity

    def _lost_connection(self) -> None:
        self._has_lost_connection = True

    async def begin(self) -> None:
        """Begin to send; all of it belongs together."""
        if self._has_lost_connection:
            identity = await self._take(self.producer)
            transactions.go_on_as(self.producer, identity)
        with telling_failures(self.producer):
            await self.producer.begin_transaction()

    def telling_failures(self) -> AbstractContextManager[Any]:
        """Give the producer for a while; a failure is raised as what it is."""
        return telling_failures(self.producer)

    async def heard(self, acknowledged: asyncio.Future[Any]) -> Any:
        """Wait for the broker's answer to a batch."""
        return await acknowledged

    async def tell_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Make the group's offsets part of the transaction; wait until they are.

        A broker asks its coordinator about the first that a transaction writes to a partition, its
        offsets included. Two such questions of one transaction at a time, and one write is refused
        (KIP-890): sent again 50 ms later. So offsets and records are not sent side by side.
        """
        with telling_failures(self.producer):
            await self.producer.send_offsets_to_transaction(dict(offsets), self._group)

    async def commit(self) -> None:
        """Make everything since `begin` count, with the offsets that were told."""
        with telling_failures(self.producer):
            await self.producer.commit_transaction()

    async def abandon(self) -> None:
        """Abort what is open, under a new epoch, so that no request of it counts later."""
        await self._take(self.producer)

    async def stop(self) -> None:
        """Let go; what was not committed is aborted by the broker, or by the next `start`."""
        producer, self.producer = self.producer, None
        if producer is not None:
            await stop_producer(producer)


def make_producer(client: Mapping[str, Any], name: Name | None) -> Any:
    """A producer that was not started; exactly once under a name, else idempotent."""
    transactional = {}
    if name is not None:
        transactional = {
            "transactional_id": name.transactional_id,
            "transaction_timeout_ms": name.timeout_ms,
        }
    made = AIOKafkaProducer(
        **client,
        **transactional,
        enable_idempotence=True,
        linger_ms=0,
        max_batch_size=BATCH_BYTES,
        max_request_size=_REQUEST_BYTES_MAX,
        retry_backoff_ms=_RETRY_MS,
    )
    take_unsent_as_heard(made)
    seams.find_partitions_fast(made)
    if name is not None:
        transactions.take_failures_as_heard(made)
    return made


async def whole(starting: Awaitable[None]) -> None:
    """Start a producer; who is cancelled meanwhile leaves nothing behind.

    A connection that is torn off while it is made would never be closed; and a producer that would
    still be given a new epoch later would fence its successor.
    """
    started = asyncio.ensure_future(starting)
    try:
        await asyncio.shield(started)
    except asyncio.CancelledError:
        await asyncio.wait([started], timeout=ENOUGH_S)
        started.cancel()
        await asyncio.wait([started])
        raise


async def stop_producer(producer: Any) -> None:
    """Stop a producer, if that is soon done.

    It waits for what is under way as long as a request may take, on a broker that is silent as
    well.
    """
    stopping = asyncio.ensure_future(producer.stop())
    await asyncio.wait([stopping], timeout=ENOUGH_S)
    if stopping.done():
        stopping.result()


@contextmanager
def telling_failures(producer: Any) -> Iterator[Any]:
    """Say what a transaction failed of: aiokafka's calls behind the first say something else.

    Whether we were fenced, or lack a right, decides what comes next.
    """
    try:
        yield producer
    except transactions.OUT_OF_STATE as problem:
        failure = transactions.failure_of_transaction(producer)
        if isinstance(failure, KafkaError):
            raise failure from problem
        raise


def tell_ended(ended: Iterable[Ended]) -> None:
    """Say what an outage had left open."""
    for place, commits, because in ended:
        logger.warning(
            "an outage left a transaction open; it is ended as its other parts were",
            where=f"{place.topic}/{place.partition}",
            by="commit" if commits else "abort",
            because=because,
        )
