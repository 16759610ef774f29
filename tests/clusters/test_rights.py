"""The rights that a user needs, no more than those, and the sentences about missing ones."""

from __future__ import annotations

import asyncio
import shlex
from concurrent.futures import ThreadPoolExecutor

import pytest
from aiokafka.errors import GroupAuthorizationFailedError
from aiokafka.structs import TopicPartition

from headrace.contracts.errors import KafkaRefused
from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.record import Record
from headrace.contracts.rights import Right, rights_of
from headrace.services.cli.acls import acl_lines
from headrace.services.kafka import seams
from headrace.services.kafka.coordinator import GroupConsumer
from headrace.services.kafka.security import consumer_options
from headrace.services.kafka.topics import prepare_topics
from headrace.services.settings import Settings
from tests.clusters.guarded import Guarded, guarded_broker, rule_of
from tests.kafka.clients import Clients, fresh_name
from tests.kafka.fixtures import OwnKafka
from tests.kafka.test_coordinator import Alone
from tests.kafka.tools import run_acls
from tests.runtime.administration import administer
from tests.runtime.sidecar import MakePipeline, Pipeline, record

OPERATORS = (
    "reorder: {grace: 1s, late: topic}",
    "deduplicate: {by: id, id: value.id, interval: 1h}",
    "aggregate: {function: count, window: {kind: tumbling, size: 10s, grace: 0s}}",
    "suppress: {until: window-closes}",
    "filter: {where: value > 0}",
)
"""Two hops, and every side topic."""
TOO_LATE = record(b"k0", b'{"id":1000}', 0)
POISON = record(b"k0", b'{"id":', 10_050)
SPEC = PipelineSpec.model_validate(
    {
        "pipeline": "guarded",
        "source": {"topic": "guarded.raw"},
        "operators": [
            {"reorder": {"grace": "1s", "late": "topic"}},
            {"deduplicate": {"by": "id", "id": "value.id", "interval": "1h"}},
        ],
        "sink": {"topic": "guarded.cleaned"},
    }
)
RIGHTS = rights_of(SPEC, exactly_once=True, decisions=True)
NEEDED = [right for right in RIGHTS if right.is_needed]
USERS = ("ada", "bob", "carol", "dora", "eve", "fay", "gus", "hal")


@pytest.fixture(scope="module")
def guarded(kafka_own_of_module: OwnKafka) -> Guarded:
    return guarded_broker(kafka_own_of_module, USERS)


def rights_in(pipeline: Pipeline, guarantee: str = "exactly-once") -> list[Right]:
    """All rights of a pipeline that writes decisions, too."""
    exactly_once = guarantee == "exactly-once"
    return rights_of(pipeline.spec, exactly_once=exactly_once, decisions=True)


def needed(rights: list[Right]) -> list[Right]:
    """Those that nothing works without."""
    return [right for right in rights if right.is_needed]


def some_records() -> list[Record]:
    """Twenty seconds of five keys, one that nobody can read, and one that comes too late."""
    in_time = [record(b"k%d" % (n % 5), b'{"id":%d}' % n, n * 100) for n in range(200)]
    return [*in_time[:101], POISON, *in_time[101:], TOO_LATE]


def assert_everything_works(pipeline: Pipeline) -> None:
    """The output for those records, in the cleaned topic and beside it."""
    assert [one.value for one in pipeline.cleaned()] == [(20).to_bytes(8)] * 5
    assert [one.value for one in pipeline.beside("late")] == [TOO_LATE.value]
    assert [one.value for one in pipeline.beside("dead")] == [POISON.value]
    assert pipeline.beside("decisions")
    assert pipeline.progress()


FEWER = pytest.mark.long("clusters", why="at least once needs fewer rights")


