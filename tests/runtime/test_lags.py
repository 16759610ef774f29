"""How far a group is behind, also where it moves while that is asked."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition

from headrace.contracts.hops import hops_of
from headrace.contracts.record import Record
from headrace.services.admin.lags import lags_of
from headrace.services.settings import Settings
from tests.kafka.clients import FOREVER, fresh_name
from tests.kafka.fixtures import SharedKafka

_RECORDS = 5
_COMMITTED = {0: 3, 1: 7}
"""Of the second more than there was when its end was asked for; of a third nothing."""


def test_a_commit_behind_the_end_that_was_told_is_no_lag_below_zero(
    kafka: SharedKafka,
) -> None:
    name = fresh_name("lags")
    topic = kafka.clients.make_topic(name, len(_COMMITTED) + 1, FOREVER)
    for partition in range(len(_COMMITTED) + 1):
        record = Record(None, b"", 0, (), topic, partition, None)
        kafka.clients.produce(topic, [record] * _RECORDS)
    asyncio.run(_commit(kafka.bootstrap_servers, name))

    settings = Settings(bootstrap_servers=kafka.bootstrap_servers)
    found = asyncio.run(lags_of(name, hops_of(name, topic, []), settings))
    assert found == {(topic, 0): 2, (topic, 1): 0, (topic, 2): _RECORDS}


async def _commit(servers: str, name: str) -> None:
    async with AIOKafkaConsumer(
        bootstrap_servers=servers, group_id=name, enable_auto_commit=False
    ) as consumer:
        consumer.assign([TopicPartition(name, number) for number in _COMMITTED])
        await consumer.commit(
            {TopicPartition(name, number): offset for number, offset in _COMMITTED.items()}
        )
