"""Topics that would grow for ever do not, and nothing that counts is lost by it."""

from __future__ import annotations

import asyncio
import shutil

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.structs import TopicPartition

from headrace.contracts.origin import read_times
from headrace.contracts.topics import changelog_topic, repartition_topic
from headrace.services.kafka.cluster import connected
from headrace.services.runtime.changelog.purge import Purges
from headrace.services.settings import Settings
from tests.kafka.clients import fresh_name
from tests.kafka.fixtures import SharedKafka
from tests.runtime.administration import administer
from tests.runtime.expected import assert_cleaned, some_records
from tests.runtime.sidecar import MakePipeline, Pipeline, record

REORDER = "reorder: {grace: 5s}"
DEDUPLICATE = "deduplicate: {by: key+id, id: header.id, interval: 20s}"
PARTS = 3
PART_MS = 12_000
"""The event time of 300 records of a stream."""
FIVE = [record(b"k", b"%d" % number, number) for number in range(5)]


def live_on(pipeline: Pipeline, step: int, **settings: str) -> str:
    """Live through the next parts of a stream, and stop; what it logged."""
    sidecar = pipeline.start(**settings)
    for part in range(PARTS * step, PARTS * (step + 1)):
        pipeline.produce(some_records(300, part, start_ms=part * PART_MS))
        pipeline.wait_until_done()
    assert sidecar.stop() == 0
    return sidecar.log


def first_offset(pipeline: Pipeline, topic: str, partition: int = 0) -> int:
    """Where a topic begins."""
    return administer(pipeline, lambda cluster: cluster.ends(topic))[partition].first


TWIN = pytest.mark.long("kill", why="both guarantees purge at one place")


@pytest.mark.parametrize("guarantee", ["exactly-once", pytest.param("at-least-once", marks=TWIN)])
def test_a_changelog_loses_its_beginning_and_its_state_goes_on_exactly(
    make_pipeline: MakePipeline, guarantee: str
) -> None:
    pipeline = make_pipeline(REORDER, DEDUPLICATE)
    changelog = changelog_topic(pipeline.name, "state").name
    live_on(pipeline, 0, guarantee=guarantee)
    old = pipeline.folder / "old"
    shutil.copytree(pipeline.folder_of(), old)
    live_on(pipeline, 1, guarantee=guarantee)
    first = first_offset(pipeline, changelog)
    assert first > 0
    # Only the rest of the changelog is left.
    pipeline.lose_state()
    log = live_on(pipeline, 2, guarantee=guarantee)
    assert f"it begins at offset {first}, and the state has reached 0" in log
    assert_cleaned(pipeline)
    # A machine comes back with state that has not seen what was deleted meanwhile.
    assert first_offset(pipeline, changelog) > first
    pipeline.lose_state()
    old.rename(pipeline.folder_of())
    log = live_on(pipeline, 3, guarantee=guarantee)
    assert "restored from where its changelog begins" in log
    assert_cleaned(pipeline)


