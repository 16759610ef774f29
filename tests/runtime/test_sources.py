"""Where reading begins, if somebody else moved offsets or deleted records meanwhile."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from headrace.contracts.dead_letter import read_dead
from headrace.contracts.decision import Reason
from headrace.contracts.record import Record
from tests.runtime.administration import administer
from tests.runtime.scraped import scraped
from tests.runtime.sidecar import MakePipeline, Pipeline, contents, record

REORDER = "reorder: {grace: 0s}"
LONGER_MS = 1_000
"""A fetch of the sidecar waits half as long for records, at most."""


def numbered(*numbers: int) -> list[object]:
    """Return what cleaned records with these numbers say."""
    return list(contents(records(*numbers)))


def records(*numbers: int) -> list[Record]:
    return [record(b"k", b"%d" % number, 1_000 + number) for number in numbers]


def move(pipeline: Pipeline, offset: int) -> None:
    """Set the group's offset, as Kafka's own tool does."""

    async def commit() -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=pipeline.servers, group_id=pipeline.name, enable_auto_commit=False
        )
        partition = TopicPartition(pipeline.source, 0)
        consumer.assign([partition])
        async with consumer:
            await consumer.commit({partition: OffsetAndMetadata(offset, "")})

    asyncio.run(commit())


async def fetch_in_vain(pipeline: Pipeline, offset: int) -> None:
    """Wait until the broker has answered all earlier fetches that wait for this offset."""
    client = AIOKafkaClient(bootstrap_servers=pipeline.servers)
    try:
        await client.bootstrap()
        await client.add_topic(pipeline.source)
        leader = client.cluster.leader_for_partition(TopicPartition(pipeline.source, 0))
        asked = [(pipeline.source, [(0, offset, 1)])]
        answer = await client.send(leader, FetchRequest(LONGER_MS, 1, 1, 0, asked))
    finally:
        await client.close()
    ((_, ((_, code, *_, data),)),) = answer.topics
    assert (code, data) == (0, b"")


def run(pipeline: Pipeline) -> str:
    """Run until everything is committed; what was logged."""
    # Without a name of its own it leaves the group, so that others may set its offsets.
    sidecar = pipeline.start(instance_id="")
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    return sidecar.log


def test_offsets_that_somebody_moved_ahead_are_followed(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(REORDER)
    pipeline.produce(records(*range(10)))
    move(pipeline, 7)
    run(pipeline)
    assert contents(pipeline.cleaned()) == numbered(7, 8, 9)
    pipeline.produce(records(10, 11, 12))
    move(pipeline, 12)
    assert "the group's offset is ahead of the state, and is followed" in run(pipeline)
    assert contents(pipeline.cleaned()) == numbered(7, 8, 9, 12)


def test_offsets_that_somebody_moved_back_make_nothing_twice(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(REORDER)
    pipeline.produce(records(0, 1, 2))
    run(pipeline)
    move(pipeline, 0)
    pipeline.produce(records(3))
    run(pipeline)
    assert contents(pipeline.cleaned()) == numbered(0, 1, 2, 3)


def test_records_that_were_deleted_unread_are_said_to_be_missing(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline(REORDER)
    pipeline.produce(records(0, 1, 2))
    run(pipeline)
    pipeline.produce(records(3, 4, 5, 6))
    administer(pipeline, lambda cluster: cluster.delete_records(pipeline.source, {0: 5}))
    log = run(pipeline)
    assert "records were deleted before they were read" in log
    assert "lost_offsets=2" in log
    assert contents(pipeline.cleaned()) == numbered(0, 1, 2, 5, 6)


def test_a_record_that_its_topic_does_not_take_is_dead_and_counted(
    make_pipeline: MakePipeline, free_port: int
) -> None:
    pipeline = make_pipeline(REORDER)
    pipeline.clients.make_topic(
        pipeline.sink,
        1,
        {"retention.ms": "-1", "retention.bytes": "-1", "max.message.bytes": "9000"},
    )
    large = record(b"k", b"x" * 20_000, 1_000)
    pipeline.produce([*records(0), large, *records(2)])
    sidecar = pipeline.start(http_port=str(free_port))
    pipeline.wait_until_done()
    counted = scraped(free_port, "headrace_unsent_dead_records_total")
    assert [count for labels, count in counted.items() if '"too-large"' in labels] == [1]
    assert sidecar.stop() == 0, sidecar.log
    assert "one larger record would be dead" in sidecar.log
    assert contents(pipeline.cleaned()) == numbered(0, 2)
    (letter,) = map(read_dead, pipeline.beside("dead"))
    assert letter is not None
    assert (letter.reason, letter.record.value) == (Reason.TOO_LARGE, large.value)


def test_records_that_are_deleted_under_a_running_sidecar_are_said_to_be_missing(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline(REORDER)
    pipeline.produce(records(0, 1, 2))
    sidecar = pipeline.start()
    pipeline.wait_until_done()
    sidecar.pause()
    # The broker still answers the fetch that is under way, and it must have found nothing.
    asyncio.run(fetch_in_vain(pipeline, 3))
    pipeline.produce(records(3, 4, 5, 6))
    administer(pipeline, lambda cluster: cluster.delete_records(pipeline.source, {0: 5}))
    sidecar.resume()
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    assert "records were deleted before they were read" in sidecar.log
    assert "lost_offsets=2" in sidecar.log
    assert contents(pipeline.cleaned()) == numbered(0, 1, 2, 5, 6)
