"""Topics as other people have them: what is in one, who wrote it, how it is packed and kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from headrace.contracts.errors import PipelineInvalid
from headrace.contracts.record import Headers, Record
from headrace.services.broker.embedded import EmbeddedBroker
from headrace.services.cli.inspect import inspect
from headrace.services.cli.pipeline_file import load_pipeline
from headrace.services.cli.replay_dead import replay_dead
from tests.clusters.writers import CODECS, WRITERS, Manner, Target, Writer
from tests.kafka.clients import fresh_name
from tests.kafka.fixtures import OwnKafka
from tests.runtime.sidecar import MakePipeline, contents, record, wait_until

_QUICK = {
    "log.initial.task.delay.ms": "100",
    "log.cleaner.backoff.ms": "100",
    "log.retention.check.interval.ms": "100",
}
"""A broker looks for what can be deleted and compacted every few minutes."""
AS_IT_IS = "reorder: {grace: 0s}"
BEGUN_MS = 1_700_000_000_000
PACKED = tuple(codec for codec in CODECS if codec != "none")


@pytest.fixture(scope="module")
def broker(kafka_own_of_module: OwnKafka) -> EmbeddedBroker:
    return kafka_own_of_module(_QUICK)


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


class Case(NamedTuple):
    """A source as somebody keeps it."""

    settings: dict[str, str]
    written: list[list[Record]]
    """One batch after the other."""
    is_ready: Callable[[list[Record]], bool] = bool
    """Whether the broker has done to it what it is about to do."""
    times_are_brokers: bool = False


def _rounds(count: int) -> list[list[Record]]:
    """The same keys with new values again and again; every tenth is deleted in the end.

    A segment is closed by the time of records; only what is closed is compacted.
    """
    rounds = [
        [record(b"%d" % key, b"%d" % turn, BEGUN_MS + turn * 1_000) for key in range(100)]
        for turn in range(count)
    ]
    gone = [record(b"%d" % key, None, BEGUN_MS + count * 1_000) for key in range(0, 100, 10)]
    return [*rounds, gone]


def _large(count: int) -> list[list[Record]]:
    return [[record(b"%d" % n, bytes(100_000), BEGUN_MS + n)] for n in range(count)]


COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
}
CASES = {
    "times of the broker": Case(
        {"message.timestamp.type": "LogAppendTime"}, _rounds(1), times_are_brokers=True
    ),
    "compacted, with holes": Case(COMPACTED, _rounds(5), lambda left: len(left) < 300),
    "compacted and packed": Case(
        COMPACTED | {"compression.type": "zstd"}, _rounds(5), lambda left: len(left) < 300
    ),
    "the oldest deleted by size": Case(
        {"segment.bytes": str(1 << 20), "retention.bytes": str(2 << 20)},
        _large(60),
        lambda left: len(left) < 40,
    ),
}


SEPARATE = pytest.mark.long("clusters", why="'compacted, with holes' has what is new in it")
OTHERS = ("compacted and packed", "times of the broker")


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=SEPARATE) if one in OTHERS else one for one in CASES]
)
def test_all_that_a_source_keeps_comes_out_in_order(
    broker: EmbeddedBroker, make_pipeline: MakePipeline, name: str
) -> None:
    case = CASES[name]
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
