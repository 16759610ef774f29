"""Snapshots: every operator has one, and it does not change afterwards."""

from __future__ import annotations

from typing import get_args

import pytest

from headrace.contracts.decision import Reason
from headrace.contracts.policies import (
    AggregatePolicy,
    AnyOperator,
    BufferPolicy,
    DeduplicatePolicy,
    DistinctPolicy,
    FilterPolicy,
    ReorderPolicy,
    SamplePolicy,
    SuppressPolicy,
    TablePolicy,
)
from headrace.contracts.record import NO_TIME_MS
from headrace.services.observe.histogram import Histogram, HistogramSnapshot
from headrace.services.observe.snapshot import OperatorKind, OperatorSnapshot
from tests.observe.examples import WINDOW, Ran, clicks

POLICIES: tuple[AnyOperator, ...] = (
    ReorderPolicy(grace_ms=5_000),
    DeduplicatePolicy(by="key", interval_ms=60_000),
    DistinctPolicy(window=WINDOW),
    TablePolicy(),
    FilterPolicy(where="value.page > 3"),
    SamplePolicy(every=2),
    AggregatePolicy(function="count", window=WINDOW),
    SuppressPolicy(until="time-limit", limit_ms=30_000),
)


def only_operator(ran: Ran) -> OperatorSnapshot:
    return ran.snapshot().operators[0]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.kind)
def test_every_operator_has_a_snapshot(policy: AnyOperator) -> None:
    ran = Ran([policy])
    assert only_operator(ran).stream_time_ms is None
    ran.take(clicks(20))
    seen = only_operator(ran)
    assert (seen.name, seen.kind) == (policy.kind, policy.kind)
    assert seen.counts.taken == 20
    assert seen.counts.balance() == 0
    has_time = policy.kind not in {"table", "filter", "sample"}
    assert seen.stream_time_ms == (18_000 if has_time else None)


def test_all_kinds_are_known() -> None:
    assert {policy.kind for policy in POLICIES} == set(get_args(OperatorKind))


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.kind)
def test_a_snapshot_stays_as_it_was(policy: AnyOperator) -> None:
    ran = Ran([policy])
    ran.take(clicks(20))
    before, as_text = ran.snapshot(), repr(ran.snapshot())
    ran.take(clicks(20, first=20))
    assert repr(before) == as_text
    assert before.operators[0].counts.balance() == 0


def test_a_drop_is_not_seen_by_an_earlier_snapshot() -> None:
    ran = Ran([DeduplicatePolicy(by="key", interval_ms=60_000)])
    ran.take(clicks(20))
    before = only_operator(ran)
    drops = before.counts.dropped[Reason.DUPLICATE]
    ran.take(clicks(20))
    assert before.counts.dropped == {Reason.DUPLICATE: drops}
    assert only_operator(ran).counts.dropped[Reason.DUPLICATE] > drops


def test_a_reorder_weighs_what_it_holds_where_bytes_are_bounded() -> None:
    bounded = ReorderPolicy(grace_ms=5_000, buffer=BufferPolicy(bytes=1 << 20, when_full="spill"))
    ran, unbounded = Ran([bounded]), Ran([ReorderPolicy(grace_ms=5_000)])
    ran.take(clicks(20))
    unbounded.take(clicks(20))
    assert (only_operator(ran).held_bytes or 0) > 0
    assert only_operator(unbounded).held_bytes is None


def test_a_suppress_shows_its_buffer() -> None:
    ran = Ran([SuppressPolicy(until="time-limit", limit_ms=30_000)])
    ran.take(clicks(20))
    seen = only_operator(ran)
    assert seen.suppress is not None
    assert seen.suppress.wait_ms == 30_000
    assert seen.suppress.samples.count_max == seen.counts.held > 0
    assert seen.held_bytes == seen.suppress.samples.size_max


def test_a_reorder_without_grace_looks_at_no_time() -> None:
    ran = Ran([ReorderPolicy(grace_ms=0)])
    ran.take(clicks(20))
    assert only_operator(ran).stream_time_ms is None
    assert NO_TIME_MS == -1


def test_a_bound_is_in_its_bucket_and_what_is_larger_than_all_in_the_last() -> None:
    histogram = Histogram((1.0, 10.0))
    for number in (0.5, 1.0, 1.5, 10.0, 11.0):
        histogram.take(number)
    assert histogram.snapshot() == HistogramSnapshot((1.0, 10.0), (2, 2, 1), 24_000_000)


def test_histograms_add_up() -> None:
    one, other = Histogram((1.0,)), Histogram((1.0,))
    one.take(0.5)
    other.take(2.0)
    assert one.snapshot().plus(other.snapshot()) == HistogramSnapshot((1.0,), (1, 1), 2_500_000)
