"""Topics of a pipeline on a real broker: made where missing, checked where not, refused in time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from headrace.contracts.errors import TopicRefused
from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.record import Record
from headrace.contracts.topic_rules import Setting
from headrace.services.kafka.cluster import Ends, connected
from headrace.services.kafka.topics import PreparedTopics, prepare_topics
from headrace.services.settings import Settings
from tests.kafka.clients import fresh_name
from tests.kafka.fixtures import OwnKafka, SharedKafka

FOREVER = {"retention.ms": "-1"}
UNBOUNDED = str((1 << 63) - 1)


def _spec(
    name: str, *operators: Mapping[str, object], max_future: str | None = None
) -> PipelineSpec:
    future = {} if max_future is None else {"max-future": max_future}
    return PipelineSpec.model_validate(
        {
            "pipeline": name,
            "source": {"topic": f"{name}.raw", **future},
            "operators": list(operators) or [{"reorder": {"grace": "30s", "late": "topic"}}],
            "sink": {"topic": f"{name}.cleaned"},
        }
    )


TWO_HOPS = (
    {"reorder": {"grace": "30s"}},
    {"deduplicate": {"by": "id", "id": "key", "interval": "1h"}},
)


def _prepare(kafka: SharedKafka, spec: PipelineSpec, *, decisions: bool = False) -> PreparedTopics:
    settings = Settings(bootstrap_servers=kafka.bootstrap_servers, decisions=decisions)
    return asyncio.run(prepare_topics(spec, settings))


def _settings_of(kafka: SharedKafka, topic: str) -> dict[str, Setting]:
    async def ask() -> dict[str, Setting]:
        async with connected(Settings(bootstrap_servers=kafka.bootstrap_servers)) as cluster:
            return (await cluster.settings([topic]))[topic]

    return asyncio.run(ask())


def _refusal(kafka: SharedKafka, spec: PipelineSpec) -> list[str]:
    before = kafka.clients.topics()
    with pytest.raises(TopicRefused) as caught:
        _prepare(kafka, spec)
    own = {topic for topic in kafka.clients.topics() - before if topic.startswith(spec.pipeline)}
    assert own == set()
    return str(caught.value).splitlines()


def test_a_missing_source_is_one_sentence(kafka: SharedKafka) -> None:
    name = fresh_name("missing")
    (line,) = _refusal(kafka, _spec(name))
    assert line == (
        f"the source `{name}.raw` does not exist; make it with as many partitions as the load"
        " needs, or correct `source.topic`"
    )


USUAL = {
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
    "retention.bytes": "-1",
}
"""Topics of the odd broker that are told this have nothing odd but its week."""


@pytest.fixture(scope="module")
def odd(kafka_own_of_module: OwnKafka) -> SharedKafka:
    """A broker whose defaults are not what any topic of a pipeline needs."""
    broker = kafka_own_of_module(
        {
            "auto.create.topics.enable": "true",
            # A week, as Kafka keeps records by itself.
            "log.retention.ms": "604800000",
            "log.retention.bytes": "1000000",
            "log.message.timestamp.type": "LogAppendTime",
            "log.cleanup.policy": "compact",
        }
    )
    return SharedKafka(broker.bootstrap_servers)


def test_a_missing_source_is_not_made_by_asking_for_it(odd: SharedKafka) -> None:
    settings, before = Settings(bootstrap_servers=odd.bootstrap_servers), odd.clients.topics()
    # A topic that the first time made would be there the second time.
    for _ in range(3):
        with pytest.raises(TopicRefused, match=r"the source `eager\.raw` does not exist"):
            asyncio.run(prepare_topics(_spec("eager"), settings))
    assert odd.clients.topics() == before


def test_missing_topics_are_made_with_the_partitions_of_the_source(kafka: SharedKafka) -> None:
    name = fresh_name("made")
    kafka.clients.make_topic(f"{name}.raw", 3, FOREVER)
    spec = _spec(name)
    done = _prepare(kafka, spec, decisions=True)
    decisions = f"{name}.cleaned.decisions"
    assert done.made == [*(topic.name for topic in spec.topics()), decisions]
    assert done.partitions == dict.fromkeys([f"{name}.raw", *done.made], 3)
    assert done.warnings == []
    assert _prepare(kafka, spec, decisions=True) == done._replace(made=[])


def test_made_topics_keep_event_time_whatever_the_brokers_defaults_are(odd: SharedKafka) -> None:
    kafka = odd
    settings = {"cleanup.policy": "delete", "max.message.bytes": "3000000"}
    kafka.clients.make_topic("strict.raw", 2, settings | {"message.timestamp.type": "CreateTime"})
    spec = _spec("strict", *TWO_HOPS)
    done = _prepare(kafka, spec)
    assert len(done.made) == len(spec.topics()) == 6
    for topic in spec.topics():
        found = _settings_of(kafka, topic.name)
        assert {name: found[name].value for name in topic.settings()} == topic.settings()
        assert found["max.message.bytes"] == Setting(str(3_000_000 + (64 << 10)), chosen=True)
        if "delete" in topic.cleanup_policy:
            assert found["retention.bytes"] == Setting("-1", chosen=True)
    # The topics that it made itself are good; the source is the only one to warn about.
    assert [line.split("`")[1] for line in _prepare(kafka, spec).warnings] == ["strict.raw"] * 2


def test_behind_a_repartition_its_partitions_count(kafka: SharedKafka) -> None:
    name = fresh_name("hops")
    kafka.clients.make_topic(f"{name}.raw", 2, FOREVER)
    spec = _spec(name, *TWO_HOPS)
    first, second = spec.hops()
    assert first.end is not None
    kafka.clients.make_topic(first.end.topic.name, 5, first.end.topic.settings())
    done = _prepare(kafka, spec)
    assert done.partitions == {
        f"{name}.raw": 2,
        first.changelog.name: 2,
        first.end.topic.name: 5,
        second.changelog.name: 5,
        f"{name}.cleaned": 5,
        f"{name}.cleaned.progress": 5,
        f"{name}.cleaned.dead": 5,
    }


def test_partitions_that_do_not_match_are_refused_before_anything_is_made(
    kafka: SharedKafka,
) -> None:
    name = fresh_name("counts")
    spec = _spec(name)
    kafka.clients.make_topic(f"{name}.raw", 3, FOREVER)
    kafka.clients.make_topic(f"{name}.cleaned", 2, FOREVER)
    kafka.clients.make_topic(f"{name}.cleaned.late", 1, FOREVER)
    kafka.clients.make_topic(f"{name}.cleaned.dead", 4, FOREVER)
    changelog = spec.hops()[0].changelog
    kafka.clients.make_topic(changelog.name, 4, changelog.settings())
    needs = f"and needs 3 to go with `{name}.raw`;"
    anew, reset = "or make this one anew with 3", "stop all instances and run `headrace reset`"
    assert _refusal(kafka, spec) == [
        f"`{name}.cleaned` has 2 partitions, {needs} name another topic in `sink`, {anew}",
        f"`{name}.cleaned.late` has 1 partition, {needs} name another topic in `late`, {anew}",
        f"`{changelog.name}` has 4 partitions, {needs} {reset}, which begins from the source again",
    ]


def test_a_topic_that_would_lose_records_is_refused_and_one_that_was_meant_to_is_not(
    odd: SharedKafka,
) -> None:
    kafka, name = odd, fresh_name("kept")
    spec = _spec(name)
    changelog = spec.hops()[0].changelog
    kafka.clients.make_topic(f"{name}.raw", 1, USUAL | FOREVER)
    kafka.clients.make_topic(f"{name}.cleaned", 1, USUAL)
    kafka.clients.make_topic(f"{name}.cleaned.late", 1, USUAL | {"retention.ms": "86400000"})
    kafka.clients.make_topic(
        f"{name}.cleaned.dead", 1, USUAL | FOREVER | {"message.timestamp.type": "LogAppendTime"}
    )
    kafka.clients.make_topic(changelog.name, 1, USUAL | {"retention.ms": "86400000"})
    cleaned, dead, kept = _refusal(kafka, spec)
    assert cleaned == (
        f"`{name}.cleaned` deletes records older than 1w by their timestamps, which is the brokers'"
        " default, and event time may be old, so age deletes nothing; delete by size, or by hand;"
        " set its retention.ms to -1, or to what is meant, or accept it"
        " (HEADRACE_ACCEPT_RETENTION=true; in a Spark job `accept-retention: true`)"
    )
    assert dead == (
        f"`{name}.cleaned.dead` replaces the records' own timestamps by the brokers' time;"
        " set its message.timestamp.type to CreateTime"
    )
    assert kept == (
        f"`{changelog.name}` deletes records older than 1d by their timestamps, and the newest row"
        " of each key is the state; age deletes none of it; set its retention.ms to -1"
    )


def test_settings_that_somebody_chose_are_warned_about(odd: SharedKafka) -> None:
    kafka, name = odd, fresh_name("asked")
    spec = _spec(name, {"reorder": {"grace": "30s"}})
    changelog = spec.hops()[0].changelog
    compacted = USUAL | {"cleanup.policy": "compact", "message.timestamp.after.max.ms": UNBOUNDED}
    kafka.clients.make_topic(f"{name}.raw", 1, USUAL)
    kafka.clients.make_topic(f"{name}.cleaned", 1, compacted | {"max.message.bytes": "100000"})
    # Kafka's own default since 4.0.
    an_hour = {"message.timestamp.after.max.ms": "3600000"}
    kafka.clients.make_topic(f"{name}.cleaned.dead", 1, USUAL | FOREVER | an_hour)
    kafka.clients.make_topic(changelog.name, 1, USUAL | FOREVER)
    source, cleaned, large, dead, grows = _prepare(kafka, spec).warnings
    assert source.startswith(f"the source `{name}.raw` deletes records older than 1w")
    assert cleaned.startswith(f"`{name}.cleaned` is compacted: of records with the same key only")
    assert large.startswith(f"`{name}.cleaned` takes up to 100000 bytes at once, and the source")
    assert dead.startswith(f"`{name}.cleaned.dead` refuses timestamps more than 1h ahead of")
    assert grows.startswith(f"`{changelog.name}` is not compacted: it grows for ever")


def test_two_instances_may_make_the_topics_at_once(kafka: SharedKafka) -> None:
    name = fresh_name("race")
    kafka.clients.make_topic(f"{name}.raw", 2, FOREVER)
    spec, settings = _spec(name), Settings(bootstrap_servers=kafka.bootstrap_servers)

    async def race() -> list[PreparedTopics]:
        return await asyncio.gather(*(prepare_topics(spec, settings) for _ in range(4)))

    assert [one.partitions for one in asyncio.run(race())] == [
        dict.fromkeys([f"{name}.raw", *(topic.name for topic in spec.topics())], 2)
    ] * 4


def test_topics_that_brokers_cannot_make_are_told_in_their_words(kafka: SharedKafka) -> None:
    name = fresh_name("replicas")
    kafka.clients.make_topic(f"{name}.raw", 1, FOREVER)
    settings = Settings(bootstrap_servers=kafka.bootstrap_servers, replication_factor=3)
    with pytest.raises(TopicRefused, match=rf"cannot make the topic `{name}\.cleaned`: .*factor"):
        asyncio.run(prepare_topics(_spec(name), settings))


def test_records_behind_an_offset_can_be_deleted(kafka: SharedKafka) -> None:
    topic = kafka.clients.make_topic(fresh_name("purged"), 3)
    records = [Record(None, b"%d" % n, n, (), topic, n % 3, None) for n in range(30)]
    kafka.clients.produce(topic, records)

    async def purge() -> dict[int, Ends]:
        async with connected(Settings(bootstrap_servers=kafka.bootstrap_servers)) as cluster:
            await cluster.delete_records(topic, {0: 4, 2: 10})
            await cluster.delete_records(topic, {0: 2})
            await cluster.delete_records(topic, {})
            return await cluster.ends(topic)

    assert asyncio.run(purge()) == {0: Ends(4, 10), 1: Ends(0, 10), 2: Ends(10, 10)}
    assert [record.partition for record in kafka.clients.consume_all(topic)] == [0] * 6 + [1] * 10
