"""How far a chain is: the lowest timestamp that a later record on time can still have.

Every operator that waits promises something: a reorder, that nothing on time comes out earlier
than what it holds, or than stream time less grace; a windowed result, that its timestamp lies in a
window that is still open. Where no operator waits, the latest timestamp is all there is to say: an
earlier record would come against no promise.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.contracts.policies import (
    AggregatePolicy,
    AnyOperator,
    MergePolicy,
    ReorderPolicy,
    Session,
    SuppressPolicy,
    Unlimited,
)
from headrace.services.operators.aggregate import Aggregate
from headrace.services.operators.chain import Chain
from headrace.services.operators.operator import Operator
from headrace.services.operators.reorder import Reorder
from headrace.services.operators.suppress import Suppress
from headrace.services.operators.waits import span_ms


def progress_ms(policies: Sequence[AnyOperator], chain: Chain) -> int:
    """The lowest timestamp that a later record on time can still have when it leaves the chain."""
    reached_ms: int | None = None
    for policy, operator in zip(policies, chain.operators, strict=True):
        reached_ms = _behind(policy, operator, reached_ms)
    return chain.time_ms if reached_ms is None else reached_ms


def _behind(policy: AnyOperator, operator: Operator, before_ms: int | None) -> int | None:
    match policy, operator:
        case MergePolicy(), Reorder():
            return _least(operator.held_from_ms, _most(before_ms, operator.stream_time_ms))
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
    open_from_ms = time_ms - window.grace_ms - span_ms(window)
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
    return suppress.stream_time_ms - window.grace_ms - span_ms(window)


def _least(one_ms: int | None, other_ms: int | None) -> int | None:
    known = [value for value in (one_ms, other_ms) if value is not None]
    return min(known) if known else None


def _most(one_ms: int | None, other_ms: int) -> int:
    return other_ms if one_ms is None else max(one_ms, other_ms)
