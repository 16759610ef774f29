"""Topics as other people have them: what is in one, who wrote it, how it is packed and kept.

And how much one takes at once, and records that are more than that.
"""

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
from headrace.contracts.errors import PipelineInvalid
from headrace.contracts.record import Headers, Record
from headrace.services.broker.embedded import EmbeddedBroker
from headrace.services.cli.inspect import inspect
from headrace.services.cli.pipeline_file import load_pipeline
from headrace.services.cli.replay_dead import replay_dead
from tests.clusters.kept import BEGUN_MS, KEPT, QUICK
from tests.clusters.writers import CODECS, WRITERS, Manner, Target, Writer
from tests.kafka.clients import fresh_name
from tests.kafka.fixtures import OwnKafka
from tests.runtime.sidecar import MakePipeline, Pipeline, contents, record, wait_until

AS_IT_IS = "reorder: {grace: 0s}"
TAKES = "max.message.bytes"
AROUND_BYTES = 200
"""A batch, and a record in it."""
BY_KEY = "deduplicate: {by: key, interval: 1h}"
HELD = "reorder: {grace: 1h}"
PACKED = tuple(codec for codec in CODECS if codec != "none")


@pytest.fixture(scope="module")
def broker(kafka_own_of_module: OwnKafka) -> EmbeddedBroker:
    return kafka_own_of_module(QUICK, heap_mib=512)


def of_bytes(partition: int) -> list[Record]:
    """Records with all that a record may hold, and enough of them to be packed."""
    header: Headers = (("h", b"1"), ("h", None), ("", b""), ("ü", bytes(range(256))))
    odd: list[tuple[bytes | None, bytes | None, Headers]] = [
        (b"key", b"value", header),
        (None, b"no key", ()),
        (b"no value", None, ()),
        (None, None, header),
        (b"", b"", ()),
        (b"\xff\x00\t\n", bytes(range(256)), ()),
        (b"large", b"again and again " * 10_000, ()),
    ]
    usual = [(b"key %d" % n, b"value %d" % n, ()) for n in range(60)]
    return [
        record(key, value, BEGUN_MS + n, headers, partition)
        for n, (key, value, headers) in enumerate([*odd, *usual])
    ]


def of_text(partition: int) -> list[Record]:
    """Records that fit into lines: no empty keys and values, and a word of headers for all."""
    rows = [(b"key", None), (None, b"value"), *((b"%d" % n, b"value %d" % n) for n in range(300))]
    return [record(key, value, BEGUN_MS, (("by", b"hand"),), partition) for key, value in rows]


MORE = pytest.mark.long("clusters", why="librdkafka and kcat stand for the others")
USUAL = pytest.mark.long("clusters", why="lz4 and zstd are what brokers and users choose most")


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=MORE) if one in {"go", "java"} else one for one in WRITERS]
)
def test_records_of_other_producers_are_read_as_they_are(
    broker: EmbeddedBroker, make_pipeline: MakePipeline, name: str
) -> None:
    writer = WRITERS[name]
    manners = _manners(writer)
    records_of = of_bytes if writer.says_all else of_text
    told = {manner: records_of(partition) for partition, manner in enumerate(manners)}
    pipeline = make_pipeline(AS_IT_IS, partitions=len(manners), servers=broker.bootstrap_servers)
    writer.write(Target(pipeline.servers, pipeline.source), told)
    sidecar = pipeline.start()
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    cleaned = pipeline.cleaned()
    if not writer.says_all:
        # It wrote them at its own time; that of the source was kept, as the next line says.
        source = pipeline.clients.consume_all(pipeline.source)
        assert [one.timestamp_ms for one in cleaned] == [one.timestamp_ms for one in source]
        cleaned = [one._replace(timestamp_ms=BEGUN_MS) for one in cleaned]
    assert contents(cleaned) == contents([one for records in told.values() for one in records])


def _manners(writer: Writer) -> list[Manner]:
    """Each codec, and each kind."""
    of_codecs = [Manner(codec, "idempotent") for codec in CODECS]
    packed = {"plain": "lz4", "transactional": "zstd"}
    return of_codecs + [Manner(packed[kind], kind) for kind in writer.kinds if kind in packed]


