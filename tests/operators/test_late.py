"""The policy chooses where a late record goes, at each operator."""

from __future__ import annotations

import pytest

from headrace.contracts.decision import Reason, Verdict
from headrace.contracts.policies import (
    AggregatePolicy,
    AnyOperator,
    DeduplicatePolicy,
    DistinctPolicy,
    Hopping,
    ReorderPolicy,
    Session,
    Sliding,
    Tumbling,
    Window,
)
from headrace.services.operators.operator import Aside
from tests.operators.service import Service, left, record

CLOSED: tuple[Window, ...] = (
    Tumbling(size_ms=10, grace_ms=5),
    Hopping(size_ms=10, advance_ms=5, grace_ms=5),
    Session(gap_ms=10, grace_ms=5),
    Sliding(difference_ms=10, grace_ms=5),
)
every_window = pytest.mark.parametrize("window", CLOSED, ids=lambda window: window.kind)
DISTINCT = tuple(window for window in CLOSED if isinstance(window, Tumbling | Session))
NOW = record(100, b"now")
LATE = record(3, b"late")


def forwarding() -> list[AnyOperator]:
    """Operators that let late records pass."""
    return [
        ReorderPolicy(grace_ms=5, late="forward"),
        DeduplicatePolicy(interval_ms=5, late="forward"),
    ]


def dropping() -> list[AnyOperator]:
    """Operators that drop late records."""
    return [
        ReorderPolicy(grace_ms=5, late="drop"),
        DeduplicatePolicy(interval_ms=5, late="drop"),
        *(DistinctPolicy(window=window, late="drop") for window in DISTINCT),
        *(AggregatePolicy(function="count", window=window, late="drop") for window in CLOSED),
    ]


def setting_aside() -> list[AnyOperator]:
    """The same operators, with a topic for late records."""
    return [policy.model_copy(update={"late": "topic"}) for policy in dropping()]


def reason_of(policy: AnyOperator) -> Reason:
    """The records that the operator calls late."""
    return Reason.PAST_INTERVAL if isinstance(policy, DeduplicatePolicy) else Reason.PAST_GRACE


@pytest.mark.parametrize("policy", forwarding(), ids=lambda policy: policy.kind)
def test_a_late_record_that_is_forwarded_leaves_at_once_and_as_itself(
    policy: AnyOperator,
) -> None:
    service = Service(policy, explain=True)
    service.take(NOW)
    step = service.take(LATE)
    assert left(step) == [LATE]
    assert (step.late, step.dead) == ([], [])
    assert [(one.verdict, one.reason) for one in step.decisions] == [
        (Verdict.FORWARDED, reason_of(policy))
    ]
    assert service.chain.operators[0].counts.late == 0


@pytest.mark.parametrize("policy", dropping(), ids=str)
def test_a_late_record_that_is_dropped_is_counted_by_its_reason(policy: AnyOperator) -> None:
    service = Service(policy, explain=True)
    service.take(NOW)
    step = service.take(LATE)
    assert (left(step), step.late, step.dead) == ([], [], [])
    assert service.chain.operators[0].counts.dropped == {reason_of(policy): 1}
    assert [(one.verdict, one.reason) for one in step.decisions] == [
        (Verdict.DROPPED, reason_of(policy))
    ]


@pytest.mark.parametrize("policy", setting_aside(), ids=str)
def test_a_late_record_that_is_set_aside_is_the_record_that_came(policy: AnyOperator) -> None:
    service = Service(policy, explain=True)
    service.take(NOW)
    step = service.take(NOW._replace(timestamp_ms=101), LATE)
    (aside,) = step.late
    assert aside[:4] == (1, policy.kind, LATE, reason_of(policy))
    assert aside.record is LATE
    assert LATE not in left(step)
    counts = service.chain.operators[0].counts
    assert (counts.late, reason_of(policy) in counts.dropped) == (1, False)
    last = [one for one in step.decisions if one.record is LATE]
    assert [(one.verdict, one.reason) for one in last] == [(Verdict.LATE, reason_of(policy))]


@pytest.mark.parametrize(
    ("policy", "detail"),
    [
        (ReorderPolicy(grace_ms=5, late="topic"), "92 ms past the grace of 5 ms"),
        (DeduplicatePolicy(interval_ms=5, late="topic"), "92 ms past the interval of 5 ms"),
        (
            DistinctPolicy(window=DISTINCT[0], late="topic"),
            "its window was closed at stream time 100",
        ),
        (
            AggregatePolicy(function="count", window=CLOSED[0], late="topic"),
            "1 windows were closed at stream time 100",
        ),
        (
            AggregatePolicy(
                function="count",
                window=Hopping(size_ms=10, advance_ms=1, grace_ms=5),
                late="topic",
            ),
            "4 windows were closed at stream time 100",
        ),
    ],
)
def test_a_late_record_says_by_how_much(policy: AnyOperator, detail: str) -> None:
    service = Service(policy)
    service.take(NOW)
    assert service.take(LATE).late == [Aside(0, policy.kind, LATE, reason_of(policy), detail)]


@every_window
def test_every_window_that_refuses_a_record_is_counted(window: Window) -> None:
    service = Service(AggregatePolicy(function="count", window=window))
    service.take(NOW)
    service.take(LATE)
    assert service.chain.operators[0].counts.windows_refused == 1


def test_a_record_that_is_late_for_some_windows_is_not_late() -> None:
    window = Hopping(size_ms=10, advance_ms=5, grace_ms=0)
    service = Service(AggregatePolicy(function="count", window=window, late="topic"))
    service.take(record(15))
    # [0, 10) and [5, 15) are closed; of a record at 12, only [10, 20) is not.
    step = service.take(record(12))
    assert (len(left(step)), step.late) == (1, [])
    assert service.chain.operators[0].counts.windows_refused == 1


def test_a_late_duplicate_is_a_duplicate_as_long_as_it_is_known() -> None:
    policy = DeduplicatePolicy(interval_ms=10, late="topic")
    service = Service(policy, explain=True)
    service.take(record(100))
    service.take(record(105, b"other"))
    step = service.take(record(94))
    assert step.late == []
    assert [one.reason for one in step.decisions] == [Reason.DUPLICATE]


@pytest.mark.parametrize("policy", [*forwarding(), *dropping(), *setting_aside()], ids=str)
def test_a_late_record_moves_no_time_and_leaves_no_trace(policy: AnyOperator) -> None:
    service = Service(policy)
    service.take(NOW)
    before = dict(service.store.range(b"", b"\xff"))
    service.take(LATE)
    assert dict(service.store.range(b"", b"\xff")) == before
