"""How far a chain is: the lowest timestamp that a later record on time can still have.

Every operator that waits promises something: a reorder, that nothing on time comes out earlier
than what it holds, or than stream time less grace; a windowed result, that its timestamp lies in a
window that is still open. Where no operator waits, the latest timestamp is all there is to say: an
earlier record would come against no promise.
"""

from __future__ import annotations

from collections.abc import Sequence

from contracts.policies import (
    AggregatePolicy,
    AnyOperator,
    Hopping,
    ReorderPolicy,
    Session,
    Sliding,
    SuppressPolicy,
    Tumbling,
    Unlimited,
    Window,
)
from services.operators.aggregate import Aggregate
from services.operators.chain import Chain
from services.operators.operator import Operator
from services.operators.reorder import Reorder
from services.operators.suppress import Suppress


def progress_ms(policies: Sequence[AnyOperator], chain: Chain) -> int:
    """The lowest timestamp that a later record on time can still have when it leaves the chain."""
    reached_ms: int | None = None
    for policy, operator in zip(policies, chain.operators, strict=True):
        reached_ms = _behind(policy, operator, reached_ms)
    return chain.lateness.time_ms if reached_ms is None else reached_ms


def _behind(policy: AnyOperator, operator: Operator, before_ms: int | None) -> int | None:
    match policy, operator:
        case ReorderPolicy(), Reorder():
            if policy.grace_ms == 0:
                return before_ms
            passed_ms = operator.stream_time_ms - policy.grace_ms
            return _least(operator.held_from_ms, _most(before_ms, passed_ms))
        case AggregatePolicy(), Aggregate():
            return _aggregated(policy, operator.stream_time_ms, before_ms)
        case SuppressPolicy(), Suppress():
            return _suppressed(policy, operator, before_ms)
        case _:
            return before_ms


def _aggregated(policy: AggregatePolicy, time_ms: int, before_ms: int | None) -> int | None:
    """A result's timestamp is at least that of the record that changed it.

    A session that another one takes up leaves a tombstone, which has its own, earlier time.
    """
    window = policy.window
    if window is None or isinstance(window, Unlimited):
        return before_ms
    open_from_ms = time_ms - window.grace_ms - _span_ms(window)
    if before_ms is None or isinstance(window, Session):
        return _least(before_ms, open_from_ms)
    return before_ms


def _suppressed(policy: SuppressPolicy, suppress: Suppress, before_ms: int | None) -> int | None:
    window = policy.window
    if policy.until == "time-limit":
        return _least(suppress.held_from_ms, before_ms)
    # A pipeline that waits for windows that never close is refused when it is read.
    assert window is not None
    assert not isinstance(window, Unlimited)
    return suppress.stream_time_ms - window.grace_ms - _span_ms(window)


def _span_ms(window: Window) -> int:
    """How far from its end, when it closes, a window's result may be dated."""
    match window:
        case Tumbling() | Hopping():
            return window.size_ms
        case Session():
            return window.gap_ms
        case Sliding():
            return window.difference_ms
        case Unlimited():
            return 0


def _least(one_ms: int | None, other_ms: int | None) -> int | None:
    known = [value for value in (one_ms, other_ms) if value is not None]
    return min(known) if known else None


def _most(one_ms: int | None, other_ms: int) -> int:
    return other_ms if one_ms is None else max(one_ms, other_ms)
