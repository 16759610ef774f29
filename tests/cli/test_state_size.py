"""How much an operator would keep at most."""

from __future__ import annotations

import pytest

from headrace.contracts.policies import (
    AggregatePolicy,
    AnyOperator,
    DeduplicatePolicy,
    DistinctPolicy,
    FilterPolicy,
    Hopping,
    ReorderPolicy,
    SamplePolicy,
    Session,
    SuppressPolicy,
    TablePolicy,
    Tumbling,
    Unlimited,
)
from headrace.services.cli.state_size import ROW_BYTES, Traffic, format_bytes, state_bytes_max

TRAFFIC = Traffic(records_per_second=10, record_bytes=50)
WITH_RECORD = ROW_BYTES + 50
MINUTE = Tumbling(size_ms=60_000, grace_ms=30_000)
HOPPING = Hopping(size_ms=60_000, advance_ms=25_000, grace_ms=30_000)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (ReorderPolicy(grace_ms=30_000), 300 * WITH_RECORD),
        (ReorderPolicy(grace_ms=0), 0),
        (DeduplicatePolicy(interval_ms=600_000), 6_000 * ROW_BYTES),
        (DistinctPolicy(window=Session(gap_ms=1_000, grace_ms=500)), 15 * ROW_BYTES),
        (AggregatePolicy(function="count"), None),
        (AggregatePolicy(function="count", window=Unlimited()), None),
        (AggregatePolicy(function="count", window=MINUTE), 900 * ROW_BYTES),
        (AggregatePolicy(function="count", window=MINUTE, retention_ms=100_000), 1_000 * ROW_BYTES),
        (AggregatePolicy(function="count", window=HOPPING), 900 * 3 * ROW_BYTES),
        (SuppressPolicy(until="time-limit", limit_ms=30_000), 300 * WITH_RECORD),
        (SuppressPolicy(until="window-closes", window=MINUTE), 900 * WITH_RECORD),
        (TablePolicy(), None),
        (FilterPolicy(where="m:f"), None),
        (SamplePolicy(every=10), None),
    ],
)
def test_the_bound_of_each_operator(policy: AnyOperator, expected: int | None) -> None:
    assert state_bytes_max(policy, TRAFFIC) == expected


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1.0 KiB"), (5 << 30, "5.0 GiB")],
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert format_bytes(size) == text
