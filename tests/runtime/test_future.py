"""A record from the future is said once, and counted each time."""

from __future__ import annotations

from tests.runtime.sidecar import MakePipeline, record

FAR_MS = 4_000_000_000_000


def test_records_from_the_future_are_said_once(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline("deduplicate: {by: key, interval: 10m}", partitions=2)
    sidecar = pipeline.start()
    for step in range(2):
        pipeline.produce(
            [record(b"%d" % step, b"v", FAR_MS + step, partition=at) for at in range(2)]
        )
        pipeline.wait_until_done()
    assert sidecar.stop() == 0
    assert sidecar.log.count("more than an hour ahead of the clock was taken") == 1
