"""A buffer that must not overflow stops the service: what was before it is safe, and said."""

from __future__ import annotations

import pytest

from tests.runtime.sidecar import MakePipeline, Pipeline, contents, record

FULL = 5
A, B, C, D = (
    record(b"a", b"1", 1_000),
    record(b"b", b"2", 2_000),
    record(b"c", b"3", 12_500),
    record(b"d", b"4", 12_600),
)
NEWER_C, ONE_TOO_MANY = record(b"c", b"5", 12_700), record(b"e", b"6", 12_800)
BEFORE = [A, B, C, D, NEWER_C]
PUSH = record(b"f", b"7", 99_000)
OTHER_PARTITION = record(b"z", b"1", 20_000, (), 1)


def suppress(records: int) -> str:
    """Wait ten seconds, and hold no more than so many."""
    return (
        "suppress: {until: time-limit, limit: 10s,"
        f" buffer: {{records: {records}, when-full: shut-down}}}}"
    )


def stops(pipeline: Pipeline, guarantee: str) -> str:
    """It ends by itself; the sentence."""
    sidecar = pipeline.start(guarantee=guarantee)
    assert sidecar.wait() == FULL, sidecar.log
    assert "Traceback" not in sidecar.log
    return sidecar.last_words


TWIN = pytest.mark.long("kill", why="both guarantees stop at one place")


@pytest.mark.parametrize("guarantee", ["exactly-once", pytest.param("at-least-once", marks=TWIN)])
def test_everything_before_the_record_is_committed_and_nothing_after(
    make_pipeline: MakePipeline, guarantee: str
) -> None:
    pipeline = make_pipeline(suppress(2), partitions=2)
    pipeline.produce([*BEFORE, ONE_TOO_MANY, PUSH, OTHER_PARTITION])
    sentence = stops(pipeline, guarantee)
    assert sentence == (
        "operator `suppress` holds 3 updates of 141 bytes, more than its buffer may;"
        " raise its bounds, or let it spill"
    )
    for _ in range(2):
        assert pipeline.committed()[pipeline.source, 0] == len(BEFORE)
        assert contents(pipeline.cleaned()) == contents([A, B])
        assert stops(pipeline, guarantee) == sentence
    pipeline.write(suppress(3))
    sidecar = pipeline.start(guarantee=guarantee)
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    assert contents(pipeline.cleaned()) == contents([A, B, NEWER_C, D, ONE_TOO_MANY])


def test_silence_that_releases_too_much_stops_it_too(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline("reorder: {grace: 1h, idle: 1s}", suppress(2))
    pipeline.produce([record(b"%d" % key, b"", 1_000) for key in range(3)])
    sentence = stops(pipeline, "exactly-once")
    assert "suppress" in sentence
    assert pipeline.committed() == {(pipeline.source, 0): 3}
    assert pipeline.cleaned() == []
    pipeline.write("reorder: {grace: 1h, idle: 1s}", suppress(3))
    pipeline.produce([record(b"push", b"", 9_000_000)])
    sidecar = pipeline.start()
    pipeline.wait_for_cleaned(3)
    assert sidecar.stop() == 0
