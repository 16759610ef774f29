"""Reads changelogs to their end, and writes what was read to databases, a batch at a time."""

from __future__ import annotations

import json
from pathlib import Path
from time import monotonic, process_time

from aiokafka import AIOKafkaConsumer, TopicPartition

from headrace.services.state.rocks import RocksMemory, RocksStore
from tests.bench.peers.settings import setting

_FETCH_BYTES = 4 << 20


async def restore() -> None:
    """Print how long it took, without what starting Python takes."""
    started, spent = monotonic(), process_time()
    rows = 0
    memory = RocksMemory()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=setting("BOOTSTRAP_SERVERS"),
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_partition_fetch_bytes=_FETCH_BYTES,
        group_id=None,
    )
    async with consumer:
        partitions = [
            TopicPartition(topic, partition)
            for topic in setting("CHANGELOGS").split()
            for partition in range(int(setting("PARTITIONS")))
        ]
        stores = {
            one: RocksStore(Path(setting("STATE_FOLDER"), f"bare-{number}"), memory)
            for number, one in enumerate(partitions)
        }
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        while [one for one in partitions if await consumer.position(one) < ends[one]]:
            for partition, records in (await consumer.getmany(timeout_ms=50)).items():
                stores[partition].write([], {record.key: record.value for record in records})
                rows += len(records)
        for store in stores.values():
            store.close()
    figures = {
        "rows": rows,
        "seconds": monotonic() - started,
        "cpu_seconds": process_time() - spent,
    }
    print(json.dumps(figures))
