"""The records that leave a sidecar, byte for byte, and what stands beside them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.contracts.dead_letter import DeadLetter, read_dead
from headrace.contracts.decision import Reason
from headrace.contracts.progress import LAYOUT, CleanedBy, Progress, read_cleaned_by
from headrace.contracts.record import Record, offset_of
from tests.oracles.reorder import reorder
from tests.runtime.sidecar import MakePipeline, Pipeline, contents, record

MEGABYTE = 1_000_000
YEAR_9999_MS = 253_370_764_800_000
UNUSUAL = [
    record(b"\x00\xff", b"\x80\x00", 5_000),
    record(
        b"k", b"headers", 4_000, (("b", b"1"), ("a", b"2"), ("b", None), ("b", b"1"), ("", b""))
    ),
    record(b"k", b"no ascii", 4_000, (("\u00e9\u4e16", b"\xff"),)),
    record(None, b"no key", 4_000),
    record(b"", b"empty key", 4_000),
    record(b"k", None, 4_000),
    record(b"k", b"", 4_000),
    record(None, None, 3_000, (("only", b"headers"),)),
    record(b"large", b"x" * MEGABYTE, 2_000),
    record(b"k", b"the first moment", 0),
    record(b"k", b"same", 5_000),
    record(b"k", b"same", 5_000),
    record(b"far", b"\x01", YEAR_9999_MS, (), 1),
    record(b"late", b"\x02", 6_000, (("late", None),), 1),
]
PUSH = [record(b"push", b"", 1_000_000), record(b"push", b"", YEAR_9999_MS + 1_000_000, (), 1)]


def reordered(records: list[Record], grace_ms: int) -> list[Record]:
    """Return what a reorder makes of each partition."""
    return [
        one
        for partition in (0, 1)
        for one in reorder([one for one in records if one.partition == partition], grace_ms).left
    ]


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_every_byte_passes_and_survives_a_kill_and_a_lost_folder(
    make_pipeline: MakePipeline, guarantee: str
) -> None:
    pipeline = make_pipeline("reorder: {grace: 1m}", partitions=2)
    pipeline.produce(UNUSUAL)
    sidecar = pipeline.start("one", guarantee=guarantee)
    pipeline.wait_until_done()
    expected = reordered(UNUSUAL, 60_000)
    assert contents(pipeline.cleaned()) == contents(expected)
    assert len(expected) == 1, "all but the late one are held"
    sidecar.kill()
    # Its state comes out of the changelog in one partition, and from the disk in the other.
    pipeline.lose_state(partition=0)
    sidecar = pipeline.start("one", guarantee=guarantee)
    pipeline.produce(PUSH)
    pipeline.wait_until_done()
    expected = reordered([*UNUSUAL, *PUSH], 60_000)
    assert contents(pipeline.cleaned()) == contents(expected)
    assert len(expected) == len(UNUSUAL)
    assert sidecar.stop() == 0


DEDUPLICATE = "deduplicate: {by: key+id, id: value.id, interval: 1h}"


def test_an_unreadable_record_goes_dead_as_it_came_with_its_origin(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline(
        DEDUPLICATE, partitions=2, source="timestamp: value.at, max-future: 1h"
    )
    good = record(b"k", b'{"id":"1","at":7000}', 5)
    dead = [
        record(b"k", b"\xff{", 1_000, (("h", b"1"), ("h", None)), 1),
        record(None, b'{"id":"1"}', 2_000),
        record(b"k", b'{"id":"1","at":-1}', 3_000),
        record(b"k", b'{"id":"1","at":"9000-01-01T00:00:00Z"}', 4_000),
        record(b"k", b'{"id":"1","at":7000,"id"', -1),
    ]
    pipeline.produce([dead[0], dead[1], good, *dead[2:], good])
    pipeline.start()
    pipeline.wait_until_done()
    assert contents(pipeline.cleaned()) == [(b"k", good.value, 7_000, (), 0)]
    letters = [read_dead(one) for one in pipeline.beside("dead")]
    places = [(0, 0), (0, 2), (0, 3), (0, 4), (1, 0)]
    origin = [_origin(letter) for letter in letters]
    assert origin == [("intake", pipeline.source, *place) for place in places]
    as_they_came = [letter.record for letter in letters if letter is not None]
    assert contents(as_they_came) == contents([*dead[1:], dead[0]])
    assert [letter.reason for letter in letters if letter is not None] == [
        Reason.UNDECODABLE,
        Reason.NEGATIVE_TIMESTAMP,
        Reason.FUTURE_TIMESTAMP,
        Reason.UNDECODABLE,
        Reason.UNDECODABLE,
    ]


def _origin(letter: DeadLetter | None) -> tuple[object, ...]:
    assert letter is not None
    return letter.operator, letter.record.topic, letter.record.partition, letter.record.offset


def test_an_operators_dead_record_says_where_it_stood(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline("reorder: {grace: 1s}", DEDUPLICATE)
    poison = record(b"k", b"no json", 1_000, (("h", b"1"),))
    pipeline.produce([poison, record(b"k", b"{}", 1_500), record(b"k", b"{}", 9_000)])
    pipeline.start()
    pipeline.wait_until_done()
    (letter,) = (read_dead(one) for one in pipeline.beside("dead"))
    assert letter is not None
    assert _origin(letter) == ("deduplicate", pipeline.source, 0, 0)
    assert contents([letter.record]) == contents([poison])
    assert [one.timestamp_ms for one in pipeline.cleaned()] == [1_500]


IN_TIME = [record(b"k", b"%d" % at, at, (), at % 2) for at in (10_000, 10_001, 30_000, 30_001)]
LATE = [record(b"k", b"late", 2_001, (("h", None),), 1)]


def test_late_records_go_where_the_pipeline_says(make_pipeline: MakePipeline) -> None:
    answers = ("forward", "drop", "topic")
    pipelines = [
        make_pipeline(f"reorder: {{grace: 5s, late: {late}}}", partitions=2) for late in answers
    ]
    for pipeline in pipelines:
        pipeline.produce([*IN_TIME, *LATE])
        pipeline.start(decisions="true")
    forward, drop, topic = pipelines
    for pipeline in pipelines:
        pipeline.wait_until_done()
    released = contents([IN_TIME[0], IN_TIME[1]])
    assert contents(forward.cleaned()) == [*released, *contents(LATE)]
    assert contents(drop.cleaned()) == released
    assert contents(topic.cleaned()) == released
    assert contents(topic.beside("late")) == contents(LATE)
    assert f"{drop.sink}.late" not in drop.clients.topics()
    late = [_verdict_of_late(pipeline) for pipeline in pipelines]
    assert late == [("forwarded", "past-grace"), ("dropped", "past-grace"), ("late", "past-grace")]


def _verdict_of_late(pipeline: Pipeline) -> tuple[str, str]:
    told = [json.loads(one.value or b"") for one in pipeline.beside("decisions")]
    (late,) = (one for one in told if one["timestamp_ms"] == LATE[0].timestamp_ms)
    assert (late["operator"], late["topic"], late["partition"], late["offset"]) == (
        "reorder",
        pipeline.source,
        1,
        2,
    )
    assert late["evidence"] == {"stream_time_ms": 30_001, "grace_ms": 5_000}
    return late["verdict"], late["reason"]


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_progress_is_told_beside_the_cleaned_topic_and_never_in_it(
    make_pipeline: MakePipeline, guarantee: str
) -> None:
    pipeline = make_pipeline("reorder: {grace: 5s}", partitions=2, source="idle: never")
    pipeline.produce([*IN_TIME, *LATE])
    first = pipeline.start(guarantee=guarantee)
    pipeline.wait_until_done()
    last = _last_cleaned(pipeline)
    expected = [
        Progress(0, 25_000, 30_000, pipeline.source, 2, last[0]),
        Progress(1, 25_001, 30_001, pipeline.source, 3, last[1]),
    ]
    assert _newest(pipeline) == expected
    assert first.stop() == 0
    # Held, so nothing is cleaned, and the record of before is still the last.
    pipeline.produce([record(b"k", b"held", 30_000, (), 1)])
    second = pipeline.start(guarantee=guarantee)
    pipeline.wait_until_done()
    expected[1] = expected[1]._replace(source_offset=4)
    assert _newest(pipeline) == expected
    assert second.stop() == 0
    pipeline.produce([record(b"k", b"", 20_000)])
    pipeline.start(guarantee=guarantee)
    pipeline.wait_until_done()
    assert _last_cleaned(pipeline)[0] > last[0]
    expected[0] = Progress(0, 25_000, 30_000, pipeline.source, 3, _last_cleaned(pipeline)[0])
    assert _newest(pipeline) == expected
    told = [read_cleaned_by(one.key, one.value) for one in pipeline.beside("progress")]
    who = CleanedBy(pipeline.name, LAYOUT, "source", _as_written(pipeline))
    # Exactly once, the one with nothing to clean has named its producer, and so has written too.
    instances = 3 if guarantee == "exactly-once" else 2
    assert [one for one in told if one is not None] == [who] * instances, "once an instance"
    assert contents(pipeline.cleaned()) == contents(
        [IN_TIME[0], record(b"k", b"", 20_000), IN_TIME[1], *LATE]
    )


def _newest(pipeline: Pipeline) -> list[Progress]:
    return list({row.partition: row for row in pipeline.progress()}.values())


def _last_cleaned(pipeline: Pipeline) -> dict[int, int]:
    return {one.partition: offset_of(one) for one in pipeline.cleaned()}


def _as_written(pipeline: Pipeline) -> dict[str, Any]:
    return pipeline.spec.model_dump(mode="json", by_alias=True)


def test_aborted_transactions_of_the_source_are_never_seen(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline("deduplicate: {by: key, interval: 1h}", partitions=2)
    clients, source = pipeline.clients, pipeline.source
    clients.produce_aborted(source, [record(b"%d" % key, b"no", 1_000) for key in range(5)], "a")
    clients.produce_committed(source, [record(b"%d" % key, b"1", 2_000) for key in range(3)], "a")
    clients.produce_aborted(source, [record(b"9", b"no", 3_000, (), 1)], "b")
    clients.produce_committed(source, [record(b"1", b"2", 4_000)], "b")
    sidecar = pipeline.start()
    pipeline.wait_until_done()
    clients.produce_aborted(source, [record(b"4", b"no", 5_000)], "a")
    clients.produce_committed(source, [record(b"5", b"3", 6_000)], "a")
    pipeline.wait_until_done()
    expected = [record(b"%d" % key, b"1", 2_000) for key in range(3)] + [record(b"5", b"3", 6_000)]
    assert contents(pipeline.cleaned()) == contents(expected)
    assert sidecar.stop() == 0
    assert pipeline.committed()[source, 0] == 15, "the offset behind the last record"
