"""A stop is heard at once, whatever a sidecar is doing, and ends with exit code 0."""

from __future__ import annotations

import asyncio
import os

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition

from headrace.services.kafka import seams
from headrace.services.state.changelog import POSITION
from tests.kafka.clients import fresh_name
from tests.kafka.fixtures import OwnKafka, SharedKafka
from tests.runtime.sidecar import MakePipeline, record

HUNDRED_KB = 100_000
SOON_S = 60


SLOWLY = """
import time

from headrace.services.state.changelog import Restoration

take = Restoration.take


def take_slowly(*given):
    time.sleep(1)
    return take(*given)


def is_wanted(record):
    return True


Restoration.take = take_slowly
"""
"""However late the test hears that it is restored, it is not done by then."""


def test_a_stop_is_heard_while_a_large_state_is_restored(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline("reorder: {grace: 1h}", "filter: {where: 'of_user:is_wanted'}")
    (pipeline.folder / "of_user.py").write_text(SLOWLY)
    settings = {"cleanup.policy": "compact", "max.message.bytes": str(5 << 20)}
    changelog = pipeline.clients.make_topic(f"{pipeline.name}-state-changelog", 1, settings)
    row = os.urandom(HUNDRED_KB)
    rows = [record(b"\x07reorder\x01%08d" % number, row, 0) for number in range(600)]
    pipeline.clients.produce(changelog, [*rows, record(POSITION, b"\x00" * 16, 0)])
    sidecar = pipeline.start()
    sidecar.wait_for("partitions assigned")
    assert sidecar.stop(SOON_S) == 0
    assert "] running" not in sidecar.log, "it was restored before it was stopped"
    assert "Traceback" not in sidecar.log


@pytest.mark.long("outages", why="a group takes long to come together")
def test_a_stop_is_heard_while_it_waits_for_the_group(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline("reorder: {grace: 1h}")
    one = pipeline.start("one")
    one.wait_for("] running")
    # The instance that joins waits for the one that sleeps.
    one.pause()
    two = pipeline.start("two")
    two.wait_for("starting")
    # At the latest it is let in when the group gives the other one up.
    assert two.stop() == 0
    assert "Traceback" not in two.log
    one.resume()
    assert one.stop(SOON_S) == 0


def test_a_stop_is_heard_before_it_has_begun(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline("reorder: {grace: 1h}")
    sidecar = pipeline.start()
    sidecar.wait_for("topic made")
    assert sidecar.stop(SOON_S) in {0, -15}
    assert "Traceback" not in sidecar.log


@pytest.mark.long("outages", why="it waits for a broker that is away")
def test_a_stop_is_heard_while_the_broker_is_away(
    make_pipeline: MakePipeline, kafka_own: OwnKafka
) -> None:
    broker = kafka_own()
    pipeline = make_pipeline("reorder: {grace: 1h}", servers=broker.bootstrap_servers)
    sidecar = pipeline.start(shutdown_timeout="2s")
    sidecar.wait_for("] running")
    broker.kill()
    # Fetches fail and are tried again by then.
    sidecar.wait_for("Failed fetch messages")
    assert sidecar.stop(SOON_S) == 0
    assert "Traceback" not in sidecar.log


@pytest.mark.parametrize("turns", range(4))
def test_a_consumer_stops_while_it_lets_go_of_partitions(kafka: SharedKafka, turns: int) -> None:
    topic = kafka.clients.make_topic(fresh_name("silent"))

    async def run() -> None:
        consumer = await fetching(kafka, TopicPartition(topic, 0))
        consumer.unsubscribe()
        for _ in range(turns):
            await asyncio.sleep(0)
        await asyncio.wait_for(seams.stop(consumer), SOON_S)

    asyncio.run(run())


def test_a_consumer_stops_while_a_failed_fetch_waits(kafka: SharedKafka) -> None:
    topic = kafka.clients.make_topic(fresh_name("silent"))

    async def run() -> None:
        consumer = await fetching(kafka, TopicPartition(topic, 0))
        # aiokafka keeps it there with the others, and waits until it may be tried again.
        failed = asyncio.create_task(asyncio.sleep(SOON_S))
        consumer._fetcher._pending_tasks.add(failed)  # noqa: SLF001 - no broker fails on demand
        await asyncio.wait_for(seams.stop(consumer), SOON_S)

    asyncio.run(run())


async def fetching(kafka: SharedKafka, partition: TopicPartition) -> AIOKafkaConsumer:
    """A consumer that waits for what it asked the broker for."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers, fetch_max_wait_ms=SOON_S * 500
    )
    await consumer.start()
    consumer.assign([partition])
    consumer.seek(partition, 0)
    while not consumer._fetcher._pending_tasks:  # noqa: SLF001 - nobody else says that it asks
        await consumer.getmany(timeout_ms=1)
    return consumer
