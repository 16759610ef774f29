"""Every record gets one final verdict from an operator, and the verdict names its evidence."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.decision import Decision, Reason, Verdict
from headrace.contracts.policies import (
    AggregatePolicy,
    AnyOperator,
    BufferPolicy,
    DeduplicatePolicy,
    DistinctPolicy,
    FilterPolicy,
    Hopping,
    ReorderPolicy,
    Session,
    Sliding,
    SuppressPolicy,
    TablePolicy,
    Tumbling,
    Unlimited,
)
from headrace.contracts.record import Record
from headrace.contracts.topology import with_names
from headrace.contracts.window import WindowBounds, window_header
from headrace.services.operators.chain import build_operator
from headrace.services.operators.operator import Batch, Operator
from headrace.services.state.memory import MemoryStore
from headrace.services.state.overlay import Overlay
from tests.operators.service import PIPELINE, Service, record
from tests.properties import strategies

EMIT_EARLY = BufferPolicy(records=2, when_full="emit-early")
SPILL = BufferPolicy(records=2, when_full="spill")
TUMBLING = Tumbling(size_ms=5_000, grace_ms=5_000)
POLICIES: tuple[AnyOperator, ...] = (
    ReorderPolicy(grace_ms=0),
    ReorderPolicy(grace_ms=5_000, late="forward"),
    ReorderPolicy(grace_ms=5_000, late="drop", buffer=EMIT_EARLY),
    ReorderPolicy(grace_ms=5_000, late="topic", buffer=SPILL),
    DeduplicatePolicy(interval_ms=5_000, late="forward"),
    DeduplicatePolicy(by="id", id="value.id", interval_ms=5_000, late="drop"),
    DeduplicatePolicy(by="key+id", id="header.id", interval_ms=5_000, late="topic"),
    DistinctPolicy(window=TUMBLING, late="topic"),
    DistinctPolicy(window=Session(gap_ms=5_000, grace_ms=0), late="drop"),
    TablePolicy(),
    FilterPolicy(where="value >= 2"),
    AggregatePolicy(function="sum"),
    AggregatePolicy(function="count", window=TUMBLING, late="topic"),
    AggregatePolicy(
        function="sum", window=Hopping(size_ms=10_000, advance_ms=5_000, grace_ms=0), late="drop"
    ),
    AggregatePolicy(function="count", window=Session(gap_ms=5_000, grace_ms=0), late="topic"),
    AggregatePolicy(function="sum", window=Sliding(difference_ms=5_000, grace_ms=0), late="topic"),
    AggregatePolicy(function="count", window=Unlimited(start_ms=10_000)),
    SuppressPolicy(until="time-limit", limit_ms=5_000),
    SuppressPolicy(until="time-limit", limit_ms=5_000, buffer=EMIT_EARLY),
    SuppressPolicy(until="window-closes", window=TUMBLING, buffer=SPILL),
)
policies = st.sampled_from(POLICIES)


@st.composite
def inputs(draw: st.DrawFn) -> list[Record]:
    """Records that can be told from each other, most of them the result of some window."""
    drawn = draw(strategies.records())
    chance = strategies.chance(draw(strategies.seeds))
    told = []
    for offset, one in enumerate(drawn):
        start_ms = one.timestamp_ms // 5_000 * 5_000
        header = window_header(WindowBounds("tumbling", start_ms, start_ms + 5_000))
        headers = (*one.headers, header) if chance.random() < 9 / 10 else one.headers
        told.append(one._replace(offset=offset, headers=headers))
    return told


def operator_of(policy: AnyOperator, *, explain: bool) -> Operator:
    """An operator over nothing."""
    (named,) = with_names((policy,))
    view = Overlay(MemoryStore(), PIPELINE).view("of-operator")
    return build_operator(named, view, explain=explain)


@strategies.MORE
@given(policies, inputs(), st.integers(1, 7))
def test_every_record_gets_one_final_verdict_or_is_held(
    policy: AnyOperator, records: list[Record], size: int
) -> None:
    operator = operator_of(policy, explain=True)
    final: Counter[int | None] = Counter()
    for first in range(0, len(records), size):
        step = operator.process(Batch.of(records[first : first + size]))
        verdicts = [one for one in step.decisions if one.verdict is not Verdict.HELD]
        final.update(decision.record.offset for decision in verdicts)
        # The chain writes the decisions on dead records, of whichever operator.
        final.update(dead.record.offset for dead in step.dead)
    assert set(final.values()) <= {1}, "two final verdicts for one record"
    assert len(records) - len(final) == operator.counts.held


@strategies.MORE
@given(policies, inputs(), st.integers(1, 7))
def test_verdicts_written_out_are_the_verdicts_counted(
    policy: AnyOperator, records: list[Record], size: int
) -> None:
    service = Service(policy, explain=True)
    written: Counter[Verdict] = Counter()
    reasons: Counter[Reason] = Counter()
    for first in range(0, len(records), size):
        for decision in service.take(*records[first : first + size]).decisions:
            written[decision.verdict] += 1
            if decision.verdict is Verdict.DROPPED:
                reasons[decision.reason] += 1
    counts = service.chain.operators[0].counts
    assert written[Verdict.FORWARDED] == counts.forwarded
    assert written[Verdict.MERGED] == counts.merged
    assert written[Verdict.LATE] == counts.late
    assert written[Verdict.DEAD] == counts.dead
    assert reasons == counts.dropped


@strategies.MORE
@given(policies, inputs(), st.integers(1, 7))
def test_explaining_changes_nothing(policy: AnyOperator, records: list[Record], size: int) -> None:
    silent, explaining = operator_of(policy, explain=False), operator_of(policy, explain=True)
    for first in range(0, len(records), size):
        batch = records[first : first + size]
        said, unsaid = explaining.process(Batch.of(batch)), silent.process(Batch.of(batch))
        assert unsaid.decisions == []
        assert (said.forwarded, said.late, said.dead) == (
            unsaid.forwarded,
            unsaid.late,
            unsaid.dead,
        )
    assert explaining.counts == silent.counts


@strategies.MORE
@given(policies, inputs())
def test_records_and_decisions_name_the_same_cause(
    policy: AnyOperator, records: list[Record]
) -> None:
    step = operator_of(policy, explain=True).process(Batch.of(records))
    if isinstance(policy, AggregatePolicy):
        assert set(step.forwarded.causes) == causes_of(step.decisions, Verdict.MERGED)
        return
    said = Counter(
        (decision.record.offset, decision.cause)
        for decision in step.decisions
        if decision.verdict is Verdict.FORWARDED
    )
    forwarded = zip(step.forwarded.records, step.forwarded.causes, strict=True)
    assert said == Counter((one.offset, cause) for one, cause in forwarded)
    assert {aside.cause for aside in step.late} == causes_of(step.decisions, Verdict.LATE)


def causes_of(decisions: list[Decision], verdict: Verdict) -> set[int]:
    """The causes of all decisions with a verdict."""
    return {decision.cause for decision in decisions if decision.verdict is verdict}


def decided(policy: AnyOperator, *records: Record) -> Decision:
    """The last decision that an operator writes about some records."""
    return Service(policy, explain=True).take(*records).decisions[-1]


def test_reorder_shows_stream_time_and_grace() -> None:
    decision = decided(ReorderPolicy(grace_ms=5, late="drop"), record(100), record(94))
    assert (decision.operator, decision.verdict, decision.reason, decision.cause) == (
        "reorder", Verdict.DROPPED, Reason.PAST_GRACE, 1,
    )  # fmt: skip
    assert decision.evidence == (("stream_time_ms", 100), ("grace_ms", 5))


def test_deduplicate_shows_the_record_that_came_first() -> None:
    policy = DeduplicatePolicy(interval_ms=50)
    decision = decided(policy, record(100, offset=7), record(120, offset=8))
    assert (decision.verdict, decision.reason) == (Verdict.DROPPED, Reason.DUPLICATE)
    assert decision.evidence == (
        ("stream_time_ms", 120),
        ("interval_ms", 50),
        ("first_timestamp_ms", 100),
        ("first_offset", 7),
    )


def test_deduplicate_shows_no_offset_where_there_was_none() -> None:
    decision = decided(DeduplicatePolicy(interval_ms=50), record(100), record(120))
    assert dict(decision.evidence).keys() == {
        "stream_time_ms", "interval_ms", "first_timestamp_ms",
    }  # fmt: skip


def test_the_very_record_that_was_saved_is_a_replay() -> None:
    decision = decided(
        DeduplicatePolicy(interval_ms=50), record(100, offset=7), record(100, offset=7)
    )
    assert (decision.verdict, decision.reason) == (Verdict.FORWARDED, Reason.REPLAY)


@pytest.mark.parametrize(
    "policy",
    [
        DistinctPolicy(window=Tumbling(size_ms=10, grace_ms=0)),
        AggregatePolicy(function="count", window=Tumbling(size_ms=10, grace_ms=0)),
    ],
)
def test_windows_show_stream_time(policy: AnyOperator) -> None:
    decision = decided(policy, record(100), record(5))
    assert (decision.verdict, decision.reason) == (Verdict.DROPPED, Reason.PAST_GRACE)
    assert decision.evidence == (("stream_time_ms", 100),)


def test_suppress_shows_how_long_it_waits() -> None:
    policy = SuppressPolicy(until="time-limit", limit_ms=30)
    decision = decided(policy, record(100), record(130))
    assert (decision.verdict, decision.reason) == (Verdict.FORWARDED, Reason.TIME_LIMIT)
    assert decision.evidence == (("stream_time_ms", 130), ("waiting_time_ms", 30))


def test_a_dead_record_is_decided_once_by_the_operator_that_could_not_read_it() -> None:
    service = Service(TablePolicy(), FilterPolicy(where="value >= 2"), explain=True)
    decisions = service.take(record(1, value=b"no number")).decisions
    assert [(one.operator, one.verdict, one.reason) for one in decisions] == [
        ("table", Verdict.FORWARDED, Reason.UPDATED),
        ("filter", Verdict.DEAD, Reason.UNDECODABLE),
    ]


def test_an_empty_window_that_the_clock_closes_is_decided() -> None:
    window = Tumbling(size_ms=10, grace_ms=0)
    final = SuppressPolicy(until="window-closes", window=window)
    service = Service(final, explain=True)
    headers = (window_header(WindowBounds("tumbling", 0, 10)),)
    service.take(record(1, value=None, headers=headers))
    step = service.chain.advance(10)
    assert step is not None
    assert step.forwarded.records == []
    (decision,) = step.decisions
    assert (decision.verdict, decision.reason) == (Verdict.DROPPED, Reason.EMPTY_WINDOW)
    assert service.chain.advance(11) is None
