"""A successor ends what is open where its partition writes, though its state names nobody."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaProducer

from headrace.contracts.hops import transactional_prefix
from headrace.services.kafka.cluster import connected
from headrace.services.settings import Settings
from tests.runtime.expected import (
    REORDER_AND_DEDUPLICATE,
    assert_cleaned,
    large_records,
    some_records,
)
from tests.runtime.sidecar import SHORT_SESSION, MakePipeline, Pipeline

FOR_EVER = "10m"
"""A transaction that nobody ends is open until the test has failed."""


def stranger(pipeline: Pipeline) -> AIOKafkaProducer:
    """A producer of an instance that is gone."""
    prefix = transactional_prefix(pipeline.name, pipeline.spec.hops()[0])
    return AIOKafkaProducer(
        bootstrap_servers=pipeline.servers,
        transactional_id=f"{prefix}shared-x-0",
        transaction_timeout_ms=600_000,
    )


def is_open(pipeline: Pipeline, topic: str) -> bool:
    """Whether a transaction stands open in a topic."""
    clients = pipeline.clients
    return clients.end_offsets(topic) != clients.end_offsets(topic, read_committed=True)


def test_a_successor_does_not_wait_for_an_owner_that_died_before_it_said_whose_it_is(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline(*REORDER_AND_DEDUPLICATE)
    changelog = pipeline.spec.hops()[0].changelog.name
    pipeline.produce(some_records(100, 1))
    one = pipeline.start("one", instance_id="")
    pipeline.wait_until_done()
    assert one.stop() == 0

    async def die() -> None:
        producer = stranger(pipeline)
        await producer.start()
        await producer.begin_transaction()
        await producer.send_and_wait(changelog, b"row", b"\x00stamp", partition=0)
        await producer.stop()

    asyncio.run(die())
    assert is_open(pipeline, changelog)
    two = pipeline.start("two")
    pipeline.produce(some_records(100, 2, start_ms=8_000))
    pipeline.wait_until_done()
    assert two.stop() == 0
    assert not is_open(pipeline, changelog)
    assert_cleaned(pipeline)


@pytest.mark.long("outages", why="it waits until a session is over, twice")
def test_an_instance_frozen_past_its_session_commits_nothing_that_was_open(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline(*REORDER_AND_DEDUPLICATE, partitions=2)
    pipeline.produce(some_records(100, 1, 2))
    # It has no successor that ends its producer: the group's word alone keeps it from committing.
    slow = {"transaction_timeout": FOR_EVER, "commit_interval": "8s", **SHORT_SESSION}
    frozen = pipeline.start("one", **slow)
    pipeline.wait_until_done()
    pipeline.produce(large_records(30, 2, start_ms=8_000))
    pipeline.wait_until(lambda: is_open(pipeline, pipeline.sink), "records that are not committed")
    committed = pipeline.committed()
    frozen.pause()
    pipeline.wait_until(lambda: not members(pipeline), "a group that counts it out")
    assert pipeline.committed() == committed
    frozen.resume()
    frozen.wait_for("the group goes on without us")
    pipeline.wait_until_done()
    assert frozen.stop() == 0
    assert_cleaned(pipeline)


def members(pipeline: Pipeline) -> int:
    """How many members the group has."""

    async def count() -> int:
        async with connected(Settings(bootstrap_servers=pipeline.servers)) as cluster:
            return len((await cluster.described(pipeline.name)).members)

    return asyncio.run(count())
