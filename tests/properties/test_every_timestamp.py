"""No 64-bit timestamp stops an operator: a record that did would be read, and kill, for ever."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.policies import (
    AggregatePolicy,
    AnyOperator,
    DeduplicatePolicy,
    DistinctPolicy,
    Hopping,
    ReorderPolicy,
    Session,
    Sliding,
    SuppressPolicy,
    Tumbling,
    Unlimited,
)
from headrace.contracts.record import Record
from headrace.contracts.time import TIME_MS_MAX
from headrace.contracts.topology import with_names
from tests.properties import strategies
from tests.properties.compose import expected_of
from tests.properties.drive import operator_of, run
from tests.properties.strategies import Stop
from tests.properties.wire import on_the_wire

LEAST_MS, MOST_MS = -(1 << 63), (1 << 63) - 1
WINDOWS = (
    Tumbling(size_ms=10, grace_ms=5),
    Hopping(size_ms=10, advance_ms=3, grace_ms=5),
    Session(gap_ms=5, grace_ms=5),
    Sliding(difference_ms=5, grace_ms=5),
    Unlimited(start_ms=0),
)
POLICIES: tuple[AnyOperator, ...] = (
    *(ReorderPolicy(grace_ms=grace_ms) for grace_ms in (0, 10, TIME_MS_MAX)),
    *(DeduplicatePolicy(interval_ms=interval_ms) for interval_ms in (0, 10, TIME_MS_MAX)),
    *(SuppressPolicy(until="time-limit", limit_ms=limit_ms) for limit_ms in (0, 10, TIME_MS_MAX)),
    *(
        DistinctPolicy(window=window)
        for window in WINDOWS
        if isinstance(window, Tumbling | Session)
    ),
    *(AggregatePolicy(function="count", window=window) for window in (None, *WINDOWS)),
)
timestamps_ms = st.sampled_from((LEAST_MS, LEAST_MS + 1, -1, 0, 5, 1 << 62, MOST_MS - 1, MOST_MS))
records = st.lists(
    st.builds(
        Record,
        st.sampled_from((b"a", b"b")),
        st.just(b"1"),
        timestamps_ms,
        st.just(()),
        st.just(strategies.TOPIC),
        st.just(0),
        st.none(),
    ),
    max_size=6,
)


@pytest.mark.parametrize("policy", with_names(POLICIES), ids=repr)
@given(given_records=records, plan=strategies.plans)
def test_it_does_what_the_oracle_says(
    policy: AnyOperator, given_records: list[Record], plan: list[Stop]
) -> None:
    expected = on_the_wire(expected_of(policy, given_records))
    assert run(operator_of(policy), given_records, plan).outputs == expected.outputs
