"""A merge makes one order of many partitions, whatever was read first, cut where, and crashed when.

So does a reorder behind a repartition. The naive oracle says from the partitions alone which
records leave, in which order, and which of them are late. It does not know how they were read.
"""

from __future__ import annotations

from random import Random

from hypothesis import example, given
from hypothesis import strategies as st

from headrace.contracts.policies import (
    AnyOperator,
    BufferPolicy,
    DeduplicatePolicy,
    MergePolicy,
    ReorderPolicy,
)
from headrace.contracts.record import Record
from headrace.services.state.memory import MemoryStore
from tests.chance import FEWER
from tests.oracles.expected import Output
from tests.oracles.merge import Turn, left_by, merge
from tests.properties import strategies
from tests.properties.drive import Drive, Outcome, operator_of, run
from tests.properties.lanes import Read, across, read_at_random, reads
from tests.properties.rocks import assert_both_stores_agree
from tests.properties.strategies import MORE, Stop

MERGE = MergePolicy(name="merge", store="merge")
NO_IDS = DeduplicatePolicy(
    name="deduplicate", store="deduplicate", by="id", id="header.none", interval_ms=0
)
"""Drops no record, since a record without an id is no duplicate."""
LATE = ("forward", "drop", "topic")
BEFORE_1970 = {0: [Record(b"a", b"", -30_000, (), "input", 0, 0)]}
"""Its time is stream time's beginning, and not that of its latest record."""


@st.composite
def policies(draw: st.DrawFn) -> AnyOperator:
    if draw(st.booleans()):
        return MERGE.model_copy(update={"buffer": draw(strategies.buffers("spill"))})
    return ReorderPolicy(
        name="reorder",
        store="reorder",
        grace_ms=draw(strategies.positive_durations_ms),
        late=draw(st.sampled_from(LATE)),
        buffer=draw(strategies.buffers("spill")),
    )


@MORE
@given(policies(), reads(), strategies.plans, st.sampled_from(("whole", "carefully")))
@example(MERGE, Read(BEFORE_1970, [*read_at_random(BEFORE_1970, Random(0))]), [], "whole")
def test_the_output_is_a_function_of_the_partitions(
    policy: AnyOperator, read: Read, plan: list[Stop], how: str
) -> None:
    build = across([policy], len(read.partitions), carefully=how == "carefully")
    outcome = run(build, read.place, plan)
    turns, left = expected_of(policy, read)
    late_goes_by = getattr(policy, "late", "forward")
    on_their_way = [turn for turn in left if late_goes_by == "forward" or not turn.is_late]
    assert [_as_output(turn.record) for turn in on_their_way] == _without_causes(outcome)
    late = [turn for turn in left if turn.is_late and late_goes_by == "topic"]
    assert len(outcome.late) == len(late)
    dropped = [turn for turn in turns if turn.is_late and late_goes_by == "drop"]
    waiting = [turn for turn in turns if turn not in left and turn not in dropped]
    assert outcome.held == len(waiting)


@MORE
@given(policies(), reads(), strategies.plans, st.sampled_from(("whole", "carefully")))
def test_so_it_is_behind_what_lets_all_pass(
    policy: AnyOperator, read: Read, plan: list[Stop], how: str
) -> None:
    lanes, carefully = len(read.partitions), how == "carefully"
    behind = run(across([NO_IDS, policy], lanes, carefully=carefully), read.place, plan)
    assert behind == run(across([policy], lanes), read.place)


@MORE
@given(policies(), reads(), strategies.plans)
def test_a_record_that_waits_over_a_commit_leaves_as_one_that_does_not(
    policy: AnyOperator, read: Read, plan: list[Stop]
) -> None:
    build = across([policy], len(read.partitions))
    # A commit behind each record gives a row to all that is held; without one, none gets a row.
    each = [Stop(1, "commit")] * len(read.place)
    without_rows = run(build, read.place)
    assert run(build, read.place, each) == without_rows
    assert run(build, read.place, plan) == without_rows


@MORE
@given(policies(), reads())
def test_a_batch_leaves_as_its_records_would_one_by_one(policy: AnyOperator, read: Read) -> None:
    lanes = len(read.partitions)
    explained = run(across([policy], lanes, explain=True), read.place)
    assert explained == run(across([policy], lanes), read.place)


def test_a_record_that_waited_for_a_longer_grace_leaves_with_the_next_bound() -> None:
    records = [Record(b"k", b"", time_ms, (), "input", 0, 0) for time_ms in (60, 100, 110)]
    place, store = list(read_at_random({0: records}, Random(0))), MemoryStore()
    policy = ReorderPolicy(name="reorder", store="reorder", grace_ms=50)
    before = Drive(across([policy], 1), place, store)
    before.process(len(place) - 2)
    before.commit()
    assert before.outcome.outputs == []
    shorter = across([policy.model_copy(update={"grace_ms": 10})], 1)
    behind = Drive(shorter, place, store, taken=before.outcome)
    behind.process(len(place))
    # The last record moves the bound, and is behind the row that may stand before it.
    expected = [(len(place) - 2, 60), (len(place) - 2, 100)]
    assert [(one.cause, one.timestamp_ms) for one in behind.outcome.outputs] == expected


@FEWER
@given(policies(), reads(), strategies.plans)
def test_memory_and_rocksdb_agree(policy: AnyOperator, read: Read, plan: list[Stop]) -> None:
    assert_both_stores_agree(across([policy], len(read.partitions)), read.place, plan)


@MORE
@given(
    strategies.positive_durations_ms, st.sampled_from(LATE), strategies.records(), strategies.plans
)
def test_over_one_partition_it_is_a_reorder_but_for_equal_times(
    grace_ms: int, late: str, records: list[Record], plan: list[Stop]
) -> None:
    policy = ReorderPolicy.model_validate(
        {"name": "reorder", "store": "reorder", "grace_ms": grace_ms, "late": late}
    )
    # Equal times leave by key from a reorder, and by arrival from a merge.
    records = [record._replace(key=b"k") for record in records]
    place = list(read_at_random({0: records}, Random(0)))
    merged, reordered = run(across([policy], 1), place, plan), run(operator_of(policy), records)
    assert _without_causes(merged) == _without_causes(reordered)
    assert (merged.held, len(merged.late)) == (reordered.held, len(reordered.late))


@FEWER
@given(strategies.positive_durations_ms, reads(), strategies.plans)
def test_a_buffer_that_spills_is_like_one_without_bounds(
    grace_ms: int, read: Read, plan: list[Stop]
) -> None:
    plain = ReorderPolicy(name="reorder", store="reorder", grace_ms=grace_ms)
    spilling = plain.model_copy(update={"buffer": BufferPolicy(records=2, when_full="spill")})
    lanes = len(read.partitions)
    assert run(across([spilling], lanes), read.place, plan) == run(
        across([plain], lanes), read.place
    )


def expected_of(policy: AnyOperator, read: Read) -> tuple[list[Turn], list[Turn]]:
    """All turns, and those that have come when every partition has said its time."""
    grace_ms = policy.grace_ms if isinstance(policy, ReorderPolicy) else 0
    turns = merge(read.partitions, grace_ms)
    return turns, left_by(turns, read.partitions, grace_ms)


def _as_output(record: Record) -> Output:
    return Output(0, record.key, record.value, record.timestamp_ms, record.headers)


def _without_causes(outcome: Outcome) -> list[Output]:
    return [output._replace(cause=0) for output in outcome.outputs]
