"""Topics that get more partitions while others use them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from aiokafka.admin import AIOKafkaAdminClient, NewPartitions

from tests.kafka.clients import WITHIN_S, client_of, has_leaders

_ASK_AGAIN_S = 0.02


async def grow(servers: str, topics: Collection[str], count: int) -> None:
    """Add partitions, and wait until every broker tells of them: they may answer before they do."""
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        await admin.create_partitions({topic: NewPartitions(count) for topic in topics})
        client = client_of(admin)
        async with asyncio.timeout(WITHIN_S):
            for broker in client.cluster.brokers():
                for topic in topics:
                    while not await has_leaders(client, broker.nodeId, topic, count):  # noqa: ASYNC110
                        await asyncio.sleep(_ASK_AGAIN_S)
    finally:
        await admin.close()
