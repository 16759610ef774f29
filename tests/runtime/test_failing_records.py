"""A record that an operator fails on is dead by itself, whatever was fetched with it."""

from __future__ import annotations

import pytest

from contracts.dead_letter import read_dead
from contracts.decision import Reason
from tests.runtime.sidecar import MakePipeline, Pipeline, contents, record

FAILED = 8
MODULE = """
from services.operators.deduplicate import Deduplicate

process = Deduplicate.process


def fail(self, batch):
    step = process(self, batch)
    if any(record.value.startswith(b"bad") for record in batch.records):
        raise TypeError("a mistake of ours")
    return step


def identity(record):
    return record.value


Deduplicate.process = fail
"""
"""All that a user's function may do is guarded, so it brings a mistake into an operator."""
OPERATORS = (
    "reorder: {grace: 1s}",
    "deduplicate: {by: key+id, id: 'of_user:identity', interval: 1h}",
)
LAST = record(b"k", b"last", 99_000)


def make(make_pipeline: MakePipeline) -> Pipeline:
    """A pipeline whose second operator fails on what begins with bad, once it was processed."""
    pipeline = make_pipeline(*OPERATORS)
    (pipeline.folder / "of_user.py").write_text(MODULE)
    return pipeline


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_the_rest_goes_on_and_nobody_else_is_dead(
    make_pipeline: MakePipeline, guarantee: str
) -> None:
    pipeline = make(make_pipeline)
    values = [b"bad %d" % at if at % 50 == 7 else b"%d" % at for at in range(300)]
    pipeline.produce([*(record(b"k", value, at) for at, value in enumerate(values)), LAST])
    sidecar = pipeline.start(guarantee=guarantee)
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    good = [value for value in values if not value.startswith(b"bad")]
    assert [value for _, value, *_ in contents(pipeline.cleaned())] == good
    letters = [read_dead(one) for one in pipeline.beside("dead")]
    told = [(one.record.value, one.operator, one.reason, one.exception) for one in letters if one]
    assert told == [
        (value, "deduplicate", Reason.FAILED, "builtins.TypeError")
        for value in values
        if value.startswith(b"bad")
    ]
    assert sidecar.log.count("an operator failed on a record") == 1


def test_who_wants_to_stop_stops_at_the_record(make_pipeline: MakePipeline) -> None:
    pipeline = make(make_pipeline)
    pipeline.write(*OPERATORS, on_failure="stop")
    values = [b"1", b"2", b"bad", b"4"]
    pipeline.produce([*(record(b"k", value, at) for at, value in enumerate(values)), LAST])
    for _ in range(2):
        sidecar = pipeline.start()
        assert sidecar.wait() == FAILED, sidecar.log
        assert "Traceback" not in sidecar.log
        assert sidecar.last_words == (
            f"`deduplicate` failed on the record of {pipeline.source}/0 at offset 2"
            " (TypeError: a mistake of ours); mend what failed, or remove `on-failure: stop`, so"
            " that such records go to the dead-letter topic"
        )
        # They are held until the last record comes, which releases them, the bad one too.
        assert pipeline.committed()[pipeline.source, 0] == len(values)
        assert pipeline.cleaned() == []
    (pipeline.folder / "of_user.py").write_text(MODULE.replace('b"bad"', 'b"never"'))
    sidecar = pipeline.start()
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    assert [value for _, value, *_ in contents(pipeline.cleaned())] == values
