"""Parts that tasks hand to the driver leave by one producer, which is kept as long as it serves."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.structs import TopicPartition
from confluent_kafka import KafkaException, Producer

from headrace.contracts.errors import ReplayDiffers, TopicRefused
from headrace.contracts.record import Record
from headrace.contracts.topics import cleaned_topic
from headrace.services.kafka.markers import leader_of
from headrace.services.kafka.requests import DescribeProducers
from headrace.spark_jobs.write import kept
from headrace.spark_jobs.write.digest import Digest
from headrace.spark_jobs.write.kafka import handed_bytes_max
from headrace.spark_jobs.write.kept import KeptWriter, Part
from headrace.spark_jobs.write.markers import Marker, last_marker, markers_topic
from headrace.spark_jobs.write.producer import take_id, transaction
from headrace.spark_jobs.write.too_large import TooLarge
from headrace.spark_jobs.write.topics import check_topics, ensure_markers
from headrace.spark_jobs.write.transaction import (
    DRIVER,
    Batch,
    Outcome,
    end_earlier,
    id_of,
    write_rows,
)
from tests.kafka.clients import FOREVER, fresh_name
from tests.kafka.fixtures import SharedKafka
from tests.spark.strikes import record_table

RECORDS = 20
WRITERS = 2
NOTHING = TooLarge({})
"""No row is larger than its topic takes."""


@pytest.fixture
def batch(kafka: SharedKafka) -> Batch:
    return a_batch(kafka, fresh_name("query"))


def a_batch(kafka: SharedKafka, query: str) -> Batch:
    """Return the first micro-batch of a query whose topics are there."""
    # A fenced client of librdkafka is never let go, and would say that the broker has gone.
    client = {"bootstrap.servers": kafka.bootstrap_servers, "log_level": "0"}
    check_topics(client, {cleaned_topic(query): 1})
    ensure_markers(client, markers_topic(query), WRITERS)
    return Batch(query, client, Marker("a-checkpoint", 7, WRITERS), handed_bytes_max=1 << 20)


def behind(batch: Batch) -> Batch:
    """Return the micro-batch behind this one."""
    return replace(batch, marker=batch.marker._replace(batch=batch.marker.batch + 1))


def parts_of(batch: Batch, *, value: bytes = b"v") -> list[Part]:
    """Return the parts of a micro-batch, as its tasks hand them over."""
    return [part_of(batch, writer, value) for writer in range(WRITERS)]


def outcome_of(batch: Batch, writer: int, value: bytes = b"v") -> Outcome:
    keys = [b"%d/%d/%d" % (batch.marker.batch, writer, number) for number in range(RECORDS)]
    rows = [(batch.query, Record(key, value, 5, (("h", b"1"),), "", 0, None)) for key in keys]
    return write_rows(batch, writer, iter([record_table(rows)]), NOTHING)


def part_of(batch: Batch, writer: int, value: bytes = b"v") -> Part:
    outcome = outcome_of(batch, writer, value)
    assert outcome.keys is not None
    assert outcome.packed is not None
    return Part(writer, Digest(outcome.records, int(outcome.keys, 16)), outcome.packed)


def written(kafka: SharedKafka, query: str) -> Counter[bytes | None]:
    """Return how often each key stands in the query's topic."""
    return Counter(one.key for one in kafka.clients.consume_all(query))


def once(*batches: Batch) -> Counter[bytes | None]:
    """Return the keys of all parts of micro-batches, each of them once."""
    return Counter(
        b"%d/%d/%d" % (batch.marker.batch, writer, number)
        for batch in batches
        for writer in range(WRITERS)
        for number in range(RECORDS)
    )


def producers_of(batch: Batch) -> set[tuple[int, int]]:
    """Return the number and epoch of each producer that the broker saw in the first markers."""

    async def ask() -> set[tuple[int, int]]:
        client = AIOKafkaClient(bootstrap_servers=batch.client["bootstrap.servers"])
        await client.bootstrap()
        place = TopicPartition(markers_topic(batch.query), 0)
        await client.set_topics([place.topic])
        try:
            question = DescribeProducers({place.topic: [place.partition]})
            answer = await client.send(leader_of(client, place), question)
        finally:
            await client.close()
        ((_, ((_, code, _, producers, _),), _),) = answer.topics
        assert code == 0
        return {(identity, epoch) for identity, epoch, *_ in producers}

    return asyncio.run(ask())


def test_the_next_micro_batch_leaves_by_the_same_producer(batch: Batch, kafka: SharedKafka) -> None:
    writer, second = KeptWriter(), behind(batch)
    assert writer.write(batch, parts_of(batch)) == 0
    (first,) = producers_of(batch)
    assert writer.write(second, parts_of(second)) == 0
    assert producers_of(batch) == {first}
    assert written(kafka, batch.query) == once(batch, second)
    (record, *_) = kafka.clients.consume_all(batch.query)
    assert (record.value, record.timestamp_ms, record.headers) == (b"v", 5, (("h", b"1"),))
    for number in range(WRITERS):
        found = last_marker(batch.client, markers_topic(batch.query), number)
        assert found == second.marker_of(part_of(second, number).digest)


