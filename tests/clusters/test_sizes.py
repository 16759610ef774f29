"""Topics that take little at once, or much, and records that are more than that."""

from __future__ import annotations

from hashlib import sha256
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from headrace.contracts.dead_letter import read_dead
from headrace.contracts.decision import Reason
from headrace.contracts.record import Record
from headrace.services.broker.embedded import EmbeddedBroker
from headrace.services.cli.replay_dead import replay_dead
from tests.kafka.fixtures import OwnKafka
from tests.runtime.sidecar import MakePipeline, Pipeline, contents, record

BEGUN_MS = 1_700_000_000_000
TAKES = "max.message.bytes"
AROUND_BYTES = 200
"""A batch, and a record in it."""
BY_KEY = "deduplicate: {by: key, interval: 1h}"
HELD = "reorder: {grace: 1h}"


@pytest.fixture(scope="module")
def broker(kafka_own_of_module: OwnKafka) -> EmbeddedBroker:
    return kafka_own_of_module(heap_mib=512)


def of_size(size_bytes: int, number: int = 0, *, at_ms: int = BEGUN_MS) -> Record:
    """A record that is packed into very little."""
    return record(b"%d" % number, bytes([number % 256]) * size_bytes, at_ms)


class Case(NamedTuple):
    """The size that all topics take, and the records that come."""

    takes_bytes: int
    value_bytes: int
    records: int
    operator: str = BY_KEY


BETWEEN = pytest.mark.long("clusters", why="smaller and larger sizes meet the same limits")
CASES = [
    Case(1_000, 1_000 - AROUND_BYTES, 50),
    pytest.param(Case(10_000, 3_000, 500), marks=BETWEEN),
    pytest.param(Case(300_000, 20_000, 100), marks=BETWEEN),
    pytest.param(Case(300_000, 300_000 - AROUND_BYTES, 3), marks=BETWEEN),
    pytest.param(Case(1_048_588, 100_000, 30), marks=BETWEEN),
    pytest.param(Case(5_000_000, 5_000_000 - AROUND_BYTES, 2), marks=BETWEEN),
    Case(20_000_000, 20_000_000 - AROUND_BYTES, 2),
]


@pytest.mark.parametrize("is_theirs", [False, True], ids=["made by us", "made by them"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_records_that_fit_into_the_source_come_out(
    broker: EmbeddedBroker, make_pipeline: MakePipeline, case: Case, *, is_theirs: bool
) -> None:
    pipeline = make_pipeline(
        case.operator, servers=broker.bootstrap_servers, raw={TAKES: str(case.takes_bytes)}
    )
    if is_theirs:
        # The rows about the state as a whole must fit into a changelog, too.
        make_topics(pipeline, max(case.takes_bytes, 4_000), outside=case.takes_bytes)
    written = [of_size(case.value_bytes, n) for n in range(case.records)]
    write(pipeline, written)
    sidecar = pipeline.start()
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    assert contents(pipeline.cleaned()) == contents(written)
    assert "TooLarge" not in sidecar.log


def make_topics(pipeline: Pipeline, takes_bytes: int, *, outside: int) -> None:
    """Make all topics before the pipeline does; those that others read take so much."""
    for topic in pipeline.spec.topics():
        takes = outside if topic.role in ("cleaned", "late") else takes_bytes
        settings = topic.settings() | {"retention.bytes": "-1", TAKES: str(takes)}
        pipeline.clients.make_topic(topic.name, settings=settings)


def write(pipeline: Pipeline, records: list[Record]) -> None:
    """Write records packed, so that they are small until they are read."""
    options: dict[str, str | int | float | bool] = {
        "bootstrap.servers": pipeline.servers,
        "enable.idempotence": True,  # or a batch that is sent again comes behind the next
        "compression.type": "zstd",
        "message.max.bytes": 64 << 20,
        "batch.size": 10_000,
    }
    producer = Producer(options)
    for one in records:
        producer.produce(
            pipeline.source, one.value, one.key, one.partition, timestamp=one.timestamp_ms
        )
    assert producer.flush(60) == 0


@pytest.mark.parametrize("operator", [BY_KEY, HELD])
def test_a_record_larger_when_unpacked_than_a_topic_takes_is_dead_and_the_rest_goes_on(
    broker: EmbeddedBroker, make_pipeline: MakePipeline, operator: str
) -> None:
    pipeline = make_pipeline(operator, servers=broker.bootstrap_servers, raw={TAKES: "50000"})
    small, large = [of_size(1_000, n) for n in (0, 1, 3, 4)], of_size(400_000, 2)
    # The held records are released when their time has come.
    last = of_size(10, 5, at_ms=BEGUN_MS + 3_600_000)
    write(pipeline, [*small[:2], large, *small[2:], last])
    sidecar = pipeline.start()
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    cleaned = contents(pipeline.cleaned())
    assert cleaned == contents(small if operator == HELD else [*small, last])
    (dead,) = pipeline.beside("dead")
    letter = read_dead(dead)
    assert letter is not None
    assert (letter.reason, letter.is_cut) == (Reason.TOO_LARGE, True)
    assert (letter.record.offset, letter.record.key) == (2, large.key)
    assert dead.value
    assert large.value is not None
    assert large.value.startswith(dead.value)
    said = dict(dead.headers)
    assert said["headrace.value.bytes"] == b"400000"
    assert said["headrace.value.sha256"] == sha256(large.value).hexdigest().encode()


def test_a_topic_that_takes_less_than_it_said_is_learnt_from_its_refusals(
    broker: EmbeddedBroker, make_pipeline: MakePipeline
) -> None:
    pipeline = make_pipeline(BY_KEY, servers=broker.bootstrap_servers)
    sidecar = pipeline.start()
    sidecar.wait_for("] running ")
    less = ConfigEntry(TAKES, "60000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, pipeline.sink, incremental_configs=[less])
    # It lives until the collector finds it, and would say meanwhile that the broker has gone.
    admin = AdminClient({"bootstrap.servers": pipeline.servers, "log_level": 0})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()
    small, large = [of_size(20_000, n) for n in range(100)], of_size(100_000, 100)
    pipeline.produce([*small[:50], large, *small[50:]])
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    assert contents(pipeline.cleaned()) == contents(small)
    (letter,) = (read_dead(one) for one in pipeline.beside("dead"))
    assert letter is not None
    assert (letter.reason, letter.is_cut) == (Reason.TOO_LARGE, False)
    assert letter.record.value == large.value


def test_letters_go_back_into_a_topic_that_takes_few_of_them_at_once(
    broker: EmbeddedBroker, make_pipeline: MakePipeline
) -> None:
    pipeline = make_pipeline(
        "deduplicate: {by: id, id: value.id, interval: 1h}",
        servers=broker.bootstrap_servers,
        raw={TAKES: "50000"},
    )
    broken = [of_size(20_000, n) for n in range(10)]
    write(pipeline, broken)
    sidecar = pipeline.start()
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    replay_dead(pipeline.file, yes=True, bootstrap_servers=pipeline.servers)
    back = pipeline.clients.consume_all(pipeline.source)[len(broken) :]
    assert [one.value for one in back] == [one.value for one in broken]
