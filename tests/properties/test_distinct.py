"""Distinct keeps its page for every input, every cut and every crash."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.policies import DistinctPolicy, Session, Tumbling
from headrace.contracts.record import Record
from tests.chance import FEWER
from tests.oracles.distinct import distinct
from tests.properties import strategies
from tests.properties.drive import assert_agree, operator_of, run
from tests.properties.rocks import assert_both_stores_agree
from tests.properties.strategies import MORE, Stop
from tests.properties.wire import on_the_wire


@st.composite
def policies(draw: st.DrawFn) -> DistinctPolicy:
    window = draw(strategies.windows("tumbling", "session"))
    assert isinstance(window, Tumbling | Session)
    return DistinctPolicy(
        name="distinct",
        store="distinct",
        window=window,
        late=draw(st.sampled_from(("drop", "topic"))),
    )


@MORE
@given(policies(), strategies.records(), strategies.plans)
def test_it_does_what_the_oracle_says(
    policy: DistinctPolicy, records: list[Record], plan: list[Stop]
) -> None:
    expected = on_the_wire(distinct(records, policy.window))
    outcome = run(operator_of(policy), records, plan)
    assert_agree(outcome, expected)
    assert outcome.late == (expected.late if policy.late == "topic" else [])


@FEWER
@given(policies(), strategies.records(), strategies.plans)
def test_memory_and_rocksdb_agree(
    policy: DistinctPolicy, records: list[Record], plan: list[Stop]
) -> None:
    assert_both_stores_agree(operator_of(policy), records, plan)