def test_a_changelog_that_others_truncated_is_refused_until_it_is_back(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline(DEDUPLICATE)
    changelog = changelog_topic(pipeline.name, "state").name
    for step in range(2):
        live_on(pipeline, step)
    purged = first_offset(pipeline, changelog)
    assert purged > 0
    deleted = purged + 5
    administer(pipeline, lambda cluster: cluster.delete_records(changelog, {0: deleted}))
    pipeline.lose_state()
    for _ in range(2):
        sidecar = pipeline.start()
        assert sidecar.wait() == 4, sidecar.log
        assert sidecar.last_words == (
            f"the changelog {changelog}/0 was truncated or made anew: its records before offset"
            f" {deleted} are gone, and the state needs them from {purged}; bring the topic back, or"
            " begin anew with `headrace reset`"
        )


def test_a_repartition_topic_keeps_what_is_not_committed_alone(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline("deduplicate: {by: id, id: header.id, interval: 1h}", partitions=2)
    repartition = repartition_topic(pipeline.name, "deduplicate").name
    pipeline.produce(some_records(100, 1, partitions=2))
    sidecar = pipeline.start()
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    # A word of time may still come while it stops.
    left = pipeline.clients.consume_all(repartition)
    assert [one for one in left if read_times(one) is None] == []
    committed = pipeline.committed()
    ends = administer(pipeline, lambda cluster: cluster.ends(repartition))
    assert {number: place.first for number, place in ends.items()} == {
        number: committed[repartition, number] for number in (0, 1)
    }
    assert sum(place.first for place in ends.values()) >= 100
    # It goes on from there.
    pipeline.produce([record(b"k", b"new", 5_000, (("id", b"new"),))])
    sidecar = pipeline.start()
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    assert b"new" in {one.value for one in pipeline.cleaned()}


def test_a_topic_that_cannot_be_purged_holds_up_no_other_and_is_tried_again(
    kafka: SharedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.services.runtime.changelog.purge.EVERY_S", 0.05)
    # Brokers let nobody delete records of a topic that is compacted alone.
    refusing = kafka.clients.make_topic(fresh_name("a"), 1, {"cleanup.policy": "compact"})
    other = kafka.clients.make_topic(fresh_name("b"), 1, {"retention.ms": "-1"})
    for topic in (refusing, other):
        kafka.clients.produce(topic, FIVE)
    settings = Settings(bootstrap_servers=kafka.bootstrap_servers)

    async def gone(purges: Purges, topic: str) -> None:
        async with asyncio.timeout(30):
            while purges.is_waiting(TopicPartition(topic, 0)):  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.05)

    async def run() -> None:
        purges = Purges(settings)
        purges.let_go(TopicPartition(refusing, 0), 3)
        purges.let_go(TopicPartition(other, 0), 4)
        purging = asyncio.create_task(purges.keep_purging())
        await gone(purges, other)
        assert purges.is_waiting(TopicPartition(refusing, 0))
        async with connected(settings) as cluster:
            assert (await cluster.ends(refusing))[0].first == 0
            assert (await cluster.ends(other))[0].first == 4
            await allow_deletion(kafka.bootstrap_servers, refusing)
            await gone(purges, refusing)
            assert (await cluster.ends(refusing))[0].first == 3
        purging.cancel()

    asyncio.run(run())


def test_no_record_is_deleted_of_a_topic_that_was_made_anew(kafka: SharedKafka) -> None:
    topic = kafka.clients.make_topic(fresh_name("anew"), 1, {"retention.ms": "-1"})
    partition = TopicPartition(topic, 0)
    settings = Settings(bootstrap_servers=kafka.bootstrap_servers)
    purges = Purges(settings)

    async def let_go(offset: int, *, deletes: bool) -> None:
        async with connected(settings) as cluster:
            purges.opened({topic: await cluster.identity(topic)})
            purges.let_go(partition, offset)
            if deletes:
                await cluster.delete([topic])

    async def first_behind_a_purge() -> int:
        await purges.purge_last()
        async with connected(settings) as cluster:
            return (await cluster.ends(topic))[0].first

    asyncio.run(let_go(3, deletes=True))
    kafka.clients.make_topic(topic, 1, {"retention.ms": "-1"})
    kafka.clients.produce(topic, FIVE)
    assert asyncio.run(first_behind_a_purge()) == 0
    assert not purges.is_waiting(partition)
    # A task that has opened the new one lets go of its records as ever.
    asyncio.run(let_go(2, deletes=False))
    assert asyncio.run(first_behind_a_purge()) == 2


async def allow_deletion(servers: str, topic: str) -> None:
    """Do what an administrator does about it."""
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    policy = {"cleanup.policy": "compact,delete", "retention.ms": "-1"}
    await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, policy)])
    await admin.close()


def test_a_stop_does_not_wait_for_a_broker_that_is_gone(
    free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.services.runtime.changelog.purge._LAST_WITHIN_S", 0.2)
    purges = Purges(Settings(bootstrap_servers=f"127.0.0.1:{free_port}"))
    partition = TopicPartition("repartition", 0)
    purges.let_go(partition, 3)
    asyncio.run(purges.purge_last())
    assert purges.is_waiting(partition)
    # A request that was sent is not sent again.
    purges = Purges(Settings())
    purges.let_go(partition, 0)
    asyncio.run(purges.purge_last())
    assert not purges.is_waiting(partition)