def test_another_query_of_the_driver_has_its_own_producer(batch: Batch, kafka: SharedKafka) -> None:
    other = a_batch(kafka, fresh_name("other"))
    writers = {one.query: KeptWriter() for one in (batch, other)}
    for one in (batch, other):
        writers[one.query].write(one, parts_of(one))
    before = producers_of(batch), producers_of(other)
    assert before[0].isdisjoint(before[1])
    for one in (batch, other):
        writers[one.query].write(behind(one), parts_of(behind(one)))
    assert (producers_of(batch), producers_of(other)) == before


def test_a_kept_producer_that_was_fenced_is_replaced(batch: Batch, kafka: SharedKafka) -> None:
    writer, second = KeptWriter(), behind(batch)
    writer.write(batch, parts_of(batch))
    (first,) = producers_of(batch)
    end_earlier(batch, WRITERS)
    assert writer.write(second, parts_of(second)) == 0
    assert written(kafka, batch.query) == once(batch, second)
    assert max(producers_of(batch)) > first


def test_a_driver_that_was_overtaken_writes_nothing_twice(batch: Batch, kafka: SharedKafka) -> None:
    overtaken, second = KeptWriter(), behind(batch)
    overtaken.write(batch, parts_of(batch))
    assert KeptWriter().write(second, parts_of(second)) == 0
    assert overtaken.write(second, parts_of(second)) == WRITERS * RECORDS
    assert written(kafka, batch.query) == once(batch, second)


def test_a_failure_throws_the_kept_producer_away_and_leaves_no_transaction_open(
    batch: Batch, kafka: SharedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Producer] = []
    began: list[Producer] = []

    def noted_take(*args: Any) -> Producer:
        taken.append(take_id(*args))
        return taken[-1]

    def noted_begin(producer: Producer) -> AbstractContextManager[None]:
        began.append(producer)
        return transaction(producer)

    monkeypatch.setattr(kept, "take_id", noted_take)
    monkeypatch.setattr(kept, "transaction", noted_begin)
    settings = {"max.message.bytes": "2000", **FOREVER}
    query = kafka.clients.make_topic(fresh_name("less"), 1, settings)
    ensure_markers(batch.client, markers_topic(query), WRITERS)
    batch = replace(batch, query=query)
    writer, second = KeptWriter(), behind(batch)
    writer.write(batch, parts_of(batch))
    with pytest.raises(TopicRefused, match="takes less at once"):
        writer.write(second, parts_of(second, value=b"x" * 3_000))
    assert written(kafka, query) == once(batch)
    writer.write(second, parts_of(second))
    assert written(kafka, query) == once(batch, second)
    # The kept one fails, then one that tries once more, and neither is used again.
    first, again, another = taken
    assert began == [first, first, again, another]


def test_parts_that_were_written_are_not_written_again(batch: Batch, kafka: SharedKafka) -> None:
    by_driver, by_task = parts_of(batch)
    KeptWriter().write(batch, [by_driver])
    rows = iter([record_table([(batch.query, Record(b"t", b"", 1, (), "", 0, None))])])
    alone = replace(batch, handed_bytes_max=0)
    assert write_rows(alone, by_task.writer, rows, NOTHING) == Outcome(1, 0)
    before = written(kafka, batch.query)
    with pytest.raises(ReplayDiffers, match="writer 1 has written 1 rows, and they are 20 now"):
        KeptWriter().write(batch, [by_driver, by_task])
    assert written(kafka, batch.query) == before
    second = behind(batch)
    KeptWriter().write(second, parts_of(second)[1:])
    assert KeptWriter().write(second, parts_of(second)) == RECORDS
    assert written(kafka, batch.query) == before + once(second)


def test_a_driver_that_was_closed_opens_another_producer(batch: Batch, kafka: SharedKafka) -> None:
    writer, second = KeptWriter(), behind(batch)
    writer.write(batch, parts_of(batch))
    (first,) = producers_of(batch)
    writer.close()
    writer.write(second, parts_of(second))
    assert max(producers_of(batch)) > first
    assert written(kafka, batch.query) == once(batch, second)


def test_a_new_driver_ends_what_the_former_one_left_open(batch: Batch, kafka: SharedKafka) -> None:
    left = take_id(id_of(batch.query, DRIVER), batch.client)
    left.begin_transaction()
    left.produce(batch.query, b"never committed")
    left.flush()
    end_earlier(batch, WRITERS)
    with pytest.raises(KafkaException, match="fenced"):
        left.commit_transaction()
    assert kafka.clients.consume_all(batch.query) == []


def test_tasks_hand_over_a_bounded_sum() -> None:
    assert [handed_bytes_max(writers) for writers in (1, 4, 64, 1_024)] == [
        262_144,
        262_144,
        262_144,
        16_384,
    ]


def test_a_task_with_more_rows_writes_them_itself(batch: Batch, kafka: SharedKafka) -> None:
    size = len(part_of(batch, 0).packed)
    assert outcome_of(replace(batch, handed_bytes_max=size), 0).packed is not None
    assert kafka.clients.consume_all(batch.query) == []
    assert outcome_of(replace(batch, handed_bytes_max=size // 2), 0) == Outcome(RECORDS, 0)
    assert sum(written(kafka, batch.query).values()) == RECORDS
