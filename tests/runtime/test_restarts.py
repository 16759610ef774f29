"""A sidecar that begins again goes on exactly where it was, whatever became of its folder."""

from __future__ import annotations

import shutil

import pytest

from tests.runtime.expected import (
    FOR_EVER,
    REORDER_AND_DEDUPLICATE,
    assert_cleaned,
    expected_of,
    some_records,
)
from tests.runtime.sidecar import MakePipeline, Pipeline, Sidecar, contents, record

STEP_MS = 12_000


def run_on(pipeline: Pipeline, step: int, **settings: str) -> str:
    """Live through the next part of the stream; what it logged when it was killed behind it."""
    pipeline.produce(some_records(300, step, 4, start_ms=step * STEP_MS))
    sidecar = pipeline.start(**settings)
    pipeline.wait_until_done()
    sidecar.kill()
    return sidecar.log


def test_it_goes_on_exactly_with_state_whole_old_damaged_or_gone(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline(*REORDER_AND_DEDUPLICATE, partitions=4)
    run_on(pipeline, 0)
    old = pipeline.folder / "old"
    shutil.copytree(pipeline.folder_of(partition=3), old)
    log = run_on(pipeline, 1)
    assert "rebuilt" not in log
    assert_cleaned(pipeline)
    pipeline.lose_state(partition=1)
    (pipeline.folder_of(partition=2) / "CURRENT").write_bytes(b"damaged")
    pipeline.lose_state(partition=3)
    old.rename(pipeline.folder_of(partition=3))
    log = run_on(pipeline, 2)
    (rebuilt,) = (line for line in log.splitlines() if "state is rebuilt" in line)
    assert "partition=2" in rebuilt
    assert "Corruption" in rebuilt
    assert_cleaned(pipeline)
    log = run_on(pipeline, 3, state_folder="a-new-folder")
    assert "rebuilt" not in log
    assert_cleaned(pipeline)


LARGE = 10_000
"""Bytes of a value: some of them fill a batch, which leaves before the commit."""


def start_and_wait_for_output(pipeline: Pipeline, guarantee: str) -> Sidecar:
    """A sidecar that has sent something and committed nothing."""
    pipeline.produce(some_records(300, 1, value_bytes=LARGE))
    late = {"commit_interval": "5m", "transaction_timeout": FOR_EVER}
    sidecar = pipeline.start(guarantee=guarantee, **late)
    sidecar.wait_for("running")
    pipeline.wait_until(lambda: len(pipeline.sent()) > 0, "output")
    # Exactly once it says whose it is with a commit, before it reads.
    assert not any(pipeline.committed().values())
    return sidecar


def test_a_stop_commits_all_and_a_restart_reads_nothing_again(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(*REORDER_AND_DEDUPLICATE)
    sidecar = start_and_wait_for_output(pipeline, "exactly-once")
    assert sidecar.stop() == 0
    committed = pipeline.committed()
    assert_cleaned(pipeline, committed)
    sidecar = pipeline.start()
    sidecar.wait_for(f"position={committed[pipeline.source, 0]} restored=0")
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    assert_cleaned(pipeline)


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_uncommitted_work_of_a_killed_sidecar_is_made_again(
    make_pipeline: MakePipeline, guarantee: str
) -> None:
    pipeline = make_pipeline(*REORDER_AND_DEDUPLICATE)
    start_and_wait_for_output(pipeline, guarantee).kill()
    pipeline.produce(some_records(300, 2, start_ms=STEP_MS))
    sidecar = pipeline.start(guarantee=guarantee)
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    assert pipeline.committed() == {(pipeline.source, 0): 600}
    expected, cleaned = expected_of(pipeline), contents(pipeline.cleaned())
    twice = len(cleaned) - len(expected)
    assert cleaned[twice:] == expected
    assert cleaned[:twice] == expected[:twice]
    assert (twice > 0) == (guarantee == "at-least-once")


COUNT = "aggregate: {function: count, window: {kind: tumbling, size: 10s, grace: 0s}}"
FINAL = "suppress: {until: window-closes}"
ANY = 'filter: {where: "value >= 0"}'


def test_a_count_goes_on_wherever_its_results_stand(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(COUNT, FINAL)
    # In suppress alone, then with the windows, and there they stay.
    for at_ms, operators in enumerate([(COUNT, FINAL), (COUNT, ANY, FINAL), (COUNT, FINAL)]):
        pipeline.write(*operators)
        pipeline.produce([record(b"k", b"", at_ms), record(b"k", b"", at_ms)])
        sidecar = pipeline.start()
        pipeline.wait_until_done()
        sidecar.kill()
        pipeline.lose_state()
    pipeline.produce([record(b"push", b"", 10_000)])
    sidecar = pipeline.start()
    pipeline.wait_until_done()
    (result,) = pipeline.cleaned()
    assert (int.from_bytes(result.value or b"", "big"), result.timestamp_ms) == (6, 2)
    assert sidecar.stop() == 0


def logs_of(pipeline: Pipeline) -> dict[str, int]:
    """The bytes of each log of the database of partition 0."""
    return {log.name: log.stat().st_size for log in pipeline.folder_of().glob("*.log")}


def test_the_log_of_one_that_was_killed_is_read_before_it_joins(
    make_pipeline: MakePipeline,
) -> None:
    """To read it holds the interpreter, and a member's heartbeats."""
    pipeline = make_pipeline(*REORDER_AND_DEDUPLICATE)
    pipeline.produce(some_records(300, 1, value_bytes=LARGE))
    killed = pipeline.start()
    pipeline.wait_until_done()
    # The group has the offset a moment before the database has the rows.
    pipeline.wait_until(lambda: sum(logs_of(pipeline).values()) > LARGE, "rows in the log")
    killed.kill()
    logs = logs_of(pipeline)
    sidecar = pipeline.start()
    sidecar.wait_for("joining the group")
    assert not logs.keys() & logs_of(pipeline).keys()
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    assert_cleaned(pipeline)
