"""A commit's requests do not get in one another's way."""

from __future__ import annotations

from tests.runtime.sidecar import MakePipeline, record

PARTITIONS, COMMITS = 4, 150


def test_no_write_of_a_commit_is_refused(make_pipeline: MakePipeline) -> None:
    """Of two first writes of one transaction that a broker looks at together, it refuses one."""
    pipeline = make_pipeline("deduplicate: {by: key, interval: 10m}", partitions=PARTITIONS)
    pipeline.produce(
        record(b"%d" % number, b"1", 1_000 + number, partition=partition)
        for partition in range(PARTITIONS)
        for number in range(COMMITS)
    )
    sidecar = pipeline.start(commit_records_max="1")
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    assert len(pipeline.cleaned()) == PARTITIONS * COMMITS
    refusals = [line for line in sidecar.log.splitlines() if "error produce response" in line]
    # A broker that is slow does not lead a new partition yet, whatever is asked beside it.
    assert [line for line in refusals if "NotLeaderForPartition" not in line] == []
