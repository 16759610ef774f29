"""No record stops a pipeline, none is lost, and none meets anything for the company it came in."""

from __future__ import annotations

from random import Random

import pytest

from headrace.contracts.decision import Reason
from headrace.contracts.record import Record
from headrace.services.operators.chain import Chain
from headrace.services.operators.operator import Aside, Batch, Step
from tests.chance import seed_of_run
from tests.nonsense import streams
from tests.nonsense.judge import Outcome, differences, run
from tests.nonsense.records import TOPIC, stream
from tests.nonsense.shapes import shapes

RECORDS_EACH = 80


def test_nonsense_through_every_operator_and_selector() -> None:
    seed = seed_of_run()
    found = [
        (judged.name, said)
        for judged in streams.judged(seed, RECORDS_EACH)
        for said in judged.complaints
    ]
    assert found == [], f"seed {seed}"


def plain(count: int) -> list[Record]:
    """Records without a fault."""
    return [Record(b"k", b"{}", at, (), TOPIC, 0, at) for at in range(count)]


def judged_with(monkeypatch: pytest.MonkeyPatch, broken: object, cut: int = 5) -> Outcome:
    """The judge's verdict on a chain that is broken."""
    monkeypatch.setattr(Chain, "process", broken)
    return run(shapes()["table"], plain(20), cut)


def test_the_judge_hears_of_what_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    def leaves(_chain: Chain, _batch: Batch, *, carefully: bool = False) -> Step:
        raise ZeroDivisionError(carefully)

    (said,) = judged_with(monkeypatch, leaves).complaints
    assert "ZeroDivisionError: True" in said


def test_the_judge_misses_what_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Chain.process

    def loses(chain: Chain, batch: Batch, *, carefully: bool = False) -> Step:
        step = whole(chain, batch, carefully=carefully)
        chain.operators[0].counts.forwarded -= 1
        return step

    said = judged_with(monkeypatch, loses).complaints
    assert "records were lost or invented: {'table': 1}" in said[0]


def test_the_judge_compares_a_letter_with_its_record(monkeypatch: pytest.MonkeyPatch) -> None:
    def forges(_chain: Chain, batch: Batch, *, carefully: bool = False) -> Step:
        del carefully
        forged = batch.records[0]._replace(headers=(("__streams.errors.exception", b""),))
        dead = [Aside(0, "intake", forged, Reason.FAILED, "")]
        return Step(Batch([], []), dead=dead)

    said = judged_with(monkeypatch, forges).complaints
    assert "a dead record is not what it was" in said[0]


def test_the_judge_sees_what_depends_on_company(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Chain.process

    def counts(chain: Chain, batch: Batch, *, carefully: bool = False) -> Step:
        step = whole(chain, batch, carefully=carefully)
        size = b"%d" % len(batch.records)
        step.forwarded.records = [one._replace(value=size) for one in step.forwarded.records]
        return step

    one, other = (judged_with(monkeypatch, counts, cut) for cut in (5, 4))
    assert "the record at 0 met" in next(differences(one, other))


def test_a_seed_gives_the_same_stream_again() -> None:
    assert [*stream(Random(7), 500)] == [*stream(Random(7), 500)]