@pytest.mark.parametrize(
    ("guarantee", "user"),
    [("exactly-once", "fay"), pytest.param("at-least-once", "gus", marks=FEWER)],
)
def test_a_sidecar_runs_with_the_needed_rights_alone_once_its_topics_are_made(
    guarded: Guarded, make_pipeline: MakePipeline, guarantee: str, user: str
) -> None:
    pipeline = make_pipeline(*OPERATORS, servers=guarded.broker.plain_servers)
    guarded.grant(user, needed(rights_in(pipeline, guarantee)))
    login = guarded.login(user) | {"guarantee": guarantee, "decisions": "true"}
    refused = pipeline.start(**login)
    assert refused.wait() == 2, refused.log
    commands = [line for line in refused.log.splitlines() if line.startswith("kafka-topics.sh")]
    assert refused.log.splitlines()[-len(commands) - 1] == (
        f"the brokers do not let the user `{user}` make the topics that are missing; grant"
        " Create on them, or have an administrator make them:"
    )
    for command in commands:
        make_as_told(pipeline.clients, command)
    sidecar = pipeline.start(**login)
    pipeline.produce(some_records())
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    assert "DescribeConfigs" in sidecar.log
    assert_everything_works(pipeline)
    # Another machine reads all state from its changelogs.
    pipeline.lose_state()
    again = pipeline.start(**login)
    again.wait_for("running")
    pipeline.produce([record(b"k0", b'{"id":7}', 20_100)])
    pipeline.wait_until_done()
    assert again.stop() == 0


def test_a_group_that_cannot_be_asked_is_not_one_that_has_committed_nothing(
    guarded: Guarded,
) -> None:
    topic = fresh_name("stranger")
    Clients(guarded.broker.plain_servers).make_topic(topic, 1)

    async def committed() -> object:
        consumer = GroupConsumer(
            Alone(topic),
            asyncio.get_running_loop(),
            **consumer_options(guarded.settings("hal")),
            group_id=topic,
        )
        await consumer.start()
        try:
            # Its coordinator says no to every question about the group.
            seams.coordinator(consumer).coordinator_id = 1
            return await seams.committed(consumer, TopicPartition(topic, 0))
        finally:
            await consumer.stop()

    with pytest.raises(GroupAuthorizationFailedError):
        asyncio.run(committed())


def make_as_told(clients: Clients, command: str) -> None:
    """Make a topic as a line for `kafka-topics.sh` says."""
    tool, _, servers, create, _, topic, _, partitions, *words = shlex.split(command)
    assert (tool, create) == ("kafka-topics.sh", "--create")
    assert servers
    settings = dict(word.split("=", 1) for word in words if word != "--config")
    clients.make_topic(topic, int(partitions), settings)


def test_a_sidecar_with_all_rights_makes_checks_and_purges(
    guarded: Guarded, make_pipeline: MakePipeline
) -> None:
    pipeline = make_pipeline(*OPERATORS, servers=guarded.broker.plain_servers)
    guarded.grant("ada", rights_in(pipeline))
    sidecar = pipeline.start(**guarded.login("ada"), decisions="true")
    pipeline.produce(some_records())
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    assert "do not grant" not in sidecar.log
    assert_everything_works(pipeline)
    repartition = f"{pipeline.name}-deduplicate-repartition"
    (ends,) = administer(pipeline, lambda cluster: cluster.ends(repartition)).values()
    assert ends.first > 0, sidecar.log


@pytest.fixture(scope="module")
def prepared(guarded: Guarded) -> Guarded:
    """The topics of SPEC are there, and Bob has all rights in them that are needed."""
    servers = guarded.broker.plain_servers
    Clients(servers).make_topic(SPEC.source.topic, 2, {"retention.ms": "-1"})
    asyncio.run(prepare_topics(SPEC, Settings(bootstrap_servers=servers, decisions=True)))
    guarded.grant("bob", NEEDED)
    return guarded


