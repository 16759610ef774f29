"""Instances come, go, stop and die: what stays does not notice, and nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocol
from aiokafka.errors import InconsistentGroupProtocolError

from headrace.contracts.errors import MemberForeign, TopicRefused
from headrace.services.cli.group import group
from headrace.services.group.view import Described
from headrace.services.kafka.cluster import connected
from headrace.services.settings import Settings
from tests.kafka.fixtures import OwnKafka
from tests.kafka.growing import grow
from tests.runtime.expected import (
    REORDER_AND_DEDUPLICATE,
    assert_cleaned,
    stream,
    wait_until_all_move,
)
from tests.runtime.sidecar import SHORT_SESSION, MakePipeline, Pipeline, Sidecar, wait_until

PARTITIONS = 4
_RUNNING = re.compile(r"\] running .*?partition=(\d+)")
_RELEASED = re.compile(r"partitions released .*?partitions=\[(.*?)\]")


def begun(sidecar: Sidecar) -> list[int]:
    """The partitions whose task began to run, each as often as it did."""
    return [int(number) for number in _RUNNING.findall(sidecar.log)]


def running(sidecar: Sidecar) -> set[int]:
    """The partitions whose task runs."""
    found: set[int] = set()
    for line in sidecar.log.splitlines():
        found |= {int(number) for number in _RUNNING.findall(line)}
        found -= {int(number) for names in _RELEASED.findall(line) for number in _NUMBER(names)}
    return found


_NUMBER = re.compile(r"/(\d+)").findall


def wait_until_they_run(counts: dict[Sidecar, int]) -> None:
    """Wait until so many tasks run in each."""
    wait_until(
        lambda: all(len(running(sidecar)) == count for sidecar, count in counts.items()),
        f"{list(counts.values())} tasks",
        counts,
    )


def tasks_of(sidecars: list[Sidecar]) -> int:
    """How many tasks run in all."""
    return sum(len(running(sidecar)) for sidecar in sidecars)


def test_an_instance_that_joins_learns_first_and_those_that_stay_do_not_notice(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline(*REORDER_AND_DEDUPLICATE, partitions=PARTITIONS)
    with stream(pipeline, PARTITIONS):
        # Even without transactions a planned move doubles nothing.
        settings = {"instance_id": "", "guarantee": "at-least-once"}
        one = pipeline.start("one", **settings)
        wait_until_they_run({one: PARTITIONS})
        wait_until_all_move(pipeline, PARTITIONS)
        two = pipeline.start("two", **settings)
        wait_until_they_run({one: 2, two: 2})
        assert "caught up; asking for a rebalance" in two.log
        assert len(begun(one)) == PARTITIONS, "a partition that stayed was opened again"
        assert running(one) | running(two) == set(range(PARTITIONS))
        wait_until_all_move(pipeline, PARTITIONS)
        assert two.stop() == 0
        wait_until_they_run({one: PARTITIONS})
        assert len(begun(one)) == PARTITIONS + 2
        wait_until_all_move(pipeline, PARTITIONS)
    pipeline.wait_until_done()
    assert one.stop() == 0
    assert_cleaned(pipeline)


def test_a_standby_takes_over_from_the_dead_and_from_the_frozen(
    make_pipeline: MakePipeline,
) -> None:
    """Three instances, two partitions, a copy of each: killed, and stopped until it is a zombie."""
    pipeline = make_pipeline(*REORDER_AND_DEDUPLICATE, partitions=2)
    # A copy too many is given up in a later round, and nothing else asks for one here.
    settings = {"instance_id": "", "standbys": "1", "probing_interval": "2s"}
    with stream(pipeline, 2):
        one, two, three = (
            pipeline.start(name, **SHORT_SESSION, **settings) for name in ("one", "two", "three")
        )
        everybody = [one, two, three]
        wait_until(lambda: tasks_of(everybody) == 2, "both tasks", everybody)
        wait_until_all_move(pipeline, 2)
        wait_until(lambda: _is_settled(pipeline), "a copy of each", everybody)
        _assert_that_the_group_is_shown(pipeline)
        killed = next(sidecar for sidecar in everybody if running(sidecar))
        left = [sidecar for sidecar in (one, two, three) if sidecar is not killed]
        killed.kill()
        wait_until(lambda: tasks_of(left) == 2, "both tasks again", left)
        wait_until_all_move(pipeline, 2)
        frozen = next(sidecar for sidecar in left if running(sidecar))
        (other,) = (sidecar for sidecar in left if sidecar is not frozen)
        frozen.pause()
        wait_until_they_run({other: 2})
        frozen.resume()
        frozen.wait_for("the group goes on without us")
        wait_until_they_run({other: 1, frozen: 1})
        wait_until_all_move(pipeline, 2)
    pipeline.wait_until_done()
    assert [sidecar.stop() for sidecar in left] == [0, 0]
    assert_cleaned(pipeline)


def _shown(pipeline: Pipeline) -> dict[str, Any]:
    with redirect_stdout(out := StringIO()):
        group(pipeline.file, as_json_=True, bootstrap_servers=pipeline.servers)
    shown: dict[str, Any] = json.loads(out.getvalue())
    return shown


def _is_settled(pipeline: Pipeline) -> bool:
    """Whether both tasks have an owner and a copy, and nobody is on his way to either."""
    shown = _shown(pipeline)
    roles = sorted(
        (task["partition"], task["role"]) for m in shown["members"] for task in m["tasks"]
    )
    everything = [(0, "active"), (0, "standby"), (1, "active"), (1, "standby")]
    return shown["state"] == "Stable" and roles == everything


def _assert_that_the_group_is_shown(pipeline: Pipeline) -> None:
    """By `headrace group`, and to whoever knows no more than Kafka's own protocol."""
    shown = _shown(pipeline)
    assert len(shown["members"]) == 3
    assert shown["reasons"]
    with redirect_stdout(out := StringIO()):
        group(pipeline.file, bootstrap_servers=pipeline.servers)
    assert "last rebalance: 20" in out.getvalue()
    assert out.getvalue().count("standby") == 2
    tasks = [task for member in shown["members"] for task in member["tasks"]]
    assert all(task["lag"] >= 0 for task in tasks if task["role"] == "active")
    assert all(member["name"] in out.getvalue() for member in shown["members"])
    described = asyncio.run(_described(pipeline))
    owned = [ConsumerProtocol.ASSIGNMENT.decode(one.told).partitions() for one in described]
    assert sorted(partition for one in owned for _, partition in one) == [0, 1]


