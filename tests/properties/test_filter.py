"""Filter keeps its page for every input, and has nothing to lose in a crash."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.policies import FilterPolicy
from headrace.contracts.record import Record
from tests.oracles.filter import filter_events, filter_updates
from tests.properties import strategies
from tests.properties.drive import assert_agree, operator_of, run
from tests.properties.strategies import MORE, Stop

VALUES = (b"1", b"2", b"30", None)
OF_ANY_KIND = (b"", b"\xff", b"plain text", b"\0\0\0\0\x07a", b'{"a":null}', b" null\n", None)
POLICY = FilterPolicy(name="filter", store="filter", where="value >= 2")


def _holds(record: Record) -> bool:
    return record.value is not None and int(record.value) >= 2


@MORE
@given(strategies.records(values=VALUES), strategies.plans)
def test_over_events_it_does_what_the_oracle_says(records: list[Record], plan: list[Stop]) -> None:
    assert_agree(run(operator_of(POLICY), records, plan), filter_events(records, _holds))


@MORE
@given(st.data(), strategies.records(values=VALUES), strategies.plans)
def test_over_updates_it_does_what_the_oracle_says(
    data: st.DataObject, records: list[Record], plan: list[Stop]
) -> None:
    olds = [data.draw(st.sampled_from(VALUES)) for _ in records]
    outcome = run(operator_of(POLICY), records, plan, olds=olds)
    assert_agree(outcome, filter_updates(records, olds, _holds))


@MORE
@given(strategies.records(values=OF_ANY_KIND), strategies.plans)
def test_a_tombstone_alone_is_dropped_by_a_filter_for_values(
    records: list[Record], plan: list[Stop]
) -> None:
    policy = POLICY.model_copy(update={"where": "value != null"})
    expected = filter_events(records, lambda record: record.value not in {None, b" null\n"})
    assert_agree(run(operator_of(policy), records, plan), expected)


@MORE
@given(strategies.records(), strategies.plans)
def test_unreadable_records_leave_for_the_dead_letter_topic(
    records: list[Record], plan: list[Stop]
) -> None:
    unreadable = {index for index, one in enumerate(records) if one.value in {b"", b"not a number"}}
    readable = [one for index, one in enumerate(records) if index not in unreadable]
    outcome = run(operator_of(POLICY), records, plan)
    assert outcome.dead == sorted(unreadable)
    kept = [output[1:] for output in filter_events(readable, _holds).outputs]
    assert [output[1:] for output in outcome.outputs] == kept