def test_the_needed_rights_are_enough_to_begin(prepared: Guarded) -> None:
    told = asyncio.run(prepare_topics(SPEC, prepared.settings("bob", decisions=True)))
    assert told.made == []
    described, deleted = told.warnings
    assert described.startswith(
        "the brokers do not grant the user `bob` DescribeConfigs on `guarded.raw`, `guarded.c"
    )
    assert deleted == (
        "the brokers do not grant the user `bob` Delete on `guarded-state-changelog`,"
        " `guarded-deduplicate-repartition`, `guarded-deduplicate-changelog`: it stays, and these"
        " topics grow"
    )


@pytest.mark.parametrize("right", NEEDED, ids=lambda right: f"{right.operation} {right.name}")
def test_a_needed_right_that_is_missing_is_named(prepared: Guarded, right: Right) -> None:
    prepared.revoke("bob", [right])
    try:
        with pytest.raises(KafkaRefused) as caught:
            asyncio.run(prepare_topics(SPEC, prepared.settings("bob", decisions=True)))
    finally:
        prepared.grant("bob", [right])
    resource = right.resource.replace("-", " ")
    assert str(caught.value) == (
        f"the brokers do not grant the user `bob` {right.operation} on the {resource}"
        f" `{right.name}` ({right.why}); `headrace plan` with `--acls` prints all that is to be"
        " granted"
    )


def test_all_rights_that_are_missing_are_named_at_once(guarded: Guarded, prepared: Guarded) -> None:
    assert prepared is guarded
    with pytest.raises(KafkaRefused) as caught:
        asyncio.run(prepare_topics(SPEC, guarded.settings("eve", decisions=True)))
    lines = str(caught.value).splitlines()
    assert len(lines) == len({(right.resource, right.name) for right in NEEDED})
    assert "Write and Read on the topic `guarded.cleaned` (" in lines[1]


OTHER = pytest.mark.long("clusters", why="a right to write is taken away in the first test")


@pytest.mark.parametrize(
    "taken",
    [
        pytest.param(("Read", "topic", "{0.source}"), marks=OTHER),
        ("Write", "topic", "{0.sink}"),
        pytest.param(("Read", "group", "{0.name}"), marks=OTHER),
        pytest.param(("Write", "transactional-id", "{0.name}/{0.source}/*"), marks=OTHER),
    ],
    ids=" ".join,
)
def test_a_right_that_is_taken_away_ends_it_with_a_sentence(
    guarded: Guarded, make_pipeline: MakePipeline, taken: tuple[str, str, str]
) -> None:
    pipeline = make_pipeline("reorder: {grace: 1s}", servers=guarded.broker.plain_servers)
    rights = rights_in(pipeline)
    guarded.grant("carol", rights)
    sidecar = pipeline.start(**guarded.login("carol"))
    pipeline.produce(some_records()[:100])
    pipeline.wait_until_done()
    operation, resource, name = taken
    this = (operation, resource, name.format(pipeline))
    guarded.revoke("carol", [right for right in rights if right[:3] == this])
    pipeline.produce(some_records()[100:])
    assert sidecar.wait() == 2, sidecar.log
    assert "Traceback" not in sidecar.log
    assert sidecar.last_words.startswith("the brokers do not let the user `carol` go on (")
    guarded.grant("carol", rights)
    again = pipeline.start(**guarded.login("carol"))
    pipeline.wait_until_done()
    assert again.stop() == 0


@pytest.mark.long("clusters", why="it starts Kafka's own tool for each right")
def test_the_printed_lines_grant_what_they_say(guarded: Guarded) -> None:
    """Kafka's own tool reads them."""
    one_hop = SPEC.model_copy(update={"operators": SPEC.operators[:1]})
    rights = rights_of(one_hop, exactly_once=True, decisions=False)
    lines = [*acl_lines(rights, "User:dora", guarded.broker.plain_servers)]
    commands = [line.removeprefix("# ") for line in lines if "kafka-acls.sh" in line]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run_acls, commands))
    assert guarded.granted("dora") == {rule_of(right, "dora") for right in rights}
