"""One partition's way out: batches of records, and the transaction that makes them count.

Exactly once, a transactional producer carries everything between `begin` and `commit`; whoever
opens an outbox with the same transactional id fences all earlier ones, and what they left open is
ended. At least once, an idempotent producer sends at once, and `commit` means: all of it was
acknowledged.

A request whose answer never came may still be on its way when its transaction is over, and would be
taken for one of the next. So behind a connection that was lost, the next transaction has a new
epoch, and the request is refused.

A batch that the broker refuses fails `settle`, which must come before anything is committed:
aiokafka by itself would commit a transaction without it. A record that its topic is
known not to take is never sent: its giver is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, RecordListTooLargeError
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from headrace.contracts.origin import Origin
from headrace.contracts.record import Record
from headrace.services.kafka import filling, seams
from headrace.services.kafka.limits import BATCH_BYTES, Limits
from headrace.services.kafka.requests import Identity
from headrace.services.kafka.unfinished import Ended, Known, Takeover
from headrace.services.kafka.writers import Writers
from headrace.services.observe.logs import logger as logger_of

_REQUEST_BYTES_MAX = 64 << 20
_RETRY_MS = 50
_ENOUGH_S = 2.0
_TOO_LARGE = (MessageSizeTooLargeError, RecordListTooLargeError)
logger = logger_of(__name__)


class Name(NamedTuple):
    """Under which transactional id an outbox commits, and what is known of that."""

    transactional_id: str
    timeout_ms: int
    known: Known
    former: str | None = None
    """How an earlier headrace called it."""
    writers: Writers | None = None
    """The one that asks who writes to partitions, for many takeovers."""


class _Sent(NamedTuple):
    """A batch on its way."""

    acknowledged: asyncio.Future[Any]
    records: int
    to: TopicPartition


class Outbox:
    """Where one partition's records leave; one coroutine at a time."""

    def __init__(
        self,
        client: Mapping[str, Any],
        group: str,
        name: Name | None,
        limits: Limits,
    ) -> None:
        """Offsets are this group's; without a name they are committed elsewhere."""
        self.limits = limits
        self._client = client
        self._group = group
        self._name = name
        self._producer: Any = None
        self._identity: Identity | None = None
        self._has_lost_connection = False
        """Whether some request may still reach a broker, and its answer nobody."""
        self._batches: dict[TopicPartition, Any] = {}
        """The batches that are being filled: small ones cost as much as large ones."""
        self._sent: list[_Sent] = []
        self.is_open = False
        """Whether something was sent since the last commit."""
        self.bytes_sent = 0
        """Since the last commit."""

    async def start(self) -> None:
        """Connect; fence whoever used this transactional id before, and end what it left open."""
        transactional = {}
        if self._name is not None:
            transactional = {
                "transactional_id": self._name.transactional_id,
                "transaction_timeout_ms": self._name.timeout_ms,
            }
        self._producer = AIOKafkaProducer(
            **self._client,
            **transactional,
            enable_idempotence=True,
            linger_ms=0,
            max_batch_size=BATCH_BYTES,
            max_request_size=_REQUEST_BYTES_MAX,
            retry_backoff_ms=_RETRY_MS,
        )
        starting = asyncio.ensure_future(self._start(self._producer))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            # A connection that is torn off while it is made would never be closed; and a producer
            # that would still be given a new epoch later would fence its successor.
            await asyncio.wait([starting], timeout=_ENOUGH_S)
            starting.cancel()
            await asyncio.wait([starting])
            raise

    async def _start(self, producer: Any) -> None:
        name = self._name
        if name is None:
            await producer.start()
            return
        # A connection tells of its end whoever was to hear when it was made, so this comes first.
        seams.on_lost_connection(producer, self._lost_connection)
        await producer.client.bootstrap()
        if name.former is not None:
            former = _takeover(producer, name, name.former)
            await former.retire()
            _tell(former.ended)
        identity = await self._take(producer, name)
        await seams.start_as(producer, identity)
        seams.announce_group(producer, self._group)

    async def _take(self, producer: Any, name: Name) -> Identity:
        takeover = _takeover(producer, name, name.transactional_id)
        self._has_lost_connection = False
        identity = self._identity = await takeover.take(self._identity)
        _tell(takeover.ended)
        return identity

    def _lost_connection(self) -> None:
        self._has_lost_connection = True

    @property
    def is_transactional(self) -> bool:
        """Whether what is sent counts only once it is committed."""
        return self._name is not None

    async def partitions(self, topic: str) -> int:
        """How many partitions a topic has."""
        return len(await self._producer.partitions_for(topic))

    async def begin(self) -> None:
        """Begin a transaction for all records from now on."""
        if self._name is not None:
            if self._has_lost_connection:
                identity = await self._take(self._producer, self._name)
                seams.go_on_as(self._producer, identity)
            with self._telling_failures():
                await self._producer.begin_transaction()
        self.is_open = True

    async def send(
        self, topic: str, partition: int, records: list[Record], origins: Sequence[Origin] = ()
    ) -> list[int]:
        """Send records to one partition, in order, with their own timestamps and headers.

        Their origins are told with them, where they are given. Returns the places of those that are
        too large for the topic, and were not sent.
        """

        def fill(batch: Any, start: int) -> int:
            if not origins:
                return filling.fill(batch, records, start)
            batch_bytes = self.limits.batch_bytes(topic)
            return filling.fill_with_origins(batch, records, start, origins, batch_bytes)

        return await self._fill(TopicPartition(topic, partition), len(records), fill)

    async def send_rows(
        self, topic: str, partition: int, rows: list[tuple[bytes, bytes | None]], timestamp_ms: int
    ) -> list[int]:
        """The same for keys and values, all at one time."""
        fill = partial(filling.fill_rows, rows=rows, timestamp_ms=timestamp_ms)
        return await self._fill(TopicPartition(topic, partition), len(rows), fill)

    async def _fill(self, to: TopicPartition, count: int, fill: Callable[..., int]) -> list[int]:
        record_bytes_max = self.limits.record_bytes(to.topic)
        too_large: list[int] = []
        start = 0
        while start < count:
            batch = self._batch(to)
            start = fill(batch, start=start)
            if batch.size() > record_bytes_max:
                # Only a record that is alone in it makes a batch larger than batches are made.
                del self._batches[to]
                too_large.append(start - 1)
            elif batch.closed():
                await self._send_batch(to)
        return too_large

    def _batch(self, to: TopicPartition) -> Any:
        batch = self._batches.get(to)
        if batch is None:
            batch = self._batches[to] = filling.new_batch(
                self.limits.batch_bytes(to.topic), is_transactional=self.is_transactional
            )
            self.announce(to)
        return batch

    async def _send_batch(self, to: TopicPartition) -> None:
        batch = self._batches.pop(to)
        count, size_bytes = batch.record_count(), batch.size()
        self.bytes_sent += size_bytes
        batch.close()
        with self._telling_failures():
            acknowledged = await self._producer.send_batch(batch, to.topic, partition=to.partition)
        acknowledged.add_done_callback(partial(self._hear, to.topic, size_bytes, count))
        self._sent.append(_Sent(acknowledged, count, to))

    def _hear(
        self, topic: str, size_bytes: int, records: int, acknowledged: asyncio.Future[Any]
    ) -> None:
        """Learn from a refusal, whatever fails first because of it."""
        if not acknowledged.cancelled() and isinstance(acknowledged.exception(), _TOO_LARGE):
            self.limits.learn(topic, size_bytes, records)

    @contextmanager
    def _telling_failures(self) -> Iterator[None]:
        """Say what a transaction failed of: aiokafka's calls behind the first say something else.

        Whether we were fenced, or lack a right, decides what comes next.
        """
        try:
            yield
        except seams.OUT_OF_STATE as problem:
            failure = seams.failure_of_transaction(self._producer)
            if isinstance(failure, KafkaError):
                raise failure from problem
            raise

    def has_sent(self, to: TopicPartition) -> bool:
        """Whether anything went there that `settle` was not told of yet."""
        return to in self._batches or any(sent.to == to for sent in self._sent)

    def announce(self, *partitions: TopicPartition) -> None:
        """Say early where something will be sent in this transaction: no commit waits for it then.

        Partitions that are said at once share a request.
        """
        if self.is_transactional:
            for partition in partitions:
                seams.announce(self._producer, partition)

    async def settle(self) -> dict[TopicPartition, int]:
        """Wait until everything sent is acknowledged; the next offset of each partition."""
        for to in list(self._batches):
            await self._send_batch(to)
        ends: dict[TopicPartition, int] = {}
        sent, self._sent = self._sent, []
        for acknowledged, count, to in sent:
            metadata = await acknowledged
            ends[to] = metadata.offset + count
        return ends

    async def tell_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Make the group's offsets part of the transaction; wait until they are.

        A broker asks its coordinator about the first that a transaction writes to a partition, its
        offsets included. Two such questions of one transaction at a time, and one write is refused
        (KIP-890): sent again 50 ms later. So offsets and records are not sent side by side.
        """
        with self._telling_failures():
            await self._producer.send_offsets_to_transaction(dict(offsets), self._group)

    async def commit(self) -> None:
        """Make everything since `begin` count, with the offsets that were told."""
        with self._telling_failures():
            await self._producer.commit_transaction()

    async def abandon(self) -> None:
        """Abort what is open, under a new epoch, so that no request of it counts later."""
        assert self._name is not None
        await self._take(self._producer, self._name)

    def closed(self) -> None:
        """Note that the open transaction is committed."""
        self.is_open = False
        self.bytes_sent = 0

    async def stop(self) -> None:
        """Let go; what was not committed is aborted by the broker, or by the next `start`."""
        producer, self._producer = self._producer, None
        for sent in self._sent:
            sent.acknowledged.cancel()
        self._sent, self._batches = [], {}
        if producer is not None:
            stopping = asyncio.ensure_future(producer.stop())
            # It waits for what is under way as long as a request may take, on a broker that is
            # silent as well.
            await asyncio.wait([stopping], timeout=_ENOUGH_S)
            if stopping.done():
                stopping.result()


def _takeover(producer: Any, name: Name, transactional_id: str) -> Takeover:
    return Takeover(producer.client, transactional_id, name.timeout_ms, name.known, name.writers)


def _tell(ended: Iterable[Ended]) -> None:
    for place, commits, because in ended:
        logger.warning(
            "an outage left a transaction open; it is ended as its other parts were",
            where=f"{place.topic}/{place.partition}",
            by="commit" if commits else "abort",
            because=because,
        )
