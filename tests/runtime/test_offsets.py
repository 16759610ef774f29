"""The offsets of a group are told only when no transaction can change them any more."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from headrace.services.kafka.cluster import connected
from headrace.services.settings import Settings
from tests.kafka.clients import FOREVER, fresh_name
from tests.kafka.fixtures import SharedKafka

_A_WHILE_S = 0.5


def test_offsets_of_a_transaction_are_waited_for(kafka: SharedKafka) -> None:
    name = fresh_name("offsets")
    kafka.clients.make_topic(name, 2, FOREVER)
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)

    async def commit() -> None:
        settings = Settings(bootstrap_servers=kafka.bootstrap_servers)
        producer = AIOKafkaProducer(
            bootstrap_servers=settings.bootstrap_servers, transactional_id=name
        )
        async with connected(settings) as cluster, producer:
            assert await cluster.committed(name, [first, second]) == {}
            await producer.begin_transaction()
            await producer.send_offsets_to_transaction(
                {first: OffsetAndMetadata(7, "so far")}, name
            )
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(_A_WHILE_S):
                    await cluster.committed(name, [first, second])
            assert await cluster.committed(name, [second]) == {}
            await producer.commit_transaction()
            found = await cluster.committed(name, [first, second])
            assert found == {first: OffsetAndMetadata(7, "so far")}
            assert await cluster.offsets_count(name) == 1

    asyncio.run(commit())
