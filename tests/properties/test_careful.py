"""Record by record a chain does what it does batch by batch; one that fails harms no other."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from headrace.contracts.policies import (
    AnyOperator,
    DeduplicatePolicy,
    MergePolicy,
    ReorderPolicy,
)
from headrace.contracts.record import Record
from tests.properties import strategies
from tests.properties.drive import Outcome, chain_of, run
from tests.properties.lanes import Read, across, read_at_random, reads
from tests.properties.strategies import Stop
from tests.properties.test_chain import (
    NUMBERS,
    event_chains,
    final_results,
    table_chains,
)

_REORDER = ReorderPolicy(name="reorder", store="reorder", grace_ms=10_000)
_BY_KEY = DeduplicatePolicy(
    name="deduplicate", store="deduplicate", by="key+id", id="header.id", interval_ms=20_000
)
_BY_ID = DeduplicatePolicy(
    name="across", store="across", by="id", id="header.id", interval_ms=20_000
)
Chain = tuple[AnyOperator, ...]
chains = st.one_of(event_chains(), table_chains(), final_results())
HOW = ("carefully", "warily")
NOT_BYTES: Any = 7
"""Kafka carries no such value: an operator that looks at it, or writes it down, fails."""


_MINUTE = st.integers(0, 60_000)


def _poisons(
    key: Any, name: Any, times_ms: st.SearchStrategy[int] = _MINUTE, *, header: Any = b""
) -> st.SearchStrategy[Record]:
    return st.builds(
        lambda at_ms: Record(key, b"30", at_ms, ((name, header),), strategies.TOPIC, 0, None),
        times_ms,
    )


_at_once = _poisons(NOT_BYTES, "id", header=NOT_BYTES)
"""The first operator fails on it, also where that looks at ids alone."""
_at_a_key = _poisons(NOT_BYTES, "id")
_when_saved = _poisons(b"a", NOT_BYTES)
_never_late = _poisons(NOT_BYTES, "id", st.just(1 << 41))
"""In a batch, no operator looks at the key of a late record."""


def _poisoned(poisons: st.SearchStrategy[Record]) -> st.SearchStrategy[list[Record]]:
    places = st.lists(st.tuples(st.integers(0, 50), poisons), min_size=1, max_size=5)
    return st.builds(_with, strategies.records(values=NUMBERS), places)


def _with(records: list[Record], places: list[tuple[int, Record]]) -> list[Record]:
    for place, poison in places:
        records = [*records[:place], poison, *records[place:]]
    return records


@given(chains, strategies.records(values=NUMBERS), strategies.plans)
def test_record_by_record_is_batch_by_batch(
    policies: Chain, records: list[Record], plan: list[Stop]
) -> None:
    whole = run(chain_of(policies), records)
    _assert_same(run(chain_of(policies, carefully=True), records, plan), whole)


@given(chains, _poisoned(st.one_of(_at_a_key, _when_saved)), strategies.plans)
def test_a_records_fate_does_not_depend_on_those_that_came_with_it(
    policies: Chain, records: list[Record], plan: list[Stop]
) -> None:
    careful = chain_of(policies, carefully=True)
    _assert_same(run(careful, records, plan), run(careful, records))


@given(chains, _poisoned(_at_once), strategies.plans)
def test_a_record_that_fails_at_once_leaves_no_trace(
    policies: Chain, records: list[Record], plan: list[Stop]
) -> None:
    careful = chain_of(policies, carefully=True)
    outcome = run(careful, records, plan)
    good = [at for at in range(len(records)) if at not in outcome.dead]
    clean = run(careful, [records[at] for at in good])
    assert outcome.outputs == [
        output._replace(cause=good[output.cause]) for output in clean.outputs
    ]
    assert outcome.held == clean.held


@given(chains, _poisoned(_never_late), strategies.plans)
def test_a_batch_that_failed_is_undone_where_it_is(
    policies: Chain, records: list[Record], plan: list[Stop]
) -> None:
    careful, wary = (run(chain_of(policies, **{how: True}), records, plan) for how in HOW)
    _assert_same(wary, careful)


@given(chains, _poisoned(st.one_of(_at_a_key, _when_saved)), strategies.plans)
@example((_REORDER, _BY_KEY), [Record(b"a", b"30", 0, ((NOT_BYTES, b""),), "raw", 0, None)], [])
def test_a_batch_that_fails_as_it_is_saved_is_undone_and_ends_nothing(
    policies: Chain, records: list[Record], plan: list[Stop]
) -> None:
    wary = run(chain_of(policies, warily=True), records, plan)
    assert wary.failure is not None or wary.taken == len(records)


_behind = st.sampled_from(
    [
        (_REORDER, _BY_KEY),
        (MergePolicy(name="merge", store="merge"), _BY_KEY),
        (_BY_ID, _REORDER, _BY_KEY),
    ]
)


@given(_behind, reads(), strategies.plans)
def test_behind_a_repartition_record_by_record_is_batch_by_batch(
    policies: Chain, read: Read, plan: list[Stop]
) -> None:
    lanes = len(read.partitions)
    whole = run(across(policies, lanes), read.place)
    _assert_same(run(across(policies, lanes, carefully=True), read.place, plan), whole)


@given(
    _behind,
    st.lists(_poisoned(_never_late), min_size=1, max_size=3),
    st.integers(0, 1 << 32),
    strategies.plans,
)
def test_behind_a_repartition_a_batch_that_failed_is_undone_as_well(
    policies: Chain, partitions: list[list[Record]], seed: int, plan: list[Stop]
) -> None:
    place = list(read_at_random(dict(enumerate(partitions)), Random(seed)))
    careful, wary = (
        run(across(policies, len(partitions), **{how: True}), place, plan) for how in HOW
    )
    _assert_same(wary, careful)


def _assert_same(one: Outcome, other: Outcome) -> None:
    assert (one.outputs, one.failure) == (other.outputs, other.failure)
    if one.failure is None:
        assert one.held == other.held
        assert sorted(one.dead) == sorted(other.dead)
        assert sorted(one.late) == sorted(other.late)
