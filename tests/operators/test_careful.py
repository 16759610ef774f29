"""A stage goes back to what stood before a record on which it fails, its rows included."""

from __future__ import annotations

import pytest

from headrace.contracts.decision import Reason
from headrace.contracts.errors import StateUnavailable
from headrace.contracts.policies import ReorderPolicy
from headrace.services.operators.careful import Stage, before, go_back
from headrace.services.operators.chain import Chain
from headrace.services.operators.operator import Batch, Counts, Operator, Step, View
from headrace.services.state.memory import MemoryStore
from headrace.services.state.overlay import Overlay
from tests.operators.service import PIPELINE, record


class Fragile:
    """Remembers every record, first in its view and then by heart, and fails in between."""

    name = "fragile"

    def __init__(self, view: View) -> None:
        self.counts = Counts(0)
        self._view = view
        self._count = len(list(view.range(view.prefix, view.prefix + b"\xff")))

    def process(self, batch: Batch) -> Step:
        """Forward what is good, with the number of those before it."""
        self.counts.taken += len(batch.records)
        for one in batch.records:
            self._view.put_many({self._view.prefix + (one.value or b""): b""})
            self._count += 1
            if one.value == b"full":
                message = "no room"
                raise StateUnavailable(message)
            if one.value == b"bad":
                raise ZeroDivisionError
        self.counts.forwarded += len(batch.records)
        records = [one._replace(value=b"%d" % self._count) for one in batch.records]
        return Step(Batch(records, batch.causes))

    def save(self) -> None:
        """All of it is in the view."""


def stage_over(view: View, row_bytes_max: int = 1_000) -> Stage:
    """The operator alone."""

    def rebuild() -> list[Operator]:
        return [Fragile(view)]

    return Stage(rebuild(), [view], rebuild, row_bytes_max)


def test_all_of_a_batch_is_undone() -> None:
    view = Overlay(MemoryStore(), PIPELINE).view("fragile")
    operators: list[Operator] = [Fragile(view)]
    operators[0].process(Batch.of([record(0, value=b"a")]))
    state = before(operators, [view])
    with pytest.raises(ZeroDivisionError):
        operators[0].process(Batch.of([record(1, value=b"b"), record(2, value=b"bad")]))
    operators = go_back(state, [view], lambda: [Fragile(view)])
    assert list(view.pending) == [view.prefix + b"a"]
    assert operators[0].counts == Counts(0, taken=1, forwarded=1)
    step = operators[0].process(Batch.of([record(3, value=b"c")]))
    assert [one.value for one in step.forwarded.records] == [b"2"]


def test_it_forgets_rows_and_counts_of_the_record_that_failed() -> None:
    overlay = Overlay(MemoryStore(), PIPELINE)
    view = overlay.view("fragile")
    stage = stage_over(view)
    records = [record(at, value=value) for at, value in enumerate((b"a", b"bad", b"b", b"bad"))]
    step = stage.process(Batch.of(records))
    assert [one.value for one in step.forwarded.records] == [b"1", b"2"]
    assert step.forwarded.causes == [0, 2]
    assert [(aside.cause, aside.record, aside.reason) for aside in step.dead] == [
        (1, records[1], Reason.FAILED),
        (3, records[3], Reason.FAILED),
    ]
    assert step.dead[0].exception == "builtins.ZeroDivisionError"
    assert "in process" in step.dead[0].stacktrace
    assert sorted(view.pending) == [view.prefix + b"a", view.prefix + b"b"]
    (operator,) = stage.operators
    assert (operator.counts.taken, operator.counts.failed, operator.counts.balance()) == (4, 2, 0)


def test_a_record_that_makes_a_row_too_large_is_dead_by_itself() -> None:
    overlay = Overlay(MemoryStore(), PIPELINE)
    view = overlay.view("fragile")
    stage = stage_over(view, row_bytes_max=len(view.prefix) + 10)
    records = [record(at, value=bytes([at]) * size) for at, size in enumerate((10, 11, 3))]
    step = stage.process(Batch.of(records))
    assert step.forwarded.causes == [0, 2]
    assert [(aside.cause, aside.reason) for aside in step.dead] == [(1, Reason.TOO_LARGE)]
    kept = [bytes([0]) * 10, bytes([2]) * 3]
    assert sorted(view.pending) == [view.prefix + one for one in kept]


def test_a_wary_chain_undoes_a_batch_of_which_a_record_makes_a_row_too_large() -> None:
    reorder = ReorderPolicy(name="reorder", store="reorder", grace_ms=10_000)
    chain = Chain([reorder], Overlay(MemoryStore(), PIPELINE).view, row_bytes_max=500)
    chain.save()
    records = [record(at, value=bytes(size)) for at, size in enumerate((10, 1_000, 20))]
    step = chain.process(Batch.of(records), warily=True)
    assert [(aside.cause, aside.reason) for aside in step.dead] == [(1, Reason.TOO_LARGE)]
    step = chain.process(Batch.of([record(60_000)]), warily=True)
    assert step.forwarded.records == [records[0], records[2]]


def test_no_record_is_to_blame_for_a_full_disk() -> None:
    stage = stage_over(Overlay(MemoryStore(), PIPELINE).view("fragile"))
    with pytest.raises(StateUnavailable):
        stage.process(Batch.of([record(1, value=b"full")]))
