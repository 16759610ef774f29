"""Writes and reads whole topics, for commands that come and go; a sidecar does it otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition

from headrace.contracts.record import Record
from headrace.services.kafka import seams
from headrace.services.kafka.cluster import connected
from headrace.services.kafka.new_topic import NewTopic
from headrace.services.kafka.security import client_options
from headrace.services.settings import Settings

_POLL_MS = 100


def make_topic(settings: Settings, name: str, partitions: int) -> None:
    """Make a topic whose records are kept whatever their timestamps say."""
    asyncio.run(_make_topic(settings, name, partitions))


def write_records(settings: Settings, records: Iterable[Record]) -> None:
    """Write records where they say, and return when all are acknowledged."""
    asyncio.run(_write(settings, list(records)))


def read_records(settings: Settings, topic: str) -> list[Record]:
    """Every committed record of a topic, by partition and offset."""
    return asyncio.run(_read(settings, topic))


def committed_offsets(settings: Settings, group: str, topic: str) -> dict[int, int]:
    """How far a group is in a topic, by partition."""
    return asyncio.run(_committed(settings, group, topic))


async def _make_topic(settings: Settings, name: str, partitions: int) -> None:
    kept = {"retention.ms": "-1", "message.timestamp.after.max.ms": str((1 << 63) - 1)}
    async with connected(settings) as cluster:
        await cluster.make([NewTopic(name, partitions, kept)], settings.replication_factor)


async def _write(settings: Settings, records: list[Record]) -> None:
    producer = AIOKafkaProducer(**client_options(settings, "write"), enable_idempotence=True)
    await producer.start()
    try:
        sent = [
            await producer.send(
                record.topic,
                record.value,
                record.key,
                partition=record.partition,
                timestamp_ms=record.timestamp_ms,
                headers=list(record.headers),
            )
            for record in records
        ]
        await asyncio.gather(*sent)
    finally:
        await producer.stop()


async def _read(settings: Settings, topic: str) -> list[Record]:
    consumer = AIOKafkaConsumer(
        **client_options(settings, "read"),
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    await consumer.start()
    try:
        left = await _ends(settings, topic)
        consumer.assign(list(left))
        records: list[Record] = []
        while any([await consumer.position(place) < end for place, end in left.items()]):
            for fetched in (await consumer.getmany(timeout_ms=_POLL_MS)).values():
                records += map(record_of, fetched)
    finally:
        await seams.stop(consumer)
    return sorted(records, key=lambda record: (record.partition, record.offset or 0))


async def _ends(settings: Settings, topic: str) -> dict[TopicPartition, int]:
    """Where a topic ends, open transactions included: a commit is answered before it shows."""
    async with connected(settings) as cluster:
        count = (await cluster.partitions([topic]))[topic]
    consumer = AIOKafkaConsumer(**client_options(settings, "read"))
    await consumer.start()
    try:
        places = [TopicPartition(topic, partition) for partition in range(count)]
        ends: dict[TopicPartition, int] = await consumer.end_offsets(places)
    finally:
        await seams.stop(consumer)
    return ends


def record_of(read: Any) -> Record:
    """A record as aiokafka read it."""
    return Record(
        read.key,
        read.value,
        read.timestamp,
        tuple(read.headers),
        read.topic,
        read.partition,
        read.offset,
    )


async def _committed(settings: Settings, group: str, topic: str) -> dict[int, int]:
    async with connected(settings) as cluster:
        count = (await cluster.partitions([topic]))[topic]
        places = [TopicPartition(topic, number) for number in range(count)]
        found = await cluster.committed(group, places)
    return {place.partition: committed.offset for place, committed in found.items()}
