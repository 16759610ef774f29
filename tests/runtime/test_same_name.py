"""Two processes with one HEADRACE_INSTANCE_ID: the later stays, and the other says why it ends."""

from __future__ import annotations

import pytest

from headrace.contracts.errors import InstanceReplaced, StateLocked
from tests.runtime.expected import (
    REORDER_AND_DEDUPLICATE,
    assert_cleaned,
    some_records,
)
from tests.runtime.sidecar import MakePipeline, Sidecar

JOINS = "joining the group"
PARTITIONS = 2
STEP_MS = 12_000
TWIN = pytest.mark.long("kill", why="the group counts both guarantees out alike")


def joins(sidecar: Sidecar) -> int:
    return sidecar.log.count(JOINS)


@pytest.mark.parametrize("guarantee", ["exactly-once", pytest.param("at-least-once", marks=TWIN)])
def test_the_earlier_of_two_gives_way_and_the_later_is_not_disturbed(
    make_pipeline: MakePipeline, guarantee: str
) -> None:
    pipeline = make_pipeline(*REORDER_AND_DEDUPLICATE, partitions=PARTITIONS)
    pipeline.produce(some_records(300, 1, PARTITIONS))
    earlier = pipeline.start("same", guarantee=guarantee)
    pipeline.wait_until_done()
    later = pipeline.start("same", state_folder="elsewhere", guarantee=guarantee)
    assert earlier.wait() == InstanceReplaced.exit_code == 2
    assert "another process has joined group" in earlier.last_words
    assert "HEADRACE_INSTANCE_ID" in earlier.last_words
    assert "Traceback" not in earlier.log
    assert joins(earlier) == 1
    pipeline.produce(some_records(300, 2, PARTITIONS, start_ms=STEP_MS))
    pipeline.wait_until_done()
    assert later.exit_code is None
    assert "goes on without us" not in later.log
    assert later.stop() == 0
    assert_cleaned(pipeline)


def test_one_that_slept_while_another_took_its_name_gives_way_when_it_wakes(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline(*REORDER_AND_DEDUPLICATE, partitions=PARTITIONS)
    pipeline.produce(some_records(300, 1, PARTITIONS))
    sleeper = pipeline.start("same")
    pipeline.wait_until_done()
    sleeper.pause()
    later = pipeline.start("same", state_folder="elsewhere")
    pipeline.produce(some_records(300, 2, PARTITIONS, start_ms=STEP_MS))
    pipeline.wait_until_done()
    sleeper.resume()
    assert sleeper.wait() == 2
    assert "another process has joined group" in sleeper.last_words
    assert later.stop() == 0
    assert_cleaned(pipeline)


def test_one_that_was_killed_is_back_at_once_under_its_name(make_pipeline: MakePipeline) -> None:
    """It needs no patience: the group would count the dead one for an hour yet."""
    pipeline = make_pipeline(*REORDER_AND_DEDUPLICATE, partitions=PARTITIONS)
    for step in range(3):
        pipeline.produce(some_records(300, step, PARTITIONS, start_ms=step * STEP_MS))
        sidecar = pipeline.start("same", session_timeout="30m")
        pipeline.wait_until_done()
        if step < 2:
            sidecar.kill()
    assert sidecar.stop() == 0
    assert_cleaned(pipeline)


def test_one_that_starts_in_the_folder_of_another_ends_and_disturbs_nobody(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline(*REORDER_AND_DEDUPLICATE, partitions=PARTITIONS)
    pipeline.produce(some_records(300, 1, PARTITIONS))
    sidecar = pipeline.start("same")
    pipeline.wait_until_done()
    second = Sidecar(pipeline, "same", {"state_folder": str(pipeline.state / "same")})
    assert second.wait() == StateLocked.exit_code
    assert "is held by another process" in second.last_words
    assert joins(second) == 0
    pipeline.produce(some_records(300, 2, PARTITIONS, start_ms=STEP_MS))
    pipeline.wait_until_done()
    assert joins(sidecar) == 1
    assert sidecar.stop() == 0
    assert_cleaned(pipeline)