@pytest.mark.parametrize(
    "codec",
    [one if one in {"lz4", "zstd"} else pytest.param(one, marks=USUAL) for one in PACKED],
)
def test_every_topic_of_a_pipeline_may_be_packed(
    broker: EmbeddedBroker,
    make_pipeline: MakePipeline,
    capsys: pytest.CaptureFixture[str],
    codec: str,
) -> None:
    pipeline = make_pipeline(
        "deduplicate: {by: id, id: value.id, interval: 1h}",
        servers=broker.bootstrap_servers,
        raw={"compression.type": codec},
    )
    for topic in pipeline.spec.topics():
        settings = topic.settings() | {"compression.type": codec}
        pipeline.clients.make_topic(topic.name, settings=settings | {"retention.bytes": "-1"})
    new = [record(b"k", b'{"id": %d}' % n, BEGUN_MS + n) for n in range(100)]
    broken = record(b"k", b'{"id":', BEGUN_MS)
    pipeline.produce([*new, broken])
    sidecar = pipeline.start()
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    assert contents(pipeline.cleaned()) == contents(new)
    assert len(pipeline.beside("dead")) == 1

    # Without its state it knows the duplicates from its changelog alone.
    for hop in pipeline.spec.hops():
        pipeline.lose_state(hop=hop.name)
    last = record(b"k", b'{"id": 100}', BEGUN_MS)
    pipeline.produce([*new, last])
    sidecar = pipeline.start()
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    assert contents(pipeline.cleaned()) == contents([*new, last])

    inspect(pipeline.file, bootstrap_servers=pipeline.servers, from_changelog=True)
    assert "101" in capsys.readouterr().out
    replay_dead(pipeline.file, yes=True, bootstrap_servers=pipeline.servers)
    back = pipeline.clients.consume_all(pipeline.source)[-1]
    assert (back.value, dict(back.headers)) == (broken.value, {"headrace.replays": b"1"})


SEPARATE = pytest.mark.long("clusters", why="'compacted, with holes' has what is new in it")
OTHERS = ("compacted and packed", "times of the broker")


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=SEPARATE) if one in OTHERS else one for one in KEPT]
)
def test_all_that_a_source_keeps_comes_out_in_order(
    broker: EmbeddedBroker, make_pipeline: MakePipeline, name: str
) -> None:
    case = KEPT[name]
    pipeline = make_pipeline(AS_IT_IS, servers=broker.bootstrap_servers, raw=case.settings)
    for batch in case.written:
        pipeline.produce(batch)

    wait_until(
        lambda: case.is_ready(pipeline.clients.consume_all(pipeline.source)),
        "work of the broker",
        [],
    )
    sidecar = pipeline.start()
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    # The broker may have gone on meanwhile.
    left = contents(pipeline.clients.consume_all(pipeline.source))
    cleaned = pipeline.cleaned()
    in_order = iter(contents(cleaned))
    assert all(one in in_order for one in left)
    assert left
    written = [one for batch in case.written for one in batch]
    if not case.times_are_brokers:
        assert set(contents(cleaned)) <= set(contents(written))
        assert contents(cleaned)[-1] == contents(written)[-1]

    sidecar = pipeline.start()
    pipeline.produce([record(b"more", b"and more", BEGUN_MS)])
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    assert len(pipeline.cleaned()) == len(cleaned) + 1


def test_names_may_be_as_long_as_kafka_has_them(
    broker: EmbeddedBroker, make_pipeline: MakePipeline
) -> None:
    pipeline = make_pipeline(AS_IT_IS, servers=broker.bootstrap_servers)
    long = fresh_name("x" * 240)
    pipeline.name, pipeline.source, pipeline.sink = long[-80:], long[-249:], long[-239:]
    pipeline.clients.make_topic(pipeline.source, settings={"retention.ms": "-1"})
    by_id = f"deduplicate: {{by: id, id: value.id, interval: 1h, name: {'n' * 80}}}"
    pipeline.write(by_id)
    new = [record(b"k", b'{"id": %d}' % n, BEGUN_MS) for n in range(10)]
    pipeline.produce([*new, *new])
    sidecar = pipeline.start(decisions="true")
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    assert contents(pipeline.cleaned()) == contents(new)

    pipeline.sink = "x" + pipeline.sink
    pipeline.write(by_id)
    with pytest.raises(PipelineInvalid, match=r"sink\.topic: .*239 characters"):
        load_pipeline(pipeline.file)


def test_a_name_that_meets_another_in_metrics_is_a_sentence(
    broker: EmbeddedBroker, make_pipeline: MakePipeline
) -> None:
    pipeline = make_pipeline(AS_IT_IS, servers=broker.bootstrap_servers)
    other = pipeline.clients.make_topic(pipeline.sink.replace(".", "_"))
    sidecar = pipeline.start()
    assert sidecar.wait() == 2
    assert sidecar.last_words.startswith(f"the brokers cannot make the topic `{pipeline.sink}`: ")
    assert "collides" in sidecar.last_words
    assert other in sidecar.last_words


MANY = pytest.mark.long("clusters", why="three hundred partitions")


@pytest.mark.parametrize("partitions", [1, pytest.param(300, marks=MANY)])
def test_a_source_may_have_few_partitions_or_many(
    broker: EmbeddedBroker, make_pipeline: MakePipeline, partitions: int
) -> None:
    pipeline = make_pipeline(
        "deduplicate: {by: key, interval: 1h}",
        partitions=partitions,
        servers=broker.bootstrap_servers,
    )
    written = [
        record(b"%d" % n, b"v", BEGUN_MS, (), partition)
        for partition in range(partitions)
        for n in (partition, partition + 1, partition)
    ]
    pipeline.produce(written)
    sidecar = pipeline.start()
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    # Each third is a duplicate, wherever it is.
    assert contents(pipeline.cleaned()) == contents(
        one for at, one in enumerate(written) if at % 3 < 2
    )


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
