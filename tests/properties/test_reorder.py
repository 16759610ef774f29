"""Reorder keeps its page for every input, every cut and every crash."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from headrace.contracts.policies import BufferPolicy, ReorderPolicy
from headrace.contracts.record import Record
from tests.chance import FEWER
from tests.properties import strategies
from tests.properties.compose import expected_of
from tests.properties.drive import assert_agree, assert_holds, operator_of, run
from tests.properties.rocks import assert_both_stores_agree
from tests.properties.strategies import MORE, Stop

_RISING_THEN_FAR = [
    Record(b"a", b"1", timestamp_ms, (), strategies.TOPIC, 0, None)
    for timestamp_ms in (*range(10), 100)
]
LATE = ("forward", "drop", "topic")


@st.composite
def policies(draw: st.DrawFn) -> ReorderPolicy:
    return ReorderPolicy(
        name="reorder",
        store="reorder",
        grace_ms=draw(strategies.durations_ms),
        late=draw(st.sampled_from(LATE)),
        buffer=draw(strategies.buffers("emit-early", "shut-down", "spill")),
    )


@MORE
@given(policies(), strategies.records(), strategies.plans)
def test_it_does_what_the_oracle_says(
    policy: ReorderPolicy, records: list[Record], plan: list[Stop]
) -> None:
    outcome = run(operator_of(policy), records, plan)
    expected = expected_of(policy, records)
    assert_agree(outcome, expected)
    assert_holds(outcome, expected)
    assert outcome.late == (expected.late if policy.late == "topic" else [])


@FEWER
@given(policies(), strategies.records(), strategies.plans)
def test_memory_and_rocksdb_agree(
    policy: ReorderPolicy, records: list[Record], plan: list[Stop]
) -> None:
    assert_both_stores_agree(operator_of(policy), records, plan)


@MORE
@given(strategies.positive_durations_ms, strategies.records())
def test_records_that_left_on_time_are_in_order(grace_ms: int, records: list[Record]) -> None:
    policy = ReorderPolicy(name="reorder", store="reorder", grace_ms=grace_ms, late="drop")
    times = [output.timestamp_ms for output in run(operator_of(policy), records).outputs]
    assert times == sorted(times)


@MORE
@given(strategies.positive_durations_ms, strategies.records(size_max=60), strategies.plans)
@example(10, _RISING_THEN_FAR, [Stop(3, "go")])
def test_a_buffer_that_spills_is_like_one_without_bounds(
    grace_ms: int, records: list[Record], plan: list[Stop]
) -> None:
    plain = ReorderPolicy(name="reorder", store="reorder", grace_ms=grace_ms)
    spilling = plain.model_copy(update={"buffer": BufferPolicy(records=2, when_full="spill")})
    assert run(operator_of(spilling), records, plan) == run(operator_of(plain), records, plan)
