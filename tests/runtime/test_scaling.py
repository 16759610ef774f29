"""Instances come and go: partitions are shared, and nothing is lost or doubled."""

from __future__ import annotations

from tests.runtime.expected import (
    REORDER_AND_DEDUPLICATE,
    assert_cleaned,
    stream,
    wait_until_all_move,
)
from tests.runtime.sidecar import MakePipeline

PARTITIONS = 4


def test_a_second_instance_joins_and_leaves_while_records_come(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline(*REORDER_AND_DEDUPLICATE, partitions=PARTITIONS)
    with stream(pipeline, PARTITIONS):
        # Without names of their own they leave the group when they stop.
        one = pipeline.start("one", instance_id="")
        wait_until_all_move(pipeline, PARTITIONS)
        two = pipeline.start("two", instance_id="")
        two.wait_for("] running ")
        wait_until_all_move(pipeline, PARTITIONS)
        assert two.stop() == 0
        wait_until_all_move(pipeline, PARTITIONS)
    pipeline.wait_until_done()
    assert one.stop() == 0
    assert_cleaned(pipeline)


def test_a_killed_instance_is_replaced_by_one_of_the_same_name_at_once(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline(*REORDER_AND_DEDUPLICATE, partitions=PARTITIONS)
    with stream(pipeline, PARTITIONS):
        sidecar = pipeline.start(session_timeout="5m")
        wait_until_all_move(pipeline, PARTITIONS)
        sidecar.kill()
        pipeline.start(session_timeout="5m")
        wait_until_all_move(pipeline, PARTITIONS)
    pipeline.wait_until_done()
    assert_cleaned(pipeline)
