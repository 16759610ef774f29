"""Topics that get more partitions while others use them."""

from __future__ import annotations

from collections.abc import Collection

from aiokafka.admin import AIOKafkaAdminClient, NewPartitions

from tests.kafka.making import client_of, wait_for_leaders


async def grow(servers: str, topics: Collection[str], count: int) -> None:
    """Add partitions, and wait until every broker tells of them."""
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        await admin.create_partitions({topic: NewPartitions(count) for topic in topics})
        for topic in topics:
            await wait_for_leaders(client_of(admin), topic, count)
    finally:
        await admin.close()
