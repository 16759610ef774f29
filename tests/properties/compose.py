"""The oracle of a chain: the operators' oracles, each over all that left the one before it.

A chain may have lives: from some record on, its operators have another grace, interval or limit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import NamedTuple

from headrace.contracts.policies import (
    AggregatePolicy,
    AnyOperator,
    BufferPolicy,
    DeduplicatePolicy,
    DistinctPolicy,
    FilterPolicy,
    MergePolicy,
    ReorderPolicy,
    SamplePolicy,
    SuppressPolicy,
    TablePolicy,
)
from headrace.contracts.record import Record
from headrace.contracts.window import window_of
from tests.oracles.aggregate import aggregate
from tests.oracles.deduplicate import deduplicate
from tests.oracles.distinct import distinct
from tests.oracles.expected import Expected, Update
from tests.oracles.filter import filter_events, filter_updates
from tests.oracles.reorder import reorder
from tests.oracles.sample import sample
from tests.oracles.suppress import UNBOUNDED, Bounds, until_time_limit, until_window_closes
from tests.oracles.table import table
from tests.properties.functions import FUNCTIONS
from tests.properties.wire import on_the_wire, records_of

Olds = Sequence[bytes | None] | None
Left = Callable[[Record], bool]
"""Whether a record left, which was perhaps a duplicate."""


class Later(NamedTuple):
    """Operators whose graces, intervals and limits are others from a record on."""

    first: int
    """The first record of the chain's input that meets them."""
    policies: Sequence[AnyOperator]


def expected_of_chain(
    policies: Sequence[AnyOperator],
    records: Sequence[Record],
    later: Sequence[Later] = (),
    left: Left | None = None,
) -> Expected:
    """Return what the last operator emits, with causes in the chain's input."""
    whole = Expected()
    causes = list(range(len(records)))
    olds: Olds = None
    for number, policy in enumerate(policies):
        waits_ms = waits_of(policy, [(one.first, one.policies[number]) for one in later], causes)
        expected = expected_of(policy, records, olds, waits_ms, left)
        outputs = on_the_wire(expected).outputs
        whole.outputs = [output._replace(cause=causes[output.cause]) for output in outputs]
        whole.dead += [causes[cause] for cause in expected.dead]
        if getattr(policy, "late", None) == "topic":
            whole.late += [causes[cause] for cause in expected.late]
        if expected.failure is not None:
            whole.failure = causes[expected.failure]
        olds = [output.old for output in outputs] if _hands_on_olds(policy, olds) else None
        records = records_of(expected, records)
        causes = [output.cause for output in whole.outputs]
    return whole


def _hands_on_olds(policy: AnyOperator, olds: Olds) -> bool:
    """Whether what is behind sees old values; a final result is the first of its window."""
    if isinstance(policy, SuppressPolicy):
        return olds is not None and policy.until == "time-limit"
    if isinstance(policy, FilterPolicy | SamplePolicy):
        return olds is not None
    return isinstance(policy, TablePolicy | AggregatePolicy)


def waits_of(
    policy: AnyOperator, later: Sequence[tuple[int, AnyOperator]], causes: Sequence[int]
) -> list[int] | None:
    """Return for each input how long the operator waits when it comes; None: always the same."""
    if not later:
        return None
    waits_ms = [wait_ms_of(policy)] * len(causes)
    for first, changed in later:
        place = bisect_left(causes, first)
        waits_ms[place:] = [wait_ms_of(changed)] * (len(causes) - place)
    return waits_ms


def wait_ms_of(policy: AnyOperator) -> int:
    """Return an operator's grace, interval or limit; 0 where it has none."""
    match policy:
        case ReorderPolicy():
            return policy.grace_ms
        case DeduplicatePolicy():
            return policy.interval_ms
        case SuppressPolicy(until="time-limit"):
            return policy.limit_ms or 0
        case AggregatePolicy() | DistinctPolicy() | SuppressPolicy():
            return getattr(policy.window, "grace_ms", 0)
        case _:
            return 0


