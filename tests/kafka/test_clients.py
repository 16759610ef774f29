"""The helpers that other tests trust: what is written is read, byte for byte."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError

from headrace.contracts.record import Headers, Record
from tests.kafka.clients import FOREVER, fresh_name
from tests.kafka.fixtures import SharedKafka

NO_HEADERS: Headers = ()
AWKWARD: tuple[tuple[bytes | None, bytes | None, Headers], ...] = (
    (b"key", b"value", (("a", b"1"), ("a", b"2"), ("empty", b""), ("null", None))),
    (None, b"value", NO_HEADERS),
    (b"key", None, NO_HEADERS),
    (None, None, NO_HEADERS),
    (b"", b"", NO_HEADERS),
)

_A_WHILE_S = 0.5


def _records(topic: str, count: int, partitions: int = 1) -> list[Record]:
    """By partition, as they are read."""
    return [
        Record(b"%d" % n, b"v", 1_000 + n, (), topic, partition, n)
        for partition in range(partitions)
        for n in range(count)
    ]


def test_records_come_back_as_they_were_written(kafka: SharedKafka) -> None:
    topic = kafka.clients.make_topic(fresh_name("awkward"), 2, FOREVER)
    records = [
        Record(key, value, 1_700_000_000_000 - offset, headers, topic, partition, offset)
        for partition in range(2)
        for offset, (key, value, headers) in enumerate(AWKWARD)
    ]
    kafka.clients.produce(topic, records)
    assert kafka.clients.consume_all(topic) == records


def test_many_records_take_many_batches(kafka: SharedKafka) -> None:
    topic = kafka.clients.make_topic(fresh_name("many"), 3, FOREVER)
    records = _records(topic, 20_000, partitions=3)
    kafka.clients.produce(topic, records)
    assert kafka.clients.consume(topic, len(records)) == records
    assert kafka.clients.end_offsets(topic) == {0: 20_000, 1: 20_000, 2: 20_000}


def test_an_aborted_transaction_shows_only_to_those_who_ask(kafka: SharedKafka) -> None:
    topic = kafka.clients.make_topic(fresh_name("transactions"), 1, FOREVER)
    name = fresh_name("writer")
    first, second, third = (_records(topic, 3) for _ in range(3))
    kafka.clients.produce_committed(topic, first, name)
    kafka.clients.produce_aborted(topic, second, name)
    committed = kafka.clients.consume_all(topic)
    assert [(one.key, one.offset) for one in committed] == [(b"0", 0), (b"1", 1), (b"2", 2)]
    kafka.clients.produce_committed(topic, third, name)
    assert len(kafka.clients.consume_all(topic)) == 6
    assert len(kafka.clients.consume_all(topic, read_committed=False)) == 9


def test_a_read_waits_for_a_transaction_that_is_being_committed(kafka: SharedKafka) -> None:
    topic = kafka.clients.make_topic(fresh_name("open"), 1, FOREVER)

    async def read_beside_a_writer() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=kafka.clients.servers, transactional_id=topic)
        async with producer:
            async with producer.transaction():
                await producer.send_and_wait(topic, b"v", b"0")
                reading = asyncio.create_task(asyncio.to_thread(kafka.clients.consume_all, topic))
                done, _ = await asyncio.wait([reading], timeout=_A_WHILE_S)
                assert not done
            assert [one.key for one in await reading] == [b"0"]

    asyncio.run(read_beside_a_writer())


def test_an_empty_topic_has_nothing(kafka: SharedKafka) -> None:
    topic = kafka.clients.make_topic(fresh_name("empty"), partitions=2)
    assert kafka.clients.consume_all(topic) == []
    assert topic in kafka.clients.topics()


def test_a_topic_that_is_there_is_not_made_again(kafka: SharedKafka) -> None:
    topic = kafka.clients.make_topic(fresh_name("once"))
    with pytest.raises(TopicAlreadyExistsError):
        kafka.clients.make_topic(topic)


def test_a_topic_that_is_missing_is_said_to_be_missing(kafka: SharedKafka) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="nowhere"):
        kafka.clients.consume_all("nowhere")


def test_waiting_for_records_that_never_come_ends(kafka: SharedKafka) -> None:
    topic = kafka.clients.make_topic(fresh_name("waiting"))
    with pytest.raises(AssertionError, match="has 0 records"):
        kafka.clients.consume(topic, 1, within_s=0.1)
