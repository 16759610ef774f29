"""Deduplicate keeps its page for every input, every cut and every crash."""

from __future__ import annotations

from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.policies import DeduplicatePolicy
from headrace.contracts.record import Record
from tests.chance import FEWER
from tests.properties import strategies
from tests.properties.compose import expected_of
from tests.properties.drive import assert_agree, operator_of, run
from tests.properties.rocks import assert_both_stores_agree
from tests.properties.strategies import MORE, Stop

By = Literal["key", "key+id", "id"]
BY: tuple[By, ...] = ("key", "key+id", "id")


@st.composite
def policies(draw: st.DrawFn) -> DeduplicatePolicy:
    by = draw(st.sampled_from(BY))
    return DeduplicatePolicy(
        name="deduplicate",
        store="deduplicate",
        by=by,
        id=None if by == "key" else "header.id",
        interval_ms=draw(strategies.durations_ms),
        late=draw(st.sampled_from(("forward", "drop", "topic"))),
    )


@MORE
@given(policies(), strategies.records(), strategies.plans)
def test_it_does_what_the_oracle_says(
    policy: DeduplicatePolicy, records: list[Record], plan: list[Stop]
) -> None:
    expected = expected_of(policy, records)
    outcome = run(operator_of(policy), records, plan)
    assert_agree(outcome, expected)
    assert outcome.late == (expected.late if policy.late == "topic" else [])


@FEWER
@given(policies(), strategies.records(), strategies.plans)
def test_memory_and_rocksdb_agree(
    policy: DeduplicatePolicy, records: list[Record], plan: list[Stop]
) -> None:
    assert_both_stores_agree(operator_of(policy), records, plan)


@MORE
@given(strategies.records())
def test_a_source_read_twice_at_once_gives_the_same_again(records: list[Record]) -> None:
    policy = DeduplicatePolicy(name="deduplicate", store="deduplicate", interval_ms=1 << 50)
    distinct_offsets = [one._replace(offset=index) for index, one in enumerate(records)]
    once = run(operator_of(policy), distinct_offsets).outputs
    twice = run(operator_of(policy), [*distinct_offsets, *distinct_offsets]).outputs
    assert [output[1:] for output in twice] == [output[1:] for output in [*once, *once]]


def test_a_pair_of_key_and_id_is_no_concatenation() -> None:
    policy = DeduplicatePolicy(
        name="deduplicate", store="deduplicate", by="key+id", id="header.id", interval_ms=10
    )
    pairs = ((b"a", b"b"), (b"ab", b""), (b"", b"ab"))
    records = [
        Record(key, None, 0, (("id", identity),), strategies.TOPIC, 0, offset)
        for offset, (key, identity) in enumerate(pairs)
    ]
    assert len(run(operator_of(policy), records).outputs) == len(pairs)