def expected_of(
    policy: AnyOperator,
    records: Sequence[Record],
    olds: Olds = None,
    waits_ms: Sequence[int] | None = None,
    left: Left | None = None,
) -> Expected:
    """Return the results of one operator's oracle; each record may meet a wait of its own."""
    match policy:
        case ReorderPolicy():
            return _expected_of_reorder(policy, records, waits_ms)
        case MergePolicy():
            message = "a merge is judged with its lanes, in test_merge.py"
            raise AssertionError(message)
        case DeduplicatePolicy():
            forward_late = policy.late == "forward"
            return deduplicate(
                records,
                policy.interval_ms if waits_ms is None else waits_ms,
                lambda record: identity_of(record, policy.by),
                forward_late=forward_late,
                left=left,
            )
        case DistinctPolicy():
            return distinct(records, policy.window, waits_ms)
        case TablePolicy():
            return table(records)
        case FilterPolicy() | SamplePolicy():
            return _expected_to_pass(policy, records, olds)
        case AggregatePolicy():
            return aggregate(records, FUNCTIONS[policy.function], policy.window, waits_ms)
        case SuppressPolicy():
            return _expected_of_suppress(policy, records, olds, waits_ms)


def _expected_to_pass(
    policy: FilterPolicy | SamplePolicy, records: Sequence[Record], olds: Olds
) -> Expected:
    if isinstance(policy, SamplePolicy):
        return sample(records, policy.every, olds)
    holds = _PREDICATES[policy.where]
    if olds is None:
        return filter_events(records, holds)
    return filter_updates(records, olds, holds)


def identity_of(record: Record, by: str) -> object | None:
    """Return the identity that key and `header.id` give a record; the last `id` counts."""
    named = [value for name, value in record.headers if name == "id"]
    last = named[-1] if named else None
    if by == "key":
        return record.key
    if by == "id":
        return last
    return None if record.key is None or last is None else (record.key, last)


def is_two_or_more(record: Record) -> bool:
    """The predicate `value >= 2`, over numbers as text and over counts."""
    if record.value is None:
        return False
    is_count = len(record.value) == 8 and record.value[0] == 0
    return (int.from_bytes(record.value, "big") if is_count else int(record.value)) >= 2


def _is_below_6(record: Record) -> bool:
    return record.key is not None and record.key < b"key-6"


HALF_OF_KEYS = 'key < "key-6"'
_PREDICATES = {"value >= 2": is_two_or_more, HALF_OF_KEYS: _is_below_6}


def _bounds(buffer: BufferPolicy) -> Bounds:
    if buffer.when_full == "spill":
        return UNBOUNDED
    return Bounds(buffer.records, buffer.bytes, buffer.when_full == "emit-early")


def _expected_of_reorder(
    policy: ReorderPolicy, records: Sequence[Record], graces_ms: Sequence[int] | None
) -> Expected:
    bounds = _bounds(policy.buffer)
    return reorder(
        records,
        policy.grace_ms if graces_ms is None else graces_ms,
        forward_late=policy.late == "forward",
        max_records=bounds.records,
        max_bytes=bounds.bytes,
        emit_early=bounds.emit_early,
    )


def _expected_of_suppress(
    policy: SuppressPolicy,
    records: Sequence[Record],
    olds: Olds,
    waits_ms: Sequence[int] | None,
) -> Expected:
    olds = [None] * len(records) if olds is None else olds
    updates = [
        Update(cause, record, old, window_of(record.headers))
        for cause, (record, old) in enumerate(zip(records, olds, strict=True))
    ]
    if policy.until == "time-limit":
        limit_ms = (policy.limit_ms or 0) if waits_ms is None else waits_ms
        return until_time_limit(updates, limit_ms, _bounds(policy.buffer))
    if policy.window is None:
        message = "waiting for windows to close needs to know which windows"
        raise AssertionError(message)
    return until_window_closes(updates, policy.window, _bounds(policy.buffer), waits_ms)
