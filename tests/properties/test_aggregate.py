"""Aggregate keeps its page for every input, every cut and every crash."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.policies import AggregatePolicy, Session, Window
from headrace.contracts.record import Record
from tests.chance import FEWER
from tests.oracles.aggregate import aggregate
from tests.properties import strategies
from tests.properties.drive import assert_agree, operator_of, run
from tests.properties.functions import FUNCTIONS
from tests.properties.rocks import assert_both_stores_agree
from tests.properties.strategies import MORE, Stop
from tests.properties.wire import on_the_wire

KINDS = ("tumbling", "hopping", "session", "sliding", "unlimited")
VALUES = (b"1", b"2", b"30", b"-7", None)
UNREADABLE = (b"1", b"", b"not a number", None)


@st.composite
def policies(draw: st.DrawFn, *kinds: str) -> AggregatePolicy:
    return AggregatePolicy(
        name="aggregate",
        store="aggregate",
        function=draw(st.sampled_from(sorted(FUNCTIONS))),
        window=draw(strategies.windows(*kinds)) if kinds else None,
        late=draw(st.sampled_from(("drop", "topic"))),
    )


def _check(policy: AggregatePolicy, records: list[Record], plan: list[Stop]) -> None:
    expected = on_the_wire(aggregate(records, FUNCTIONS[policy.function], policy.window))
    outcome = run(operator_of(policy), records, plan)
    assert_agree(outcome, expected)
    assert outcome.late == (expected.late if policy.late == "topic" else [])


@MORE
@given(policies(), strategies.records(values=VALUES), strategies.plans)
def test_without_windows_it_does_what_the_oracle_says(
    policy: AggregatePolicy, records: list[Record], plan: list[Stop]
) -> None:
    _check(policy, records, plan)


@MORE
@given(
    policies("tumbling", "hopping", "unlimited"),
    strategies.records(values=VALUES),
    strategies.plans,
)
def test_over_time_windows_it_does_what_the_oracle_says(
    policy: AggregatePolicy, records: list[Record], plan: list[Stop]
) -> None:
    _check(policy, records, plan)


@MORE
@given(policies("session"), strategies.records(values=VALUES), strategies.plans)
def test_over_sessions_it_does_what_the_oracle_says(
    policy: AggregatePolicy, records: list[Record], plan: list[Stop]
) -> None:
    _check(policy, records, plan)


def test_a_closed_session_may_lie_within_one_that_is_open() -> None:
    window = Session(gap_ms=10_000, grace_ms=0)
    policy = AggregatePolicy(name="aggregate", store="aggregate", function="count", window=window)
    times_ms = (25_000, 40_000, 30_000, 20_000, 10_000)
    records = [Record(b"a", b"1", at_ms, (), "input", 0, at_ms) for at_ms in times_ms]
    _check(policy, records, [])


@MORE
@given(policies("sliding"), strategies.records(values=VALUES, size_max=40), strategies.plans)
def test_over_sliding_windows_it_does_what_the_oracle_says(
    policy: AggregatePolicy, records: list[Record], plan: list[Stop]
) -> None:
    _check(policy, records, plan)


@MORE
@given(policies("tumbling"), strategies.records(values=VALUES))
def test_a_batch_in_one_window_gives_the_results_of_its_records_one_by_one(
    policy: AggregatePolicy, records: list[Record]
) -> None:
    each = [Stop(1, "go")] * len(records)
    assert run(operator_of(policy), records, each) == run(operator_of(policy), records)


@FEWER
@given(policies(*KINDS), strategies.records(values=VALUES), strategies.plans)
def test_memory_and_rocksdb_agree(
    policy: AggregatePolicy, records: list[Record], plan: list[Stop]
) -> None:
    assert_both_stores_agree(operator_of(policy), records, plan)


@MORE
@given(policies(*KINDS), strategies.records(values=VALUES), st.integers(0, 3))
def test_a_longer_retention_changes_no_result(
    policy: AggregatePolicy, records: list[Record], seconds: int
) -> None:
    if policy.window is not None and policy.window.kind == "unlimited":
        return
    longer = policy.model_copy(update={"retention_ms": 100_000 + seconds * 1_000})
    assert run(operator_of(longer), records) == run(operator_of(policy), records)


@MORE
@given(
    st.sampled_from(("sum", "min", "max", "collect")),
    strategies.windows(*KINDS),
    strategies.records(values=UNREADABLE),
    strategies.plans,
)
def test_unreadable_records_leave_for_the_dead_letter_topic_and_no_trace(
    function: str, window: Window, records: list[Record], plan: list[Stop]
) -> None:
    policy = AggregatePolicy(name="aggregate", store="aggregate", function=function, window=window)
    unreadable = {index for index, one in enumerate(records) if one.value not in {b"1", None}}
    readable = [one for index, one in enumerate(records) if index not in unreadable]
    outcome = run(operator_of(policy), records, plan)
    assert outcome.dead == sorted(unreadable)
    expected = on_the_wire(aggregate(readable, FUNCTIONS[function], window))
    assert [output[1:] for output in outcome.outputs] == [output[1:] for output in expected.outputs]
