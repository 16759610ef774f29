"""A sample keeps its page for every input, and has nothing to lose in a crash."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.policies import SamplePolicy
from headrace.contracts.record import Record
from tests.oracles.sample import sample
from tests.properties import strategies
from tests.properties.drive import assert_agree, operator_of, run
from tests.properties.strategies import MORE, Stop

EVERY = st.integers(2, 5)


def _policy(every: int) -> SamplePolicy:
    return SamplePolicy(name="sample", store="sample", every=every)


@MORE
@given(EVERY, strategies.records(), strategies.plans)
def test_it_does_what_the_oracle_says(every: int, records: list[Record], plan: list[Stop]) -> None:
    assert_agree(run(operator_of(_policy(every)), records, plan), sample(records, every))


@MORE
@given(EVERY, st.data(), strategies.records(), strategies.plans)
def test_over_updates_it_does_what_the_oracle_says(
    every: int, data: st.DataObject, records: list[Record], plan: list[Stop]
) -> None:
    olds = [data.draw(st.sampled_from((b"1", b"2", None))) for _ in records]
    outcome = run(operator_of(_policy(every)), records, plan, olds=olds)
    assert_agree(outcome, sample(records, every, olds))


@MORE
@given(EVERY, strategies.records())
def test_a_key_is_kept_whole_or_not_at_all(every: int, records: list[Record]) -> None:
    kept = {output.cause for output in sample(records, every).outputs}
    keys = {record.key for index, record in enumerate(records) if index in kept} - {None}
    for index, record in enumerate(records):
        assert record.key is None or (index in kept) == (record.key in keys)
