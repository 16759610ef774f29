"""A stop is heard at once, whatever a sidecar is doing, and ends with exit code 0."""

from __future__ import annotations

import os

from services.state.changelog import POSITION
from tests.runtime.sidecar import MakePipeline, record

HUNDRED_KB = 100_000
SOON_S = 60


def test_a_stop_is_heard_while_a_large_state_is_restored(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline("reorder: {grace: 1h}")
    settings = {"cleanup.policy": "compact", "max.message.bytes": str(5 << 20)}
    changelog = pipeline.clients.make_topic(f"{pipeline.name}-state-changelog", 1, settings)
    row = os.urandom(HUNDRED_KB)
    rows = [record(b"\x07reorder\x01%08d" % number, row, 0) for number in range(600)]
    pipeline.clients.produce(changelog, [*rows, record(POSITION, b"\x00" * 16, 0)])
    sidecar = pipeline.start()
    sidecar.wait_for("partitions assigned")
    assert sidecar.stop(SOON_S) == 0
    assert "] running" not in sidecar.log, "it was restored before it was stopped"
    assert "Traceback" not in sidecar.log


def test_a_stop_is_heard_while_it_waits_for_the_group(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline("reorder: {grace: 1h}")
    one = pipeline.start("one")
    one.wait_for("] running")
    # Whoever joins waits for the one that sleeps.
    one.pause()
    two = pipeline.start("two")
    two.wait_for("starting")
    # At the latest it is let in when the group gives the other one up.
    assert two.stop() == 0
    assert "Traceback" not in two.log
    one.resume()
    assert one.stop(SOON_S) == 0


def test_a_stop_is_heard_before_it_has_begun(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline("reorder: {grace: 1h}")
    sidecar = pipeline.start()
    sidecar.wait_for("topic made")
    assert sidecar.stop(SOON_S) in {0, -15}
    assert "Traceback" not in sidecar.log
