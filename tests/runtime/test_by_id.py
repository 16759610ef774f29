"""`by: id`: equal ids meet, whatever their partitions and keys."""

from __future__ import annotations

from headrace.contracts.dead_letter import read_dead
from headrace.contracts.progress import read_cleaned_by
from headrace.contracts.record import Record
from headrace.contracts.topics import repartition_topic
from tests.runtime.administration import settings_of
from tests.runtime.sidecar import Content, MakePipeline, Pipeline, contents, record

HOUR_MS = 3_600_000
PARTITIONS = 2
PARTITION_OF_ID = {b"1": 1, b"2": 0, b"3": 1}
"""As Kafka's own partitioner says."""


def of_id(key: bytes | None, identity: bytes, at_ms: int, partition: int) -> Record:
    """A record with an id, and with headers that must survive the detour."""
    return record(key, b'{"id":%s}' % identity, at_ms, (("h", None), ("h", b"")), partition)


POISON = record(b"k4", b'{"id":', 3_000, (("h", b"1"),), 1)
WITHOUT_ID = [record(b"k3", None, 2_000, (), 0), record(None, b"{}", 2_500, (), 1)]
NEW = [of_id(b"k1", b"1", 1_000, 0), of_id(b"k2", b"2", 1_500, 1)]
ALSO_NEW = of_id(b"k1", b"3", 1_700, 0)
DUPLICATES = [of_id(b"k5", b"1", 1_100, 1), of_id(None, b"2", 1_600, 0)]
A_LATER_DUPLICATE = of_id(b"k1", b"1", HOUR_MS + 1_000, 1)
NEW_AGAIN = of_id(b"k1", b"1", HOUR_MS + 1_001, 1)


def spread(identity: bytes, one: Record) -> Record:
    """The same record where its id leads it."""
    return one._replace(partition=PARTITION_OF_ID[identity])


def test_an_id_passes_once_over_all_partitions_and_keys(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(
        "deduplicate: {by: id, id: value.id, interval: 1h}", partitions=PARTITIONS
    )
    for part in (
        [NEW[0], WITHOUT_ID[0], NEW[1], WITHOUT_ID[1], POISON],
        [*DUPLICATES, ALSO_NEW],
        [A_LATER_DUPLICATE, NEW_AGAIN],
    ):
        pipeline.produce(part)
        # Two processes: the hops of one partition need not be run by the same.
        if not pipeline.sidecars:
            pipeline.start("one")
            pipeline.start("two")
        pipeline.wait_until_done()
    expected = [
        *[spread(b"1", NEW[0]), spread(b"2", NEW[1]), *WITHOUT_ID],
        *[spread(b"3", ALSO_NEW), spread(b"1", NEW_AGAIN)],
    ]
    assert by_time(pipeline.cleaned()) == by_time(expected)
    (letter,) = (read_dead(one) for one in pipeline.beside("dead"))
    assert letter is not None
    assert letter.operator == "deduplicate"
    at = letter.record
    assert (at.topic, at.partition, at.offset) == (pipeline.source, 1, 2)
    assert contents([at]) == contents([POISON])
    _check_topics(pipeline)


def _check_topics(pipeline: Pipeline) -> None:
    repartition = repartition_topic(pipeline.name, "deduplicate").name
    settings = settings_of(pipeline, repartition)
    assert settings["cleanup.policy"] == "delete"
    assert settings["retention.ms"] == settings["retention.bytes"] == "-1"
    assert settings["message.timestamp.type"] == "CreateTime"
    assert len(pipeline.clients.end_offsets(repartition)) == PARTITIONS
    told = [read_cleaned_by(one.key, one.value) for one in pipeline.beside("progress")]
    assert {one.partitioned_by for one in told if one is not None} == {"id of deduplicate"}
    assert {row.source_topic for row in pipeline.progress()} == {repartition}
    last = {one.partition: one.offset for one in pipeline.cleaned()}
    assert {row.partition: row.cleaned_offset for row in pipeline.progress()} == last


def by_time(records: list[Record]) -> list[Content]:
    """Return what records say, in the order of their times: partitions have none among them."""
    return sorted(contents(records), key=lambda one: one[2])
