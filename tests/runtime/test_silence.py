"""A partition that is silent at its end says so, once, until records come again."""

from __future__ import annotations

import pytest

from headrace.contracts.progress import Progress
from tests.runtime.scraped import scraped
from tests.runtime.sidecar import MakePipeline, Pipeline, record

DEDUPLICATE = "deduplicate: {by: key, interval: 10m}"
BY_ID = "deduplicate: {by: id, id: key, interval: 10m}"


def of_partition(pipeline: Pipeline, number: int) -> list[Progress]:
    """Return the progress rows of a partition, in order."""
    return [row for row in pipeline.progress() if row.partition == number]


def is_idle(pipeline: Pipeline, number: int) -> bool:
    """Return whether the last progress row of a partition says that it is idle."""
    said = of_partition(pipeline, number)
    return bool(said) and said[-1].is_idle


def test_an_empty_partition_is_idle_at_once_and_any_other_behind_a_silence(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline(DEDUPLICATE, partitions=2, source="idle: 2s")
    pipeline.produce([record(b"a", b"1", 1_000)])
    pipeline.start()
    pipeline.wait_for_cleaned(1)
    pipeline.wait_until(lambda: is_idle(pipeline, 1), "word of the empty partition")
    pipeline.wait_until(lambda: is_idle(pipeline, 0), "word of the silent partition")
    busy, idle = of_partition(pipeline, 0)
    assert busy == idle._replace(is_idle=False)
    assert (idle.progress_ms, idle.source_offset, idle.cleaned_offset) == (1_000, 1, 0)
    pipeline.produce([record(b"b", b"2", 2_000)])
    pipeline.wait_until(lambda: len(of_partition(pipeline, 0)) == 4, "a row that ends it, and one")
    assert [row.is_idle for row in of_partition(pipeline, 0)] == [False, True, False, True]
    # A row a change, however long it lasts.
    assert [(row.is_idle, row.progress_ms) for row in of_partition(pipeline, 1)] == [(True, -1)]


@pytest.mark.long("time", why="it waits for silence")
def test_behind_a_repartition_a_place_is_idle_when_all_its_sources_are(
    make_pipeline: MakePipeline,
) -> None:
    reorder = "reorder: {grace: 1s, idle: 3s}"
    pipeline = make_pipeline(BY_ID, reorder, partitions=3, source="idle: 2s")
    pipeline.produce([record(b"a", b"1", 1_000), record(b"b", b"2", 5_000)])
    pipeline.start()
    # Two partitions are empty, so nobody is waited for, and what is past its grace leaves.
    assert pipeline.wait_for_cleaned(1)[0].value == b"1"
    pipeline.wait_until(lambda: all(is_idle(pipeline, at) for at in range(3)), "word of all places")


def test_readers_of_another_sink_wait_for_no_record_of_the_one_before(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline(DEDUPLICATE)
    pipeline.produce([record(b"a", b"1", 1_000)])
    first = pipeline.start()
    pipeline.wait_for_cleaned(1)
    assert first.stop() == 0
    assert of_partition(pipeline, 0)[-1].cleaned_offset == 0
    pipeline.sink = f"{pipeline.name}.other"
    pipeline.write(DEDUPLICATE)
    second = pipeline.start()
    second.wait_for("running")
    assert second.stop() == 0
    assert {row.cleaned_offset for row in of_partition(pipeline, 0)} == {None}
    pipeline.produce([record(b"b", b"2", 2_000)])
    pipeline.start()
    pipeline.wait_for_cleaned(1)
    pipeline.wait_until(lambda: of_partition(pipeline, 0)[-1].cleaned_offset == 0, "its own record")


def behind_s(port: int) -> float | None:
    """How far a sidecar with one partition says that it is behind the clock."""
    return next(iter(scraped(port, "headrace_progress_behind_seconds").values()), None)


def test_a_partition_that_holds_records_is_idle_as_well_and_says_no_more_than_left(
    make_pipeline: MakePipeline, free_port: int
) -> None:
    holding = make_pipeline("reorder: {grace: 1s}", source="idle: 1s")
    holding.produce([record(b"a", b"1", 1_000), record(b"b", b"2", 5_000)])
    holding.start(http_port=str(free_port))
    holding.wait_for_cleaned(1)
    holding.wait_until(lambda: is_idle(holding, 0), "word of the partition that holds")
    holding.wait_until(lambda: behind_s(free_port) is None, "that nobody is behind the clock")
    before = of_partition(holding, 0)
    said = before[-1]
    assert (said.progress_ms, said.stream_time_ms, said.cleaned_offset) == (4_000, 4_000, 0)
    holding.produce([record(b"c", b"3", 9_000)])
    # It held the record all the time, and lets it go when stream time has passed it.
    assert [one.value for one in holding.wait_for_cleaned(2)] == [b"1", b"2"]
    # It may be idle once more by the time that somebody looks.
    holding.wait_until(
        lambda: not all(row.is_idle for row in of_partition(holding, 0)[len(before) :]),
        "word that it was awake",
    )


def test_records_that_silence_lets_go_leave_before_their_partition_is_idle(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline("reorder: {grace: 1h, idle: 3s}", source="idle: 1s")
    pipeline.produce([record(b"a", b"1", 5_000)])
    pipeline.start()
    pipeline.wait_for_cleaned(1)
    pipeline.wait_until(lambda: is_idle(pipeline, 0), "word of the partition")
    told = of_partition(pipeline, 0)
    assert [row.cleaned_offset for row in told if row.is_idle] == [0]
    assert told[-1].stream_time_ms == 5_000


def test_a_partition_that_must_wait_for_ever_is_told_nothing(
    make_pipeline: MakePipeline, free_port: int
) -> None:
    pipeline = make_pipeline(BY_ID, "reorder: {grace: 1s}", partitions=2, source="idle: never")
    pipeline.produce([record(b"a", b"1", 1_000), record(b"b", b"2", 5_000)])
    sidecar = pipeline.start(http_port=str(free_port))
    pipeline.wait_until_done()
    pipeline.produce([record(b"c", b"3", 3_000, partition=1)])
    # The other partition has passed 2 s by then, and only now it is known that nothing is earlier.
    assert [one.value for one in pipeline.wait_for_cleaned(1)] == [b"1"]
    assert not any(row.is_idle for row in pipeline.progress())
    # Records of 1970.
    pipeline.wait_until(lambda: (behind_s(free_port) or 0) > 1e9, "that it is behind the clock")
    assert sidecar.stop() == 0
