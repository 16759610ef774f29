"""How far operators that wait hold records back, by the records' own time."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.contracts.policies import (
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


def held_back_ms(policy: AnyOperator) -> int:
    """Return how far the latest record that left is behind the latest that came."""
    match policy:
        case ReorderPolicy():
            return policy.grace_ms
        case SuppressPolicy(until="time-limit"):
            return policy.limit_ms or 0
        case SuppressPolicy():
            return _closes_after_ms(policy.window)
        case _:
            return 0


def waits_ms(policies: Sequence[AnyOperator]) -> int:
    """Return how long, by the source's time, a record may wait until it leaves the last of them."""
    return sum(map(_waits_ms, policies))


def _waits_ms(policy: AnyOperator) -> int:
    if isinstance(policy, AggregatePolicy):
        return _closes_after_ms(policy.window)
    return held_back_ms(policy)


def _closes_after_ms(window: Window | None) -> int:
    if window is None or isinstance(window, Unlimited):
        return 0
    return window.grace_ms + span_ms(window)


def span_ms(window: Window) -> int:
    """Return how far a result's timestamp may be from the end of its window."""
    match window:
        case Tumbling() | Hopping():
            return window.size_ms
        case Session():
            return window.gap_ms
        case Sliding():
            return window.difference_ms
        case Unlimited():
            return 0
