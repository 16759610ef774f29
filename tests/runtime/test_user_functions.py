"""A user's functions, from the folder that the sidecar was started in; what they raise is dead."""

from __future__ import annotations

import pytest

from headrace.contracts.dead_letter import read_dead
from headrace.contracts.decision import Reason
from tests.runtime.sidecar import MakePipeline, contents, record

MODULE = """
def identity(record):
    return record.value[:1]

def is_wanted(record):
    if record.value == b"1 fails":
        raise OSError("secret")
    return record.value != b"2 unwanted"

class Joined:
    def initial(self):
        return b""

    def add(self, aggregate, record):
        if record.value == b"3 fails":
            raise ValueError("secret")
        return aggregate + record.value[:1]

    def merge(self, one, other):
        return one + other
"""


def test_a_record_on_which_a_users_function_raises_is_dead_and_the_rest_goes_on(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline(
        "filter: {where: 'of_user:is_wanted'}",
        "deduplicate: {by: key+id, id: 'of_user:identity', interval: 1h}",
        "aggregate: {function: 'of_user:Joined'}",
    )
    (pipeline.folder / "of_user.py").write_text(MODULE)
    values = [b"1 fails", b"2 unwanted", b"3 fails", b"4", b"5", b"4 again", b"6"]
    pipeline.produce([record(b"k", value, at) for at, value in enumerate(values)])
    sidecar = pipeline.start()
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    cleaned = contents(pipeline.cleaned())
    assert [value for _, value, *_ in cleaned] == [b"4", b"45", b"456"]
    letters = [read_dead(one) for one in pipeline.beside("dead")]
    told = [(one.operator, one.reason, one.detail, one.record.offset) for one in letters if one]
    assert told == [
        ("filter", Reason.FAILED, "`of_user:is_wanted` raised OSError", 0),
        ("aggregate", Reason.FAILED, "`of_user:Joined` raised ValueError in `add`", 2),
    ]
    assert "secret" not in sidecar.log


def test_a_function_that_cannot_be_found_ends_with_2_and_a_sentence(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline("filter: {where: 'not_there:is_wanted'}")
    sidecar = pipeline.start()
    assert sidecar.wait() == 2
    assert "Traceback" not in sidecar.log
    assert "there is no module `not_there`" in sidecar.last_words


SLOW = """
import time


def is_wanted(record):
    time.sleep(0.03)
    return True
"""


@pytest.mark.long("outages", why="it waits for a transaction to time out")
def test_a_slow_function_does_not_outlive_its_transaction(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline("filter: {where: 'of_user:is_wanted'}")
    (pipeline.folder / "of_user.py").write_text(SLOW)
    pipeline.produce([record(b"k", b"%d" % at, at) for at in range(200)])
    sidecar = pipeline.start(transaction_timeout="2s")
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    assert len(pipeline.cleaned()) == 200
    assert "a partition failed" not in sidecar.log
