"""A record that an operator fails on is dead by itself, whatever was fetched with it."""

from __future__ import annotations

import pytest

from headrace.contracts.dead_letter import read_dead
from headrace.contracts.decision import Reason
from tests.kafka.any_names import produce_any_names
from tests.runtime.sidecar import MakePipeline, Pipeline, contents, record

FAILED = 8
MODULE = """
from headrace.services.operators.deduplicate import Deduplicate

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
BROKEN = """
from pathlib import Path

from headrace.services.operators.deduplicate import Deduplicate

save = Deduplicate.save


def fail(self):
    if Path("broken").exists():
        raise TypeError("a mistake of ours")
    save(self)


def identity(record):
    return record.value


Deduplicate.save = fail
"""
NONSENSE = """
class Truthless:
    def __bool__(self):
        raise ValueError("no truth value")


def is_wanted(record):
    return Truthless() if record.value == b"-1" else True
"""
LARGE = b"1e308"
"""Two of them are more than any floating-point number."""
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


def test_no_record_of_nonsense_stops_a_pipeline(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(
        "filter: {where: 'of_user:is_wanted'}",
        "reorder: {grace: 1s}",
        "aggregate: {function: sum, window: {kind: tumbling, size: 1h, grace: 0s}}",
        "suppress: {until: window-closes}",
    )
    (pipeline.folder / "of_user.py").write_text(NONSENSE)
    window = ("headrace.window", b"tumbling:0:" + b"9" * 500)
    nonsense = [
        record(b"k", b"1", 5, (("\udcff", b""),)),
        record(b"k", b"1", 5, (("h", b""),) * (1 << 16)),
        record(b"k", b"1", (1 << 63) - 1),
        record(b"k", b"-1", 5),
        record(b"k", LARGE, 5),
    ]
    records = [record(b"k", LARGE, 4), *(record(b"k", b"1", at, (window,)) for at in range(300))]
    for place, one in enumerate(nonsense):
        records.insert(1 + place * 50, one)
    records += [record(b"other", b"1", 9_000_000), record(b"other", b"1", 99_000_000)]
    produce_any_names(pipeline.clients.servers, pipeline.source, records)
    sidecar = pipeline.start()
    # The tests' own reader cannot read such names either.
    pipeline.wait_until_committed({(pipeline.source, 0): len(records)})
    assert sidecar.stop() == 0, sidecar.log
    assert "Traceback" not in sidecar.log
    letters = [letter for one in pipeline.beside("dead") if (letter := read_dead(one))]
    assert [(letter.reason, letter.detail) for letter in letters] == [
        (Reason.UNDECODABLE, "the name of one of its headers is not UTF-8"),
        (Reason.UNDECODABLE, "it has 65536 headers, more than state has room for"),
        (
            Reason.UNDECODABLE,
            "its timestamp is behind the year 294246; perhaps it counts no milliseconds",
        ),
        (Reason.FAILED, "`of_user:is_wanted` raised ValueError"),
        (Reason.FAILED, "with it the result would be larger than any floating-point number"),
    ]
    assert [letter.record.value for letter in letters] == [one.value for one in nonsense]
    # One orjson writes 1e308, another 1e+308.
    assert [float(value or b"") for _, value, *_ in contents(pipeline.cleaned())] == [1e308]


def test_a_pipeline_that_wants_to_stop_stops_at_the_record(make_pipeline: MakePipeline) -> None:
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


def test_where_no_record_is_to_blame_none_is_dead(make_pipeline: MakePipeline) -> None:
    pipeline = make(make_pipeline)
    (pipeline.folder / "of_user.py").write_text(BROKEN)
    (pipeline.folder / "broken").touch()
    pipeline.produce([*(record(b"k", b"%d" % at, at) for at in range(10)), LAST])
    sidecar = pipeline.start()
    sidecar.wait_for("no record is to blame")
    assert pipeline.committed() == {}
    (pipeline.folder / "broken").unlink()
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    assert [value for _, value, *_ in contents(pipeline.cleaned())] == [
        b"%d" % at for at in range(10)
    ]
    assert pipeline.beside("dead") == []


def test_a_partition_that_rests_before_it_tries_again_holds_up_no_stop(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make(make_pipeline)
    (pipeline.folder / "of_user.py").write_text(BROKEN)
    (pipeline.folder / "broken").touch()
    sidecar = pipeline.start(shutdown_timeout="1s")
    sidecar.wait_for("again_in_s=4.0")
    assert sidecar.stop() == 0
    assert "did not commit in time" not in sidecar.log


def test_behind_a_repartition_the_first_of_many_failing_records_alone_breaks_a_transaction(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline(
        "deduplicate: {by: id, id: header.id, interval: 1h}",
        "reorder: {grace: 1s}",
        "deduplicate: {name: again, by: key+id, id: 'of_user:identity', interval: 1h}",
    )
    (pipeline.folder / "of_user.py").write_text(MODULE)
    sidecar = pipeline.start()
    good, bad = [], []
    for start_ms in range(0, 100_000, 10_000):
        values = [b"%d" % at_ms for at_ms in range(start_ms, start_ms + 1_000, 100)]
        values[5] = b"bad %d" % start_ms
        pipeline.produce(
            record(b"k", value, start_ms + 100 * at, (("id", value),))
            for at, value in enumerate(values)
        )
        pipeline.wait_until_done()
        good += [*values[:5], *values[6:]]
        bad.append(values[5])
    pipeline.produce([record(b"k", b"last", 200_000, (("id", b"last"),))])
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    assert [value for _, value, *_ in contents(pipeline.cleaned())] == good
    letters = [read_dead(one) for one in pipeline.beside("dead")]
    assert [one.record.value for one in letters if one] == bad
    assert sidecar.log.count("a batch failed, and is done record by record") == 1