async def _described(pipeline: Pipeline) -> list[Described]:
    async with connected(Settings(bootstrap_servers=pipeline.servers)) as cluster:
        return (await cluster.described(pipeline.name)).members


def test_a_named_instance_that_is_restarted_moves_nothing(make_pipeline: MakePipeline) -> None:
    """A rolling bounce, one after the other."""
    pipeline = make_pipeline(*REORDER_AND_DEDUPLICATE, partitions=PARTITIONS)
    with stream(pipeline, PARTITIONS):
        instances = {name: pipeline.start(name) for name in ("one", "two")}
        wait_until_they_run(dict.fromkeys(instances.values(), 2))
        wait_until_all_move(pipeline, PARTITIONS)
        for name in ("one", "two"):
            (other,) = (sidecar for of, sidecar in instances.items() if of != name)
            before, had = begun(other), running(instances[name])
            assert instances[name].stop() == 0
            again = instances[name] = pipeline.start(name)
            wait_until_they_run({again: 2})
            wait_until_all_move(pipeline, PARTITIONS)
            assert running(again) == had
            assert "copies found on the disk" in again.log
            assert begun(other) == before
    pipeline.wait_until_done()
    assert [sidecar.stop() for sidecar in instances.values()] == [0, 0]
    assert_cleaned(pipeline)


