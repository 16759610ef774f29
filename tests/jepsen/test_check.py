"""Each anomaly is planted once, and found; what is right is left alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.jepsen.check import Kind, anomalies
from tests.jepsen.history import End, Finished, History, Outcome, Read, Write


def _right() -> History:
    """Two writers, three transactions of which one is aborted, and two readers."""
    return [
        Write("plain", 0, "a1", "yes"),
        Write("plain", 0, "a2", "yes"),
        Write("plain", 1, "a3", "unknown"),
        Write("plain", 1, "a4", "no"),
        Write("t", 0, "b1", "yes", "t1"),
        Write("t", 1, "b2", "yes", "t1"),
        End("t1", "commit", "yes"),
        Write("t", 0, "c1", "yes", "t2"),
        End("t2", "abort", "yes"),
        Write("t", 0, "d1", "yes", "t3"),
        Write("t", 1, "d2", "yes", "t3"),
        End("t3", "commit", "unknown"),
        *(
            event
            for reader in ("r1", "r2")
            for event in (
                Read(reader, 0, 0, "a1"),
                Read(reader, 0, 1, "b1"),
                Read(reader, 0, 3, "a2"),
                Read(reader, 1, 0, "b2"),
                Finished(reader),
            )
        ),
    ]


def _without(value: str) -> Callable[[History], None]:
    def change(history: History) -> None:
        history[:] = [one for one in history if not (isinstance(one, Read) and one.value == value)]

    return change


def _with(*reads: Read) -> Callable[[History], None]:
    def change(history: History) -> None:
        history += reads

    return change


def _swap(history: History) -> None:
    """The first reader is given two values of one writer the other way round."""
    first, second = history.index(Read("r1", 0, 0, "a1")), history.index(Read("r1", 0, 3, "a2"))
    history[first], history[second] = Read("r1", 0, 0, "a2"), Read("r1", 0, 3, "a1")


def test_a_right_history_is_found_right() -> None:
    assert anomalies(_right()) == []


def test_a_write_of_unknown_outcome_may_have_happened() -> None:
    history = _right()
    _with(Read("r1", 1, 3, "a3"), Read("r1", 0, 9, "d1"), Read("r1", 1, 9, "d2"))(history)
    assert anomalies(history) == []


@pytest.mark.parametrize(
    ("kinds", "change"),
    [
        ({"lost"}, _without("a1")),
        ({"lost", "torn"}, _without("b2")),
        ({"aborted read"}, _with(Read("r1", 0, 9, "c1"))),
        ({"aborted read"}, _with(Read("r1", 1, 9, "a4"))),
        ({"phantom"}, _with(Read("r1", 0, 9, "nobody's"))),
        ({"phantom"}, _with(Read("r1", 1, 9, "c1"))),
        ({"duplicate"}, _with(Read("r1", 0, 9, "a2"))),
        ({"torn"}, _with(Read("r1", 0, 9, "d1"))),
        ({"disagreement"}, _with(Read("r2", 0, 9, "d1"), Read("r1", 0, 9, "a3"))),
        ({"order"}, _with(Read("r1", 0, 2, "d1"), Read("r1", 1, 9, "d2"))),
        ({"order", "disagreement"}, _swap),
    ],
)
def test_an_anomaly_that_is_planted_is_found(
    kinds: set[Kind], change: Callable[[History], None]
) -> None:
    history = _right()
    change(history)
    assert {one.kind for one in anomalies(history)} >= kinds


@pytest.mark.parametrize("outcome", ["no", "unknown"])
def test_a_commit_that_failed_or_nobody_answered_loses_nothing(outcome: Outcome) -> None:
    history: History = [
        Write("t", 0, "b1", "yes", "t1"),
        End("t1", "commit", outcome),
        Finished("r1"),
    ]
    assert anomalies(history) == []


def test_a_transaction_that_nobody_ended_is_torn_where_a_part_of_it_is_read() -> None:
    history: History = [
        Write("t", 0, "b1", "yes", "t1"),
        Write("t", 1, "b2", "yes", "t1"),
        Read("r1", 0, 0, "b1"),
        Finished("r1"),
    ]
    assert [one.kind for one in anomalies(history)] == ["torn"]


def test_an_unfinished_run_has_lost_nothing() -> None:
    history: History = [one for one in _right() if not isinstance(one, Finished)]
    _without("a1")(history)
    _without("b2")(history)
    assert anomalies(history) == []
