"""The oracle of a chain: the operators' oracles, each over all that left the one before it."""

from __future__ import annotations

from collections.abc import Sequence

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


def expected_of_chain(policies: Sequence[AnyOperator], records: Sequence[Record]) -> Expected:
    """Return what the last operator emits, with causes in the chain's input."""
    whole = Expected()
    causes = list(range(len(records)))
    olds: Olds = None
    for policy in policies:
        expected = expected_of(policy, records, olds)
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


def expected_of(policy: AnyOperator, records: Sequence[Record], olds: Olds = None) -> Expected:
    """Return the results of one operator's oracle."""
    match policy:
        case ReorderPolicy():
            return _expected_of_reorder(policy, records)
        case MergePolicy():
            message = "a merge is judged with its lanes, in test_merge.py"
            raise AssertionError(message)
        case DeduplicatePolicy():
            forward_late = policy.late == "forward"
            return deduplicate(
                records,
                policy.interval_ms,
                lambda record: identity_of(record, policy.by),
                forward_late=forward_late,
            )
        case DistinctPolicy():
            return distinct(records, policy.window)
        case TablePolicy():
            return table(records)
        case FilterPolicy() | SamplePolicy():
            return _expected_to_pass(policy, records, olds)
        case AggregatePolicy():
            return aggregate(records, FUNCTIONS[policy.function], policy.window)
        case SuppressPolicy():
            return _expected_of_suppress(policy, records, olds)


def _expected_to_pass(
    policy: FilterPolicy | SamplePolicy, records: Sequence[Record], olds: Olds
) -> Expected:
    if isinstance(policy, SamplePolicy):
        return sample(records, policy.every, olds)
    if olds is None:
        return filter_events(records, is_two_or_more)
    return filter_updates(records, olds, is_two_or_more)


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


def _bounds(buffer: BufferPolicy) -> Bounds:
    if buffer.when_full == "spill":
        return UNBOUNDED
    return Bounds(buffer.records, buffer.bytes, buffer.when_full == "emit-early")


def _expected_of_reorder(policy: ReorderPolicy, records: Sequence[Record]) -> Expected:
    bounds = _bounds(policy.buffer)
    return reorder(
        records,
        policy.grace_ms,
        forward_late=policy.late == "forward",
        max_records=bounds.records,
        max_bytes=bounds.bytes,
        emit_early=bounds.emit_early,
    )


def _expected_of_suppress(
    policy: SuppressPolicy, records: Sequence[Record], olds: Olds
) -> Expected:
    olds = [None] * len(records) if olds is None else olds
    updates = [
        Update(cause, record, old, window_of(record.headers))
        for cause, (record, old) in enumerate(zip(records, olds, strict=True))
    ]
    if policy.until == "time-limit":
        return until_time_limit(updates, policy.limit_ms or 0, _bounds(policy.buffer))
    if policy.window is None:
        message = "waiting for windows to close needs to know which windows"
        raise AssertionError(message)
    return until_window_closes(updates, policy.window, _bounds(policy.buffer))
