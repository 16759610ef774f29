"""A sidecar opens as many files as the machine lets it, and says what it lacks."""

from __future__ import annotations

from tests.runtime.expected import assert_cleaned, some_records
from tests.runtime.sidecar import MakePipeline, Pipeline, Sidecar

PARTITIONS = 40
TOO_FEW = 150
ENOUGH = 4_096


def _started(pipeline: Pipeline, files_max: tuple[int, int]) -> Sidecar:
    sidecar = Sidecar(pipeline, "one", {"state_folder": str(pipeline.state)}, files_max)
    pipeline.sidecars.append(sidecar)
    return sidecar


def test_it_raises_the_limit_that_it_may_raise(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline("deduplicate: {by: key, interval: 10m}", partitions=PARTITIONS)
    pipeline.produce(some_records(200, 1, PARTITIONS))
    sidecar = _started(pipeline, (TOO_FEW, ENOUGH))
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    assert "may open" not in sidecar.log
    assert_cleaned(pipeline)


def test_a_limit_that_it_may_not_raise_is_a_sentence(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline("deduplicate: {by: key, interval: 10m}", partitions=PARTITIONS)
    sidecar = _started(pipeline, (TOO_FEW, TOO_FEW))
    assert sidecar.wait() == 2, sidecar.log
    assert f"this process may open {TOO_FEW} files, and all {PARTITIONS} partitions" in sidecar.log
    assert f"may not open more than {TOO_FEW} files; raise its limit" in sidecar.last_words
    assert "Traceback" not in sidecar.log
