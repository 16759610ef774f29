"""A chain does what its operators' oracles do one after the other, for every cut and crash."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.policies import (
    AggregatePolicy,
    AnyOperator,
    BufferPolicy,
    DeduplicatePolicy,
    FilterPolicy,
    ReorderPolicy,
    SuppressPolicy,
    TablePolicy,
)
from headrace.contracts.record import Record
from headrace.contracts.topology import with_names
from tests.chance import FEWER
from tests.properties import strategies
from tests.properties.compose import expected_of_chain
from tests.properties.drive import chain_of, run
from tests.properties.rocks import assert_both_stores_agree
from tests.properties.strategies import MORE, Stop

NUMBERS = (b"1", b"2", b"30", None)
WINDOWS = ("tumbling", "hopping", "session", "sliding")
Chain = tuple[AnyOperator, ...]


def _reorder(draw: st.DrawFn) -> AnyOperator:
    return ReorderPolicy(
        grace_ms=draw(strategies.durations_ms),
        late=draw(st.sampled_from(("forward", "drop", "topic"))),
        buffer=draw(strategies.buffers("emit-early", "shut-down", "spill")),
    )


def _deduplicate(draw: st.DrawFn) -> AnyOperator:
    return DeduplicatePolicy(
        by=draw(st.sampled_from(("key+id", "id"))),
        id="header.id",
        interval_ms=draw(strategies.durations_ms),
        late=draw(st.sampled_from(("forward", "topic"))),
    )


def _suppress(draw: st.DrawFn) -> AnyOperator:
    return SuppressPolicy(
        until="time-limit",
        limit_ms=draw(strategies.durations_ms),
        buffer=draw(strategies.buffers("emit-early", "shut-down", "spill")),
    )


def _filter(_draw: st.DrawFn) -> AnyOperator:
    return FilterPolicy(where="value >= 2")


@st.composite
def event_chains(draw: st.DrawFn) -> Chain:
    """Operators over events, in any order."""
    makers = draw(st.permutations((_reorder, _deduplicate, _suppress, _filter)))
    length = draw(st.integers(1, len(makers)))
    return with_names(tuple(make(draw) for make in makers[:length]))


@st.composite
def table_chains(draw: st.DrawFn) -> Chain:
    """A table, and behind it what sees old values."""
    makers = draw(st.permutations((_filter, _suppress)))
    return with_names((TablePolicy(), *(make(draw) for make in makers)))


@st.composite
def final_results(draw: st.DrawFn) -> Chain:
    """Final results of windows, and which of them are large."""
    window = draw(strategies.windows(*WINDOWS))
    function = draw(st.sampled_from(("count", "sum", "last", "max")))
    suppress = SuppressPolicy(
        until="window-closes",
        window=window,
        buffer=draw(strategies.buffers("shut-down", "spill")),
    )
    return with_names(
        (AggregatePolicy(function=function, window=window, late="topic"), suppress, _filter(draw))
    )


def _check(policies: Chain, records: list[Record], plan: list[Stop]) -> None:
    expected = expected_of_chain(policies, records)
    outcome = run(chain_of(policies), records, plan)
    assert outcome.failure == expected.failure
    assert outcome.outputs == expected.outputs
    # Which operator put a record aside first depends on the batch; which records, does not.
    end = len(records) if expected.failure is None else expected.failure
    assert sorted(i for i in outcome.late if i < end) == sorted(i for i in expected.late if i < end)
    assert sorted(i for i in outcome.dead if i < end) == sorted(i for i in expected.dead if i < end)


def test_records_that_an_operator_before_lets_go_at_once_stay_in_order() -> None:
    """Two that leave a suppress for one cause, the first of them late for the reorder."""
    times_ms = (637, 640, 642, 645, 647, 650, 652)
    records = [Record(b"b", None, at_ms, (), "input", 0, None) for at_ms in times_ms]
    records += [
        Record(b"a", b"2", 655, (), "input", 0, 7),
        Record(b"b", None, 647, (), "input", 0, None),
        Record(b"a", b"2", 660, (), "input", 0, 9),
    ]
    suppress = SuppressPolicy(
        name="suppress",
        store="suppress",
        until="time-limit",
        limit_ms=5,
        buffer=BufferPolicy(records=3, when_full="emit-early"),
    )
    reorder = ReorderPolicy(name="reorder", store="reorder", grace_ms=1)
    _check((suppress, reorder), records, [])


@MORE
@given(event_chains(), strategies.records(values=NUMBERS), strategies.plans)
def test_over_events_it_does_what_the_oracles_say(
    policies: Chain, records: list[Record], plan: list[Stop]
) -> None:
    _check(policies, records, plan)


@MORE
@given(table_chains(), strategies.records(values=NUMBERS), strategies.plans)
def test_behind_a_table_it_does_what_the_oracles_say(
    policies: Chain, records: list[Record], plan: list[Stop]
) -> None:
    _check(policies, records, plan)


@MORE
@given(final_results(), strategies.records(values=NUMBERS), strategies.plans)
def test_final_results_are_what_the_oracles_say(
    policies: Chain, records: list[Record], plan: list[Stop]
) -> None:
    _check(policies, records, plan)


@MORE
@given(final_results(), strategies.records(values=NUMBERS))
def test_every_window_has_at_most_one_final_result(policies: Chain, records: list[Record]) -> None:
    finals = [output.key for output in run(chain_of(policies[:2]), records).outputs]
    assert len(finals) == len(set(finals))


@FEWER
@given(event_chains(), strategies.records(values=NUMBERS), strategies.plans)
def test_memory_and_rocksdb_agree(policies: Chain, records: list[Record], plan: list[Stop]) -> None:
    assert_both_stores_agree(chain_of(policies), records, plan)
