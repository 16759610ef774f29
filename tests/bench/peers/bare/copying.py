"""Copies one topic into another, and commits as everybody does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from tests.bench.peers.settings import milliseconds, setting

_BATCH_BYTES = 1_000_000
_REQUEST_BYTES = 4 << 20


async def copy() -> None:
    """Copy until somebody ends this process."""
    exactly_once = setting("GUARANTEE") == "exactly-once"
    transaction = {"transactional_id": setting("GROUP")} if exactly_once else {}
    consumer = AIOKafkaConsumer(
        setting("SOURCE"),
        bootstrap_servers=setting("BOOTSTRAP_SERVERS"),
        group_id=setting("GROUP"),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    producer = AIOKafkaProducer(
        bootstrap_servers=setting("BOOTSTRAP_SERVERS"),
        enable_idempotence=True,
        max_batch_size=_BATCH_BYTES,
        max_request_size=_REQUEST_BYTES,
        **transaction,
    )
    async with consumer, producer:
        while True:
            await _interval(consumer, producer, exactly_once=exactly_once)


async def _interval(
    consumer: AIOKafkaConsumer, producer: AIOKafkaProducer, *, exactly_once: bool
) -> None:
    """Copy what comes between two commits, beginning with the first record."""
    clock = asyncio.get_running_loop().time
    batches = await consumer.getmany(timeout_ms=milliseconds("COMMIT_INTERVAL_MS"))
    if not batches:
        return
    due = clock() + milliseconds("COMMIT_INTERVAL_MS") / 1000
    if exactly_once:
        await producer.begin_transaction()
    offsets, under_way = {}, []
    while True:
        for partition, records in batches.items():
            under_way += await _send(producer, partition.partition, records)
            offsets[partition] = records[-1].offset + 1
        left = due - clock()
        if left <= 0:
            break
        batches = await consumer.getmany(timeout_ms=int(left * 1000) + 1)
    if exactly_once:
        await producer.send_offsets_to_transaction(offsets, setting("GROUP"))
        await producer.commit_transaction()
    else:
        await asyncio.gather(*under_way)
        await consumer.commit(offsets)


async def _send(
    producer: AIOKafkaProducer, partition: int, records: Sequence[Any]
) -> list[asyncio.Future[Any]]:
    """Whole batches, since an own call for each record costs ten times as much."""
    under_way, start = [], 0
    while start < len(records):
        batch = producer.create_batch()
        start = _fill(batch, records, start)
        under_way.append(await producer.send_batch(batch, setting("SINK"), partition=partition))
    return under_way


def _fill(batch: Any, records: Sequence[Any], start: int) -> int:
    """Append records from `start` on; the index of the first that did not fit."""
    append = batch.append
    for index in range(start, len(records)):
        record = records[index]
        written = append(
            timestamp=record.timestamp,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
        )
        if written is None:
            return index
    return len(records)
