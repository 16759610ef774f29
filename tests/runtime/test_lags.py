"""How far a group is behind, also where it moves while that is asked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.structs import TopicPartition

from headrace.contracts.hops import hops_of
from headrace.contracts.record import Record
from headrace.services.admin.lags import lags_of
from headrace.services.kafka.cluster import Cluster, Ends, connected
from headrace.services.settings import Settings
from tests.kafka.clients import FOREVER, fresh_name
from tests.kafka.fixtures import SharedKafka
from tests.kafka.growing import grow

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


def test_a_partition_that_is_added_meanwhile_is_left_for_the_next_time(
    kafka: SharedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.clients.make_topic(fresh_name("grows"), 1, FOREVER)
    asked: list[object] = []

    async def ends(cluster: Cluster) -> dict[int, Ends]:
        send = cluster.send

        async def grow_behind_the_first(request: Any, node: int | None = None) -> Any:
            answer = await send(request, node)
            if isinstance(request, OffsetRequest):
                asked.append(request)
                if len(asked) == 1:
                    await grow(kafka.bootstrap_servers, [topic], 2)
            return answer

        monkeypatch.setattr(cluster, "send", grow_behind_the_first)
        return await cluster.ends(topic)

    async def find() -> tuple[dict[int, Ends], dict[int, Ends]]:
        async with connected(Settings(bootstrap_servers=kafka.bootstrap_servers)) as cluster:
            return await ends(cluster), await cluster.ends(topic)

    first, then = asyncio.run(find())
    assert (first, then) == ({0: Ends(0, 0)}, {0: Ends(0, 0), 1: Ends(0, 0)})


async def _commit(servers: str, name: str) -> None:
    async with AIOKafkaConsumer(
        bootstrap_servers=servers, group_id=name, enable_auto_commit=False
    ) as consumer:
        consumer.assign([TopicPartition(name, number) for number in _COMMITTED])
        await consumer.commit(
            {TopicPartition(name, number): offset for number, offset in _COMMITTED.items()}
        )
