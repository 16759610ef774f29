"""One partition's way out: batches of records, in order, and what makes them count.

A batch that the broker refuses fails `settle`, which must come before anything is committed:
aiokafka by itself would commit a transaction without it. A record that is known to be too large for
its topic is never sent: the caller is told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from aiokafka.structs import OffsetAndMetadata, TopicPartition

from headrace.contracts.origin import Origin
from headrace.contracts.record import Record
from headrace.services.kafka import filling
from headrace.services.kafka.limits import Limits
from headrace.services.kafka.transactions import announce
from headrace.services.runtime.output.batches import Batches, Fill
from headrace.services.runtime.output.producer import Way
from headrace.services.runtime.output.times import Times


class Outbox:
    """Where one partition's records leave; one coroutine at a time."""

    def __init__(self, way: Way, limits: Limits) -> None:
        """Send this way, and no more at once than these limits say."""
        self.limits = limits
        self._way = way
        self._batches = Batches(limits, way)
        self._written: set[TopicPartition] = set()
        """Where something went since the last commit."""
        self._written_last: set[TopicPartition] = set()
        """Where something went with it."""
        self.is_open = False
        """Whether something was sent since the last commit."""
        self.bytes_sent = 0
        """Since the last commit, those that still wait in a batch included."""

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

    async def send(self, topic: str, partition: int, records: list[Record]) -> list[int]:
        """Send records to one partition, in order, with their own timestamps and headers.

        Returns the places of those that are too large for the topic, and were not sent.
        """
        fill = partial(filling.fill, rows=records)
        return await self._fill(self._batches, topic, partition, len(records), fill)

    async def send_rows(
        self, topic: str, partition: int, rows: list[tuple[bytes, bytes | None]], timestamp_ms: int
    ) -> list[int]:
        """The same for keys and values, all at one time."""
        fill = partial(filling.fill_rows, rows=rows, timestamp_ms=timestamp_ms)
        return await self._fill(self._batches, topic, partition, len(rows), fill)

    async def spread(
        self, topic: str, partition: int, records: list[Record], origins: Sequence[Origin] = ()
    ) -> list[int]:
        """The same for records that go behind a repartition, with those of the others.

        Their origins are told with them, where they are given.
        """

        def fill(batch: Any, start: int) -> int:
            if not origins:
                return filling.fill(batch, records, start)
            batch_bytes = self.limits.batch_bytes(topic)
            return filling.fill_with_origins(batch, records, start, origins, batch_bytes)

        batches = self._way.batches or self._batches
        return await self._fill(batches, topic, partition, len(records), fill)

    async def _fill(
        self, batches: Batches, topic: str, partition: int, count: int, fill: Fill
    ) -> list[int]:
        to = TopicPartition(topic, partition)
        if count and to not in self._written:
            self._written.add(to)
            self.announce(to)
        filled = await batches.fill(to, count, fill)
        self.bytes_sent += filled.size_bytes
        return filled.too_large

    def has_sent(self, to: TopicPartition) -> bool:
        """Whether anything went there that `settle` was not told of yet."""
        return self._batches.has_sent(to)

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
        """Wait until everything sent is acknowledged; the next offset of each partition.

        The commit waits for records that were spread in batches with those of others.
        """
        return await self._batches.settle()

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
        self._batches.forget()
        await self._way.stop()
