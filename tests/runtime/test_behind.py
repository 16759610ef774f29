"""A changelog that ends before the group: state is made again where it can be, in silence."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaProducer
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from headrace.services.kafka.coordinator import OURS
from tests.kafka.clients import fresh_name
from tests.runtime.administration import administer
from tests.runtime.expected import (
    REORDER_AND_DEDUPLICATE,
    assert_cleaned,
    expected_of,
    some_records,
)
from tests.runtime.sidecar import MakePipeline, Pipeline, contents, record

TORN, REST = 200, 100


def tear(pipeline: Pipeline, begun: int) -> None:
    """Take the source on as a transaction did of which all is there but the changelog's part."""
    pipeline.produce(some_records(TORN, 2, start_ms=begun * 100))
    expected, cleaned = expected_of(pipeline), contents(pipeline.cleaned())
    assert expected[: len(cleaned)] == cleaned
    pipeline.clients.produce(pipeline.sink, (record(*one) for one in expected[len(cleaned) :]))
    asyncio.run(reach(pipeline, begun + TORN))


async def reach(pipeline: Pipeline, offset: int) -> None:
    """Commit an offset of the group, as a task does."""
    producer = AIOKafkaProducer(
        bootstrap_servers=pipeline.servers, transactional_id=fresh_name("torn")
    )
    async with producer, producer.transaction():
        told = {TopicPartition(pipeline.source, 0): OffsetAndMetadata(offset, OURS)}
        await producer.send_offsets_to_transaction(told, pipeline.name)


def assert_goes_on(pipeline: Pipeline, begun: int) -> None:
    """See that the next records come out as if nothing had happened."""
    pipeline.produce(some_records(REST, 3, start_ms=(begun + TORN) * 100))
    sidecar = pipeline.start()
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    assert f"from_offset={begun} to_offset={begun + TORN}" in sidecar.log
    assert_cleaned(pipeline)
    again = pipeline.start()
    again.wait_for("running")
    assert "nothing is emitted" not in again.log
    assert again.stop() == 0


def test_the_rest_of_a_torn_transaction_is_made_again_in_silence(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline(*REORDER_AND_DEDUPLICATE)
    pipeline.produce(some_records(200, 1))
    sidecar = pipeline.start()
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    tear(pipeline, 200)
    assert_goes_on(pipeline, 200)


def test_the_very_first_transaction_may_be_the_torn_one(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(*REORDER_AND_DEDUPLICATE)
    sidecar = pipeline.start()
    sidecar.wait_for("running")
    assert sidecar.stop() == 0
    changelog = f"{pipeline.name}-state-changelog"
    pipeline.clients.produce_aborted(changelog, [record(b"k", b"", 0)], fresh_name("torn"))
    tear(pipeline, 0)
    assert_goes_on(pipeline, 0)


def test_where_the_source_has_lost_them_that_is_said(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(*REORDER_AND_DEDUPLICATE)
    pipeline.produce(some_records(200, 1))
    sidecar = pipeline.start()
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    tear(pipeline, 200)
    administer(pipeline, lambda cluster: cluster.delete_records(pipeline.source, {0: 230}))
    sidecar = pipeline.start()
    assert sidecar.wait() == 4
    assert sidecar.last_words == (
        f"this pipeline has reached offset 400 of {pipeline.source}/0, its changelog ends with 200,"
        " and the source begins at 230 by now: the state between cannot be made again; bring the"
        " records back, or begin anew with `headrace reset`"
    )
