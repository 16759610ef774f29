"""How long an operator's rows matter, by its own stream time.

Every operator that sweeps its rows has stream time in its header, and never asks for a row whose
time is over. This module gives that as a length: a row put at stream time T is over once the
operator's stream time has reached T plus its lifespan. The operator's own time counts, not the
source's. Behind a filter, or at an operator that refuses records, time may stand still while the
source's time moves on, and the rows live on.

    reorder       a record is no later than stream time, and leaves when that has passed it by grace
    merge         a record leaves when all lanes have passed its turn
    deduplicate   an id is remembered for the interval
    distinct      a window begins no later than stream time, and takes records for size and grace
    aggregate     the same, or as long as results are kept to be looked up; a sliding window may
                  begin one millisecond later, and be looked at by a record that is late by grace
                  and the difference, which looks back two differences more
    suppress      until a time limit: the limit. Until windows close: a window that an operator
                  before it made ends no later than its span behind the result's own time. One that
                  another service made may end at any time, so nothing is sure

A table, and an aggregate whose windows never close, keep their rows for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.contracts.policies import (
    AggregatePolicy,
    AnyOperator,
    DeduplicatePolicy,
    DistinctPolicy,
    Hopping,
    MergePolicy,
    ReorderPolicy,
    Session,
    Sliding,
    SuppressPolicy,
    Tumbling,
    Unlimited,
    Window,
    retention_needed_ms,
)
from headrace.contracts.record import NO_TIME_MS
from headrace.contracts.topics import keeps_state
from headrace.services.operators.aggregate import Aggregate
from headrace.services.operators.deduplicate import Deduplicate
from headrace.services.operators.deduplicate_across import DeduplicateAcross
from headrace.services.operators.distinct import Distinct
from headrace.services.operators.merge import Merge
from headrace.services.operators.operator import Operator
from headrace.services.operators.reorder import Reorder
from headrace.services.operators.suppress import Suppress
from headrace.services.operators.updates import waiting_time_ms

_SLACK = 2


class Lifespan(NamedTuple):
    """How long the rows of one operator matter."""

    store: str
    position: int
    """The index of the operator in the chain."""
    length_ms: int | None
    """None where the rows matter for ever."""
    is_sure: bool
    """Whether no row matters for longer; otherwise most do not."""


def lifespans(policies: Sequence[AnyOperator]) -> list[Lifespan]:
    """Return the lifespan of every operator that keeps state."""
    found = []
    made: Window | None = None
    for position, policy in enumerate(policies):
        if keeps_state(policy):
            length_ms, is_sure = _length_ms(policy, made)
            store = policy.store or policy.name or policy.kind
            found.append(Lifespan(store, position, length_ms, is_sure))
        if isinstance(policy, AggregatePolicy | DistinctPolicy):
            made = policy.window
    return found


def row_life_ms(policies: Sequence[AnyOperator]) -> int | None:
    """Return how far the source's time moves, as a rule, until all swept rows of a chain are over.

    An operator's time may be behind that of the one before it by as much as that one waits. Time
    also moves in leaps, hence some slack. None where no operator sweeps.
    """
    lengths = [life.length_ms for life in lifespans(policies) if life.length_ms is not None]
    return _SLACK * sum(lengths) if lengths else None


def clock_ms(operator: Operator) -> int:
    """Return an operator's own stream time."""
    match operator:
        case Reorder() | Deduplicate() | Distinct() | Aggregate() | Suppress():
            return operator.stream_time_ms
        case _:
            return NO_TIME_MS


def latest_ms(operator: Operator) -> int:
    """Return the latest time of any row that an operator has put.

    It is the operator's stream time. If records of many source partitions come to it, it is the
    time of the partition that is furthest ahead.
    """
    match operator:
        case Merge() | DeduplicateAcross():
            return operator.latest_ms
        case _:
            return clock_ms(operator)


def _length_ms(policy: AnyOperator, made: Window | None) -> tuple[int | None, bool]:
    match policy:
        case ReorderPolicy():
            return policy.grace_ms + 1, True
        case MergePolicy():
            return 1, True
        case DeduplicatePolicy():
            return policy.interval_ms + 1, True
        case DistinctPolicy():
            return retention_needed_ms(policy.window) + 1, True
        case AggregatePolicy():
            length_ms = _aggregated_ms(policy)
            return length_ms, length_ms is not None
        case SuppressPolicy() if policy.until == "time-limit":
            return waiting_time_ms(policy) + 1, True
        case SuppressPolicy():
            span_ms = _span_ms(policy.window if made is None else made)
            return waiting_time_ms(policy) + span_ms + 1, made is not None
        case _:
            return None, False


def _aggregated_ms(policy: AggregatePolicy) -> int | None:
    window = policy.window
    if window is None or isinstance(window, Unlimited):
        return None
    needed_ms = retention_needed_ms(window) + 1
    if isinstance(window, Sliding):
        needed_ms += window.difference_ms + 1
    return max(needed_ms, (policy.retention_ms or 0) + 2)


def _span_ms(window: Window | None) -> int:
    """Return how far behind a result's own time its window may end."""
    match window:
        case Tumbling() | Hopping():
            return window.size_ms
        case Sliding():
            return window.difference_ms
        case Session() | Unlimited() | None:
            return 0
