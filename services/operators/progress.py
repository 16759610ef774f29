"""How far a chain is: the lowest timestamp that a later record on time can still have.

Every operator that waits makes a promise. A reorder promises that no record on time comes out
earlier than those it holds, or than stream time less grace. A windowed result promises that its
timestamp lies in a window that is still open. If no operator waits, there is no promise, and the
latest timestamp is the answer.
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
    Window,
)
from headrace.services.operators.aggregate import Aggregate
from headrace.services.operators.chain import Chain
from headrace.services.operators.operator import Operator
from headrace.services.operators.reorder import Reorder
from headrace.services.operators.suppress import Suppress
from headrace.services.operators.waits import span_ms


def progress_ms(policies: Sequence[AnyOperator], chain: Chain) -> int:
    """Return the lowest timestamp that a later record on time can have when it leaves the chain."""
    reached_ms: int | None = None
    for policy, operator in zip(policies, chain.operators, strict=True):
        reached_ms = _behind(policy, operator, reached_ms)
    return chain.time_ms if reached_ms is None else reached_ms


def left_through_ms(chain: Chain) -> int:
    """Return a time up to which records have left the chain: none that left is later.

    Records that a reorder holds do not count: a reader that has gone no further finds them on time.
    """
    reorders = (operator for operator in chain.operators if isinstance(operator, Reorder))
    said = (operator.left_through_ms for operator in reorders)
    return min([chain.lateness.time_ms, *(time_ms for time_ms in said if time_ms is not None)])


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
    """Return the progress behind an aggregate.

    A result's timestamp is at least that of the record that changed it. But a session that another
    one takes up leaves a tombstone, which has its own, earlier time.
    """
    window = policy.window
    if window is None or isinstance(window, Unlimited):
        return before_ms
    if before_ms is None or isinstance(window, Session):
        return _least(before_ms, _open_from_ms(window, time_ms))
    return before_ms


def _suppressed(policy: SuppressPolicy, suppress: Suppress, before_ms: int | None) -> int | None:
    window = policy.window
    if policy.until == "time-limit":
        held_ms = suppress.held_from_ms
        # Where no operator before it waits, an update that is earlier than its place came late.
        late_ms = None if before_ms is None else suppress.laggards.least_ms
        return _least(_least(held_ms, late_ms), before_ms)
    # Reading a pipeline refuses one that waits for windows that never close.
    assert window is not None
    open_ms = _open_from_ms(window, suppress.stream_time_ms)
    # Behind a restart with a shorter grace, results are due that leave with the next record. A
    # session's result has the time at which the session ends.
    held_ms = suppress.held_from_ms
    if held_ms is not None and not isinstance(window, Session):
        held_ms -= span_ms(window)
    return open_ms if held_ms is None else min(held_ms, open_ms)


def _open_from_ms(window: Window, time_ms: int) -> int:
    """Return the lowest timestamp of a result whose window is not closed."""
    assert not isinstance(window, Unlimited)
    return time_ms - window.grace_ms - span_ms(window)


def _least(one_ms: int | None, other_ms: int | None) -> int | None:
    known = [value for value in (one_ms, other_ms) if value is not None]
    return min(known) if known else None


def _most(one_ms: int | None, other_ms: int) -> int:
    return other_ms if one_ms is None else max(one_ms, other_ms)
