"""The judge accepts right decisions of any draw, and finds missing and doubled ones."""

from __future__ import annotations

from itertools import islice

import pytest

from headrace.contracts.record import Record
from headrace.services.emit.asides import decision_records
from headrace.services.operators.chain import Chain
from headrace.services.operators.operator import Batch
from headrace.services.state.memory import MemoryStore
from headrace.services.state.overlay import Overlay
from tests.kill.farm.decisions import decision_problems
from tests.kill.farm.draw import Drawn, draw
from tests.kill.pipelines import RAW
from tests.kill.stream import POISON_MS, Stream


def _one_of_each_shape() -> list[Drawn]:
    # Strikes would be most of the work, and nobody strikes here.
    drawn = [draw(seed, strikes=0) for seed in range(300)]
    drawn = [one for one in drawn if len(one.case.spec.hops()) == 1]
    return list({str(one.case.spec.operators): one for one in drawn}.values())[:60]


def _taken_and_decided(run: Drawn) -> tuple[list[Record], list[Record]]:
    portions = islice(Stream(RAW, 1, seed=1).portions(40), 20)
    records = [one for portion in portions for one in portion.records]
    believed = [one for one in records if one.timestamp_ms < POISON_MS]
    taken = [one._replace(offset=offset) for offset, one in enumerate(believed)]
    chain = Chain(run.case.spec.operators, Overlay(MemoryStore(), "p").view, explain=True)
    return taken, list(decision_records(chain.process(Batch.of(taken)).decisions))


@pytest.mark.parametrize("run", _one_of_each_shape(), ids=lambda run: f"{run.shape} {run.seed}")
def test_the_judge_agrees_with_what_operators_decide(run: Drawn) -> None:
    taken, decided = _taken_and_decided(run)
    operator = run.case.spec.operators[0].name
    assert operator is not None
    assert list(decision_problems(operator, taken, decided)) == []


def test_a_decision_that_is_missing_doubled_or_of_nobody_is_found() -> None:
    run = next(one for one in _one_of_each_shape() if one.shape == "deduplicate by key")
    taken, decided = _taken_and_decided(run)
    (missing,) = decision_problems("deduplicate", taken, decided[1:])
    assert "1 offsets have no verdict" in missing
    (doubled,) = decision_problems("deduplicate", taken, [*decided, decided[0]])
    assert "1 offsets have several" in doubled
    (strange,) = decision_problems("deduplicate", taken[1:], decided)
    assert "1 offsets were never taken" in strange
