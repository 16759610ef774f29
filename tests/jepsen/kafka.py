"""A log that is a Kafka topic, or two with something between them that carries all values over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from tests.jepsen.workload import Unknown

_TRANSACTION_MS = 6_000
_REQUEST_MS = 8_000
_POLL_MS = 100
_WITHIN_S = 30.0
_FINISHED_WITHIN_S = 240.0


class KafkaLog:
    """Values are written to one topic, and read from another, or the same."""

    def __init__(
        self,
        servers: str,
        partitions: int,
        written: str,
        read: str,
        settle: Callable[[], dict[int, int]],
    ) -> None:
        """`settle` waits until all that was written can be read, and says where that ends."""
        self.partitions = partitions
        self._servers = servers
        self._written = written
        self._read = read
        self._settle = settle

    async def writer(self, transactional_id: str | None) -> _Writer:
        """A producer."""
        producer = AIOKafkaProducer(
            bootstrap_servers=self._servers,
            acks="all",
            enable_idempotence=True,
            transactional_id=transactional_id,
            transaction_timeout_ms=_TRANSACTION_MS,
            request_timeout_ms=_REQUEST_MS,
        )
        try:
            await _answered(producer.start())
        except Unknown:
            await _closed(producer)
            raise
        return _Writer(producer, self._written)

    async def reader(self) -> _Reader:
        """A consumer of what is committed."""
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._servers,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        await consumer.start()
        consumer.assign([TopicPartition(self._read, one) for one in range(self.partitions)])
        return _Reader(consumer, self._read, self._settle)


class _Writer:
    def __init__(self, producer: Any, topic: str) -> None:
        self._producer = producer
        self._topic = topic

    async def begin(self) -> None:
        await _answered(self._producer.begin_transaction())

    async def send(self, partition: int, value: str) -> Awaitable[object]:
        sent = await _answered(
            self._producer.send(
                self._topic, value.encode(), key=value.encode(), partition=partition
            )
        )
        return _answered(sent)

    async def commit(self) -> None:
        await _answered(self._producer.commit_transaction())

    async def abort(self) -> None:
        await _answered(self._producer.abort_transaction())

    async def close(self) -> None:
        await _closed(self._producer)


class _Reader:
    def __init__(self, consumer: Any, topic: str, settle: Callable[[], dict[int, int]]) -> None:
        self._consumer = consumer
        self._topic = topic
        self._settle = settle

    async def some(self) -> Sequence[tuple[int, int, str]]:
        found = await self._consumer.getmany(timeout_ms=_POLL_MS)
        return [
            (place.partition, one.offset, one.value.decode())
            for place, records in found.items()
            for one in records
        ]

    async def rest(self) -> Sequence[tuple[int, int, str]]:
        ends = await asyncio.to_thread(self._settle)
        read: list[tuple[int, int, str]] = []
        async with asyncio.timeout(_FINISHED_WITHIN_S):
            while not await self._has_reached(ends):
                read += await self.some()
        return read

    async def close(self) -> None:
        await self._consumer.stop()

    async def _has_reached(self, ends: dict[int, int]) -> bool:
        for partition, end in ends.items():
            if await self._consumer.position(TopicPartition(self._topic, partition)) < end:
                return False
        return True


async def _answered(asked: Awaitable[Any]) -> Any:
    """An answer; without one nobody knows. aiokafka tells no refusal for certain from the rest."""
    try:
        return await asyncio.wait_for(asked, _WITHIN_S)
    except (KafkaError, TimeoutError) as error:
        raise Unknown from error


async def _closed(producer: Any) -> None:
    try:
        await asyncio.wait_for(producer.stop(), _WITHIN_S)
    except (KafkaError, TimeoutError):
        return  # what it still had to say is what nobody knows of
