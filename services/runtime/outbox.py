"""One partition's way out: batches of records, and the transaction that makes them count.

Exactly once, a transactional producer carries everything between `begin` and `commit`; whoever
opens an outbox with the same transactional id fences all earlier ones, and what they left open is
aborted. At least once, an idempotent producer sends at once, and `commit` means: all of it was
acknowledged.

A batch that the broker refuses fails `settle`, which must come before anything is committed:
aiokafka by itself would commit a transaction without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import IllegalOperation
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from contracts.record import Record
from services.runtime import seams, unfinished
from services.runtime.rights import DENIALS

BATCH_BYTES = 512 << 10
"""Below the broker's own default for `max.message.bytes`; a larger record is a batch by itself."""
OURS = "headrace"
"""The metadata of an offset that a task committed with its state."""
_REQUEST_BYTES_MAX = 64 << 20
_RETRY_MS = 50
_ENOUGH_S = 2.0


class Outbox:
    """Where one partition's records leave; one coroutine at a time."""

    def __init__(
        self, client: Mapping[str, Any], group: str, transactional_id: str | None, timeout_ms: int
    ) -> None:
        """Offsets are this group's; without a transactional id they are committed elsewhere."""
        self._client = client
        self._group = group
        self._transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._producer: Any = None
        self._batches: dict[TopicPartition, Any] = {}
        """What is being filled: small batches cost as much as large ones."""
        self._sent: list[tuple[asyncio.Future[Any], int, TopicPartition]] = []
        self.is_open = False
        """Whether something was sent since the last commit."""
        self.bytes_sent = 0
        """Since the last commit."""

    async def start(self) -> None:
        """Connect; fence whoever used this transactional id before."""
        transactional = {}
        if self._transactional_id is not None:
            transactional = {
                "transactional_id": self._transactional_id,
                "transaction_timeout_ms": self._timeout_ms,
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
        starting = asyncio.ensure_future(self._producer.start())
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            # A connection that is torn off while it is made would never be closed.
            await asyncio.wait([starting], timeout=_ENOUGH_S)
            raise
        if self.is_transactional:
            seams.announce_group(self._producer, self._group)

    async def abort_unfinished(self, topics: Iterable[str]) -> list[TopicPartition]:
        """End what an outage left open under our name in these topics; where that was."""
        if self._transactional_id is None:
            return []
        return await unfinished.abort_unfinished(self._producer, topics)

    @property
    def is_transactional(self) -> bool:
        """Whether what is sent counts only once it is committed."""
        return self._transactional_id is not None

    async def partitions(self, topic: str) -> int:
        """How many partitions a topic has."""
        return len(await self._producer.partitions_for(topic))

    async def begin(self) -> None:
        """What is sent from now on belongs together."""
        if self._transactional_id is not None:
            await self._producer.begin_transaction()
        self.is_open = True

    async def send(self, topic: str, partition: int, records: Iterable[Record]) -> None:
        """Send records to one partition, in order, with their own timestamps and headers."""
        rows = records if isinstance(records, list) else list(records)
        start = 0
        while start < len(rows):
            batch = self._batch(topic, partition)
            start = seams.fill(batch, rows, start)
            if batch.closed():
                await self._send_batch(TopicPartition(topic, partition))

    async def send_rows(
        self, topic: str, partition: int, rows: list[tuple[bytes, bytes | None]], timestamp_ms: int
    ) -> None:
        """Send keys and values, all at one time."""
        start = 0
        while start < len(rows):
            start = seams.fill_rows(self._batch(topic, partition), rows, start, timestamp_ms)
            if start < len(rows):
                await self._send_batch(TopicPartition(topic, partition))

    def _batch(self, topic: str, partition: int) -> Any:
        to = TopicPartition(topic, partition)
        batch = self._batches.get(to)
        if batch is None:
            batch = self._batches[to] = self._producer.create_batch()
            self.announce(to)
        return batch

    async def _send_batch(self, to: TopicPartition) -> None:
        batch = self._batches.pop(to)
        count = batch.record_count()
        self.bytes_sent += batch.size()
        batch.close()
        with self._telling_denials():
            acknowledged = await self._producer.send_batch(batch, to.topic, partition=to.partition)
        self._sent.append((acknowledged, count, to))

    @contextmanager
    def _telling_denials(self) -> Iterator[None]:
        """Say which right is lacking: aiokafka's calls behind the first say something else."""
        try:
            yield
        except IllegalOperation as problem:
            failure = seams.failure_of_transaction(self._producer)
            if isinstance(failure, DENIALS):
                raise failure from problem
            raise

    def has_sent(self, to: TopicPartition) -> bool:
        """Whether anything went there that `settle` was not told of yet."""
        return to in self._batches or any(sent_to == to for _, _, sent_to in self._sent)

    def announce(self, *partitions: TopicPartition) -> None:
        """Say early where something will be sent in this transaction: no commit waits for it then.

        What is said at once is one request.
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
        for acknowledged, count, partition in sent:
            metadata = await acknowledged
            ends[partition] = metadata.offset + count
        return ends

    async def tell_offsets(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Make the source's offsets part of the transaction; wait until they are.

        A broker asks its coordinator about the first that a transaction writes to a partition, its
        offsets included. Two such questions of one transaction at a time, and one write is refused
        (KIP-890): sent again 50 ms later. So offsets and records are not sent side by side.
        """
        told = {at: OffsetAndMetadata(offset, OURS) for at, offset in offsets.items()}
        with self._telling_denials():
            await self._producer.send_offsets_to_transaction(told, self._group)

    async def commit(self) -> None:
        """Make everything since `begin` count, with the offsets that were told."""
        await self._producer.commit_transaction()

    def closed(self) -> None:
        """What was open is committed."""
        self.is_open = False
        self.bytes_sent = 0

    async def stop(self) -> None:
        """Let go; what was not committed is aborted by the broker, or by the next `start`."""
        producer, self._producer = self._producer, None
        for acknowledged, _, _ in self._sent:
            acknowledged.cancel()
        self._sent, self._batches = [], {}
        if producer is not None:
            stopping = asyncio.ensure_future(producer.stop())
            # It waits for what is under way as long as a request may take, on a broker that is
            # silent as well.
            await asyncio.wait([stopping], timeout=_ENOUGH_S)
            if stopping.done():
                stopping.result()
