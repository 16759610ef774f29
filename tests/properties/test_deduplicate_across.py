"""Ids over many partitions: of two that are near one another one goes out, whichever came first."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.policies import DeduplicatePolicy
from headrace.contracts.record import Record
from tests.chance import FEWER
from tests.oracles.deduplicate_across import deduplicate_across
from tests.oracles.expected import Expected, Output
from tests.properties import strategies
from tests.properties.drive import Outcome, operator_of, run
from tests.properties.lanes import Read, across, own, read_at_random, reads
from tests.properties.rocks import assert_both_stores_agree
from tests.properties.strategies import MORE, Stop


def policy_of(interval_ms: int) -> DeduplicatePolicy:
    return DeduplicatePolicy(
        name="deduplicate", store="deduplicate", by="id", id="key", interval_ms=interval_ms
    )


@MORE
@given(
    strategies.durations_ms,
    reads(in_order=True),
    strategies.plans,
    st.sampled_from(({}, {"carefully": True}, {"warily": True})),
)
def test_of_records_near_one_another_one_goes_out(
    interval_ms: int, read: Read, plan: list[Stop], how: dict[str, bool]
) -> None:
    place = [one._replace(offset=None) for one in read.place]
    outcome = run(across([policy_of(interval_ms)], len(read.partitions), **how), place, plan)
    came = list(own(place))
    assert _content(outcome) == _content(deduplicate_across(came, interval_ms))


@MORE
@given(strategies.durations_ms, st.sampled_from(("forward", "drop", "topic")), reads())
def test_a_batch_leaves_as_its_records_would_one_by_one(
    interval_ms: int, late: str, read: Read
) -> None:
    policy = policy_of(interval_ms).model_copy(update={"late": late})
    build = across([policy], len(read.partitions))
    each = [Stop(1, "go")] * len(read.place)
    whole = run(build, read.place)
    assert run(build, read.place, each) == whole
    assert run(across([policy], len(read.partitions), explain=True), read.place) == whole


@FEWER
@given(strategies.durations_ms, reads(), strategies.plans)
def test_memory_and_rocksdb_agree(interval_ms: int, read: Read, plan: list[Stop]) -> None:
    build = across([policy_of(interval_ms)], len(read.partitions))
    assert_both_stores_agree(build, read.place, plan)


@MORE
@given(strategies.durations_ms, strategies.records(), strategies.plans)
def test_over_one_partition_it_is_the_plain_operator(
    interval_ms: int, records: list[Record], plan: list[Stop]
) -> None:
    policy = policy_of(interval_ms)
    records = [record._replace(offset=None) for record in records]
    place = [one._replace(offset=None) for one in read_at_random({0: records}, Random(0))]
    outcome, plain = run(across([policy], 1), place, plan), run(operator_of(policy), records)
    assert _content(outcome) == _content(plain)


def _content(of: Outcome | Expected) -> list[Output]:
    return [output._replace(cause=0) for output in of.outputs]
