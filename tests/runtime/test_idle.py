"""`reorder: {idle: ...}`: what is held leaves in a silence, and never before what waits unread."""

from __future__ import annotations

import time

import pytest

from tests.runtime.sidecar import MakePipeline, contents, record

IDLE = "reorder: {grace: 1h, idle: 1s}"
EARLY, EARLIER = record(b"a", b"1", 50_000), record(b"b", b"2", 40_000)


def test_a_silent_source_lets_go_of_what_is_held(make_pipeline: MakePipeline) -> None:
    plain, transactional = make_pipeline(IDLE), make_pipeline(IDLE)
    never = make_pipeline("reorder: {grace: 1h}")
    for pipeline in (plain, never):
        pipeline.produce([EARLY, EARLIER])
    # The end of this source is a marker, which nobody reads.
    transactional.clients.produce_committed(transactional.source, [EARLY, EARLIER], "t")
    for pipeline in (plain, transactional, never):
        pipeline.start()
    for pipeline in (plain, transactional):
        assert contents(pipeline.wait_for_cleaned(2)) == contents([EARLIER, EARLY])
        # Time has moved on by the grace, so that nothing overtakes what left.
        assert pipeline.progress()[-1].progress_ms == 50_000
    assert never.cleaned() == []


@pytest.mark.long("time", why="it waits for silence")
def test_a_silence_of_ours_is_not_one_of_the_source(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline("reorder: {grace: 1h, idle: 5s}")
    pipeline.produce([EARLY])
    sidecar = pipeline.start(session_timeout="1m")
    pipeline.wait_until_done()
    # For longer than that it neither reads nor looks at the clock, as on a machine that sleeps.
    sidecar.pause()
    pipeline.produce([EARLIER])
    time.sleep(5.5)
    sidecar.resume()
    assert contents(pipeline.wait_for_cleaned(2)) == contents([EARLIER, EARLY])
