"""Many who take over at once ask the brokers little."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, NodeNotReadyError
from aiokafka.structs import TopicPartition

from headrace.services.kafka.markers import leader_of
from headrace.services.kafka.unfinished import Known, Takeover
from headrace.services.kafka.writers import Writers
from tests.kafka.clients import FOREVER, fresh_name
from tests.kafka.fixtures import SharedKafka

PARTITIONS = 8


@asynccontextmanager
async def connected(kafka: SharedKafka, topic: str) -> AsyncIterator[Any]:
    """A client that knows who leads a topic's partitions."""
    client = AIOKafkaClient(bootstrap_servers=kafka.bootstrap_servers)
    await client.bootstrap()
    await client.set_topics([topic])
    try:
        yield client
    finally:
        await client.close()


@pytest.fixture
def topic(kafka: SharedKafka) -> str:
    made = kafka.clients.make_topic(fresh_name("written"), PARTITIONS, FOREVER)
    # By then whoever is called leader knows that it is.
    assert kafka.clients.consume_all(made) == []
    return made


class Asked:
    """Asks through a client, and notes what for."""

    def __init__(self, client: Any) -> None:
        """It has asked nothing."""
        self.questions: list[list[int]] = []
        self.asks = asyncio.Event()
        self._client = client

    async def send(self, node: int, request: Any) -> Any:
        """Ask this broker."""
        (numbers,) = request._partitions.values()  # noqa: SLF001
        self.questions.append(numbers)
        self.asks.set()
        return await self._client.send(node, request)


def test_a_takeover_that_asks_while_an_answer_is_on_its_way_shares_the_next_question(
    kafka: SharedKafka, topic: str
) -> None:
    async def live() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=kafka.bootstrap_servers, transactional_id=topic
        )
        async with connected(kafka, topic) as client, producer, producer.transaction():
            await producer.send_and_wait(topic, b"open", partition=3)
            places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
            asked = Asked(client)
            writers = Writers(asked.send)
            leader = leader_of(client, places[0])
            found = await asyncio.gather(*(writers.open_in(leader, [one]) for one in places))
            assert [[one.place for one in opened] for opened in found] == [
                [one] if one.partition == 3 else [] for one in places
            ]
            assert asked.questions == [[*range(PARTITIONS)]]
            asked.asks.clear()
            first = asyncio.ensure_future(writers.open_in(leader, places[:1]))
            await asked.asks.wait()
            # An answer that is on its way may be older than their question.
            await asyncio.gather(*(writers.open_in(leader, [one]) for one in places[:5]))
            await first
            assert asked.questions[1:] == [[0], [0, 1, 2, 3, 4]]

    asyncio.run(live())


def test_a_takeover_that_gives_up_leaves_the_others_their_answer(
    kafka: SharedKafka, topic: str
) -> None:
    async def live() -> None:
        async with connected(kafka, topic) as client:
            place = TopicPartition(topic, 0)
            writers, leader = Writers(client.send), leader_of(client, place)
            gives_up, stays = (
                asyncio.ensure_future(writers.open_in(leader, [place])) for _ in range(2)
            )
            await asyncio.sleep(0)
            gives_up.cancel()
            assert await stays == []
            assert gives_up.cancelled()

    asyncio.run(live())


def test_all_who_asked_hear_of_a_failure_and_the_next_ones_ask_anew(
    kafka: SharedKafka, topic: str
) -> None:
    async def live() -> None:
        async with connected(kafka, topic) as client:
            place = TopicPartition(topic, 0)
            failures: list[KafkaError] = [NodeNotReadyError()]

            async def send(node: int, request: Any) -> Any:
                if failures:
                    raise failures.pop()
                return await client.send(node, request)

            writers, leader = Writers(send), leader_of(client, place)
            both = (writers.open_in(leader, [place]) for _ in range(2))
            heard = await asyncio.gather(*both, return_exceptions=True)
            assert [type(one) for one in heard] == [NodeNotReadyError] * 2
            assert await writers.open_in(leader, [place]) == []

    asyncio.run(live())


def test_a_takeover_asks_for_its_own_partition_alone(kafka: SharedKafka, topic: str) -> None:
    async def live() -> None:
        async with connected(kafka, topic) as client:
            asked = Asked(client)
            writers = Writers(asked.send)
            for written in ([5], None):
                name, known = fresh_name("id"), Known({topic: written})
                # The first owner has nothing to look for.
                for _ in range(2):
                    await Takeover(client, name, 10_000, known, writers).take()
                assert asked.questions
                assert all(one == (written or [*range(PARTITIONS)]) for one in asked.questions)
                asked.questions.clear()

    asyncio.run(live())
