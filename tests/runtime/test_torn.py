"""No transaction is torn: whatever becomes of one of its requests, nothing is lost or doubled."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaProducer

from headrace.contracts.hops import transactional_prefix
from headrace.services.broker.embedded import EmbeddedBroker
from headrace.services.runtime.machine.folder import client_of
from headrace.services.runtime.output.shared_producers import PRODUCERS
from tests.kafka.fixtures import OwnKafka
from tests.runtime.expected import (
    REORDER_AND_DEDUPLICATE,
    assert_cleaned,
    some_records,
    stream,
    wait_until_all_move,
)
from tests.runtime.proxy import METADATA, OFFSET_COMMIT, How, Kind, Proxy, proxied
from tests.runtime.sidecar import MakePipeline, Pipeline, Sidecar

STRIKES = [
    # The next transaction is open, and nothing written; the cleaned records are, and not yet the
    # changelog; all but the offsets; all.
    (How.LATE, Kind.PRODUCE, 0),
    (How.LATE, Kind.PRODUCE, 1),
    (How.LATE, Kind.TXN_OFFSET_COMMIT, 0),
    (How.LATE, Kind.END_TXN, 0),
    (How.UNANSWERED, Kind.PRODUCE, 0),
    (How.LOST, Kind.PRODUCE, 0),
    (How.SLOW, Kind.PRODUCE, 0),
]


@pytest.fixture(scope="module")
def between(kafka_own_of_module: OwnKafka) -> Iterator[tuple[EmbeddedBroker, Proxy]]:
    with proxied(kafka_own_of_module) as made:
        yield made


MORE = pytest.mark.long("outages", why="each kind of request takes ten seconds")


@pytest.mark.parametrize(
    "kind", [one if one is Kind.END_TXN else pytest.param(one, marks=MORE) for one in Kind]
)
def test_no_record_is_lost_or_doubled_whatever_becomes_of_a_request(
    between: tuple[EmbeddedBroker, Proxy], make_pipeline: MakePipeline, kind: Kind
) -> None:
    broker, proxy = between
    pipeline = make_pipeline(*REORDER_AND_DEDUPLICATE, servers=broker.bootstrap_servers)
    sidecar = pipeline.start(bootstrap_servers=proxy.address)
    with stream(pipeline, 1):
        for how, before, passes in STRIKES:
            wait_until_all_move(pipeline, 1)
            strike = proxy.strike(kind, how, before, passes)
            if kind is Kind.INIT_PRODUCER_ID:
                assert sidecar.stop() == 0
                sidecar = pipeline.start(bootstrap_servers=proxy.address)
            strike.wait()
        wait_until_all_move(pipeline, 1)
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    assert_cleaned(pipeline)


def cleaning_behind(
    between: tuple[EmbeddedBroker, Proxy], make_pipeline: MakePipeline
) -> tuple[Pipeline, Sidecar]:
    """A sidecar that has cleaned some records behind the proxy, which has forgotten all others."""
    broker, proxy = between
    pipeline = make_pipeline(*REORDER_AND_DEDUPLICATE, servers=broker.bootstrap_servers)
    proxy.carried.clear()
    proxy.asked_for_all_topics = 0
    sidecar = pipeline.start(bootstrap_servers=proxy.address)
    pipeline.produce(some_records(100, 1))
    pipeline.wait_until_done()
    return pipeline, sidecar


def test_an_instance_that_is_fenced_writes_no_offset_outside_of_a_transaction(
    between: tuple[EmbeddedBroker, Proxy], make_pipeline: MakePipeline
) -> None:
    proxy = between[1]
    pipeline, sidecar = cleaning_behind(between, make_pipeline)
    asyncio.run(fence(pipeline))
    pipeline.produce(some_records(100, 2, start_ms=8_000))
    sidecar.wait_for("back to what is committed")
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    assert "took over" not in sidecar.log
    assert_cleaned(pipeline)
    assert Kind.TXN_OFFSET_COMMIT in proxy.carried
    assert OFFSET_COMMIT not in proxy.carried


def test_an_instance_asks_for_its_own_topics_alone(
    between: tuple[EmbeddedBroker, Proxy], make_pipeline: MakePipeline
) -> None:
    proxy = between[1]
    _, sidecar = cleaning_behind(between, make_pipeline)
    assert sidecar.stop() == 0
    assert METADATA in proxy.carried
    # A cluster may have a hundred thousand.
    assert proxy.asked_for_all_topics == 0


async def fence(pipeline: Pipeline) -> None:
    """Take every transactional id of an instance."""
    client = client_of(pipeline.folder_of().parents[1])
    prefix = transactional_prefix(pipeline.name, pipeline.spec.hops()[0])
    for number in range(PRODUCERS):
        async with AIOKafkaProducer(
            bootstrap_servers=pipeline.servers,
            transactional_id=f"{prefix}shared-{client.hex()}-{number}",
        ):
            pass