def test_one_that_is_slow_to_give_up_holds_up_only_what_it_gives_up(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline(*REORDER_AND_DEDUPLICATE, partitions=6)
    with stream(pipeline, 6):
        one = pipeline.start("one", instance_id="")
        two = pipeline.start("two", instance_id="")
        wait_until_they_run({one: 3, two: 3})
        three = pipeline.start("three", instance_id="")
        three.wait_for("caught up")
        one.pause()
        kept = sorted(running(two))[:2]
        _wait_until_these_move(pipeline, kept)
        _wait_until_these_move(pipeline, kept)
        one.resume()
        wait_until_they_run({one: 2, two: 2, three: 2})
        assert "goes on without us" not in one.log
        wait_until_all_move(pipeline, 6)
    pipeline.wait_until_done()
    assert [sidecar.stop() for sidecar in (one, two, three)] == [0, 0, 0]
    assert_cleaned(pipeline)


def _wait_until_these_move(pipeline: Pipeline, partitions: list[int]) -> None:
    before = pipeline.committed()
    pipeline.wait_until_committed(
        {(pipeline.source, number): before[pipeline.source, number] + 1 for number in partitions}
    )


def test_another_program_in_the_group_is_refused(make_pipeline: MakePipeline) -> None:
    """The program that came first stays; an older headrace, with its eager protocol, is another."""
    pipeline = make_pipeline("deduplicate: {by: key, interval: 10m}")
    refused = asyncio.run(_in_the_group_of(pipeline, lambda: pipeline.start().wait()))
    assert refused == MemberForeign.exit_code
    assert "share out partitions in another way" in pipeline.sidecars[0].last_words
    sidecar = pipeline.start("two")
    sidecar.wait_for("] running")
    with pytest.raises(InconsistentGroupProtocolError):
        asyncio.run(_in_the_group_of(pipeline, lambda: 0))
    assert sidecar.stop() == 0


async def _in_the_group_of(pipeline: Pipeline, act: Callable[[], int]) -> int:
    """Do something while a consumer of another program is in a pipeline's group."""
    consumer = AIOKafkaConsumer(
        pipeline.source,
        bootstrap_servers=pipeline.servers,
        group_id=pipeline.name,
        partition_assignment_strategy=[StickyPartitionAssignor],
    )
    try:
        await consumer.start()
        return await asyncio.to_thread(act)
    finally:
        await consumer.stop()


@pytest.mark.long("outages", why="a coordinator dies, and the group takes long to find another")
def test_the_group_outlives_its_coordinator_and_ends_when_keys_have_moved(
    make_pipeline: MakePipeline, kafka_own: OwnKafka
) -> None:
    """Three brokers: the one that coordinates the group dies, and comes back to a wider source."""
    kafka = kafka_own(brokers=3)
    pipeline = make_pipeline(
        *REORDER_AND_DEDUPLICATE, partitions=2, servers=kafka.bootstrap_servers
    )
    with stream(pipeline, 2):
        instances = [pipeline.start(name, instance_id="") for name in ("one", "two")]
        wait_until_they_run(dict.fromkeys(instances, 1))
        dead = kafka.brokers[asyncio.run(_coordinator(pipeline)) - 1]
        dead.kill()
        wait_until_all_move(pipeline, 2)
        assert not any("goes on without us" in one.log for one in instances)
        dead.start()
    pipeline.wait_until_done()
    assert_cleaned(pipeline)
    asyncio.run(grow(pipeline.servers, [pipeline.source], 3))
    # Clients look at topics anew when a connection breaks, and else every few minutes.
    kafka.brokers[asyncio.run(_coordinator(pipeline)) - 1].kill()
    assert [one.wait() for one in instances] == [TopicRefused.exit_code] * 2
    assert all("had 2 partitions" in one.last_words for one in instances)


async def _coordinator(pipeline: Pipeline) -> int:
    admin = AIOKafkaAdminClient(bootstrap_servers=pipeline.servers)
    await admin.start()
    try:
        number: int = await admin.find_coordinator(pipeline.name)
    finally:
        await admin.close()
    return number
