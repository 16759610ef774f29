"""Warnings: each is given where it should be, and nowhere else."""

from __future__ import annotations

import pytest

from headrace.contracts.advice import warnings
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
    Tumbling,
)
from headrace.contracts.topology import with_names

REORDER = ReorderPolicy(grace_ms=30_000)
DEDUPLICATE = DeduplicatePolicy(interval_ms=600_000)
SHORT = DeduplicatePolicy(interval_ms=29_999)
EXACT = DeduplicatePolicy(interval_ms=30_000)
GLOBAL = DeduplicatePolicy(by="id", id="value.id", interval_ms=600_000)
SUPPRESS = SuppressPolicy(until="time-limit", limit_ms=30_000)
COUNT = AggregatePolicy(function="count")
DISTINCT = DistinctPolicy(window=Tumbling(size_ms=1, grace_ms=0))
FILTER = FilterPolicy(where="m:f")
IDLE_SOON = ReorderPolicy(grace_ms=30_000, idle_ms=5_000)
IDLE_LATE = ReorderPolicy(grace_ms=30_000, idle_ms=9_000, name="late")
LOOK_AT_CLOCK = ["`reorder` looks at the clock", "`late` looks at the clock"]
EARLY = BufferPolicy(records=1, when_full="emit-early")
SPILL = BufferPolicy(records=1, when_full="spill")


@pytest.mark.parametrize(
    ("operators", "expected"),
    [
        ([REORDER, DEDUPLICATE, SUPPRESS], []),
        ([REORDER, EXACT], []),
        ([FILTER, COUNT, SUPPRESS], []),
        ([GLOBAL, REORDER], ["lower offset wins"]),
        ([GLOBAL, FILTER], []),
        ([DEDUPLICATE, REORDER], ["lower offset wins"]),
        ([DISTINCT, REORDER], ["lower offset wins"]),
        (
            [REORDER, SHORT],
            ["after 29999ms, yet `reorder` expects records up to 30s"],
        ),
        ([SHORT, REORDER], ["lower offset wins", "forgets an id after 29999ms"]),
        ([SUPPRESS, REORDER], ["the update that came last"]),
        ([SUPPRESS, DEDUPLICATE], ["takes the place of the update that is held"]),
        ([COUNT, REORDER], ["has refused late records by then"]),
        ([COUNT, DISTINCT], ["duplicates are in its results already"]),
        ([COUNT, DEDUPLICATE], ["duplicates are in its results already"]),
        ([DEDUPLICATE, GLOBAL.model_copy(update={"name": "g"})], ["(`deduplicate`) works on each"]),
        ([GLOBAL, DEDUPLICATE.model_copy(update={"name": "d"})], ["`d` may see only some"]),
        ([GLOBAL, GLOBAL.model_copy(update={"name": "g"})], ["(`deduplicate`) works on each"]),
        ([REORDER, GLOBAL], ["(`reorder`) works on each", "are merged again"]),
        (
            [GLOBAL, SUPPRESS, FILTER, TablePolicy()],
            ["`table` keeps a row for every key", "`suppress`, `table` may see only some"],
        ),
        ([TablePolicy(), FILTER], []),
        ([TablePolicy(), SamplePolicy(every=2), SUPPRESS], []),
        ([TablePolicy(), COUNT, FILTER], ["no operator behind it needs the value"]),
        (
            [IDLE_SOON, IDLE_LATE],
            [*LOOK_AT_CLOCK, "`reorder` and `late` have an `idle` each, and all of them let"],
        ),
        ([IDLE_SOON, IDLE_SOON.model_copy(update={"name": "late"})], LOOK_AT_CLOCK),
        ([REORDER.model_copy(update={"buffer": EARLY})], ["not in order"]),
        ([REORDER.model_copy(update={"buffer": SPILL})], []),
        ([REORDER.model_copy(update={"idle_ms": 5_000})], ["looks at the clock (`idle: 5s`)"]),
    ],
)
def test_warnings(operators: list[AnyOperator], expected: list[str]) -> None:
    found = warnings(with_names(operators), max_future_ms=1)
    assert len(found) == len(expected), found
    for sentence, part in zip(found, expected, strict=True):
        assert part in sentence


def test_far_futures_matter_to_those_who_remember() -> None:
    assert "max-future: 1h" in warnings(with_names([REORDER]), None)[0]
    assert warnings(with_names([FILTER]), None) == []
    assert warnings(with_names([REORDER]), 3_600_000) == []


def test_far_futures_are_harmless_where_no_time_decides() -> None:
    assert warnings(with_names([TablePolicy(), FILTER]), None) == []
    assert warnings(with_names([COUNT]), None) == []
    assert warnings(with_names([ReorderPolicy(grace_ms=0)]), None) == []
    assert "max-future: 1h" in warnings(with_names([DISTINCT]), None)[0]
    assert "max-future: 1h" in warnings(with_names([SUPPRESS]), None)[0]
