"""Topics are made, and every broker tells of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import InvalidReplicationFactorError, for_code
from aiokafka.protocol.metadata import MetadataRequest

_WITHIN_S = 180.0
_ASK_AGAIN_S = 0.02


async def make(admin: AIOKafkaAdminClient, wanted: Mapping[str, NewTopic]) -> None:
    """Make topics, all by one request, once a broker counts."""
    refused = await _refused(admin, wanted.values())
    while refused:
        await asyncio.sleep(_ASK_AGAIN_S)
        refused = await _refused(admin, [wanted[name] for name in refused])


async def _refused(admin: AIOKafkaAdminClient, wanted: Iterable[NewTopic]) -> list[str]:
    """Ask for topics; those for which no broker counts yet, or counts again after a stall."""
    refused = []
    answer = await admin.create_topics([*wanted])
    for name, code, message in answer.topic_errors:
        error = for_code(code)
        if error is InvalidReplicationFactorError:
            refused.append(name)
        elif code:
            raise error(message)
    return refused


async def wait_for_leaders(client: AIOKafkaClient, topic: str, partitions: int) -> None:
    """Wait until each broker tells of so many partitions; one may answer before it does."""
    async with asyncio.timeout(_WITHIN_S):
        for broker in client.cluster.brokers():
            # Brokers send no event when they learn of partitions, so there is only asking again.
            while not await _has_leaders(client, broker.nodeId, topic, partitions):  # noqa: ASYNC110
                await asyncio.sleep(_ASK_AGAIN_S)


async def _has_leaders(client: AIOKafkaClient, broker: int, topic: str, partitions: int) -> bool:
    leaders = [one["leader"] for one in (await described_in(client, broker, topic))["partitions"]]
    return len(leaders) == partitions and min(leaders) >= 0


async def described_in(client: AIOKafkaClient, broker: int, topic: str) -> dict[str, Any]:
    """A topic as a broker tells of it."""
    answer = await client.send(broker, MetadataRequest([topic], allow_auto_topic_creation=False))
    described: dict[str, Any]
    (described,) = answer.to_object()["topics"]
    return described


def client_of(user: AIOKafkaAdminClient | AIOKafkaConsumer) -> AIOKafkaClient:
    """Return the client that it asks by; one of our own would connect once more."""
    return user._client  # noqa: SLF001
