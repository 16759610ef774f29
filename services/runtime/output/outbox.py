"""One partition's way out: batches of records, in order, and what makes them count.

A batch that the broker refuses fails `settle`, which must come before anything is committed:
aiokafka by itself would commit a transaction without it. A record that is known to be too large for
its topic is never sent: the caller is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from aiokafka.errors import MessageSizeTooLargeError, RecordListTooLargeError
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from headrace.contracts.origin import Origin
from headrace.contracts.record import Record
from headrace.services.kafka import filling
from headrace.services.kafka.limits import Limits
from headrace.services.kafka.transactions import announce
from headrace.services.runtime.output.producer import Way
from headrace.services.runtime.output.times import Times

_TOO_LARGE = (MessageSizeTooLargeError, RecordListTooLargeError)


class _Sent(NamedTuple):
    """A batch on its way."""

    acknowledged: asyncio.Future[Any]
    records: int
    to: TopicPartition


class Outbox:
    """Where one partition's records leave; one coroutine at a time."""

    def __init__(self, way: Way, limits: Limits) -> None:
        """Send this way, and no more at once than these limits say."""
        self.limits = limits
        self._way = way
        self._batches: dict[TopicPartition, Any] = {}
        """Those that are being filled: small batches cost as much as large ones."""
        self._sent: list[_Sent] = []
        self._written: set[TopicPartition] = set()
        """Where something went since the last commit."""
        self._written_last: set[TopicPartition] = set()
        """Where something went with it."""
        self.is_open = False
        """Whether something was sent since the last commit."""
        self.bytes_sent = 0
        """Since the last commit."""

    async def start(self) -> None:
        """Be ready to send."""
        await self._way.start()

    @property
    def is_transactional(self) -> bool:
        """Whether what is sent counts only once it is committed."""
        return self._way.is_transactional

    @property
    def times(self) -> Times | None:
        """The times that partitions which commit together tell; None for one that does so alone."""
        return self._way.times

    @property
    def is_awaited(self) -> bool:
        """Whether others wait until this commits."""
        return self.is_open and self._way.is_awaited

    async def partitions(self, topic: str) -> int:
        """How many partitions a topic has."""
        return len(await self._way.producer.partitions_for(topic))

    async def begin(self) -> None:
        """Begin to send; all of it belongs together."""
        await self._way.begin()
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
            self._written.add(to)
            self.announce(to)
        return batch

    async def _send_batch(self, to: TopicPartition) -> None:
        batch = self._batches.pop(to)
        count, size_bytes = batch.record_count(), batch.size()
        self.bytes_sent += size_bytes
        batch.close()
        with self._way.telling_failures() as producer:
            acknowledged = await producer.send_batch(batch, to.topic, partition=to.partition)
        acknowledged.add_done_callback(partial(self._hear, to.topic, size_bytes, count))
        self._sent.append(_Sent(acknowledged, count, to))

    def _hear(
        self, topic: str, size_bytes: int, records: int, acknowledged: asyncio.Future[Any]
    ) -> None:
        """Learn from a refusal, whatever fails first because of it."""
        if not acknowledged.cancelled() and isinstance(acknowledged.exception(), _TOO_LARGE):
            self.limits.learn(topic, size_bytes, records)

    def has_sent(self, to: TopicPartition) -> bool:
        """Whether anything went there that `settle` was not told of yet."""
        return to in self._batches or any(sent.to == to for sent in self._sent)

    def announce(self, *partitions: TopicPartition) -> None:
        """Say early where something will be sent in this transaction: no commit waits for it then.

        Several that are announced at once are one request.
        """
        if self.is_transactional:
            for partition in partitions:
                announce(self._way.producer, partition)

    def announce_as_last(self) -> None:
        """Say early that this transaction goes where the last one did.

        If nothing goes to one of these partitions, it has a marker alone.
        """
        self.announce(*self._written_last)

    async def settle(self) -> dict[TopicPartition, int]:
        """Wait until everything sent is acknowledged; the next offset of each partition."""
        for to in list(self._batches):
            await self._send_batch(to)
        ends: dict[TopicPartition, int] = {}
        sent, self._sent = self._sent, []
        for acknowledged, count, to in sent:
            metadata = await self._way.heard(acknowledged)
            ends[to] = metadata.offset + count
        return ends

    async def tell_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Make the group's offsets part of what is committed next."""
        await self._way.tell_offsets(offsets)

    async def commit(self) -> None:
        """Make everything since `begin` count, with the offsets that were told."""
        await self._way.commit()

    async def abandon(self) -> None:
        """Discard what was sent since `begin`."""
        await self._way.abandon()

    async def settled(self) -> None:
        """Wait until all readers see what was committed last."""
        await self._way.settled()

    def closed(self) -> None:
        """Begin to count anew: all that was open is committed."""
        self.is_open = False
        self.bytes_sent = 0
        self._written_last, self._written = self._written, set()

    async def stop(self) -> None:
        """Let go; what was not committed does not count."""
        for sent in self._sent:
            sent.acknowledged.cancel()
        self._sent, self._batches = [], {}
        await self._way.stop()
