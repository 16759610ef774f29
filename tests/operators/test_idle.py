"""A source that falls silent: reorder lets go of everything, once it is told to."""

from __future__ import annotations

import pytest

from headrace.contracts.decision import Reason, Verdict
from headrace.contracts.policies import BufferPolicy, DeduplicatePolicy, ReorderPolicy
from headrace.services.operators.operator import NO_CAUSE, Batch
from headrace.services.operators.reorder import Reorder
from tests.operators.service import Service, left, record

POLICY = ReorderPolicy(grace_ms=50, idle_ms=1_000, late="topic")
A, B, C = record(10, b"a"), record(30, b"b"), record(30, b"c")


def reorder_of(service: Service) -> Reorder:
    """The first operator of a service."""
    operator = service.chain.operators[0]
    assert isinstance(operator, Reorder)
    return operator


def test_everything_leaves_in_order_and_nobody_caused_it() -> None:
    service = Service(POLICY)
    service.take(C, A, B)
    step = reorder_of(service).release_idle()
    assert left(step) == [A, B, C]
    assert step.forwarded.causes == [NO_CAUSE] * 3
    assert service.held == 0
    service.commit()


def test_an_idle_release_is_said_with_its_evidence() -> None:
    service = Service(POLICY, explain=True)
    service.take(A)
    (decision,) = reorder_of(service).release_idle().decisions
    assert (decision.verdict, decision.reason, decision.cause) == (
        Verdict.FORWARDED,
        Reason.IDLE,
        NO_CAUSE,
    )
    assert decision.record == A
    assert dict(decision.evidence).keys() == {"stream_time_ms", "grace_ms"}


def test_where_nothing_is_held_nothing_leaves() -> None:
    service = Service(POLICY)
    assert left(reorder_of(service).release_idle()) == []
    service.commit()


def test_stream_time_has_moved_by_a_grace() -> None:
    service = Service(POLICY)
    service.take(B)
    reorder_of(service).release_idle()
    # The released record was at 30: an earlier one would be out of order, so it is late.
    assert [aside.record for aside in service.take(record(29)).late] == [record(29)]
    assert left(service.take(record(30))) == [record(30)]
    assert (left(service.take(record(31))), service.held) == ([], 1)


def test_it_lets_go_of_what_came_since_the_last_time() -> None:
    service = Service(POLICY)
    service.take(A)
    assert left(reorder_of(service).release_idle()) == [A]
    service.take(record(40))
    assert left(reorder_of(service).release_idle()) == [record(40)]


def test_records_of_a_slow_source_are_on_time_however_often_it_was_silent() -> None:
    service = Service(POLICY)
    slow = [record(10 * number) for number in range(1, 9)]
    for one in slow:
        assert service.take(one).late == []
        assert left(reorder_of(service).release_idle()) == [one]
        service.commit()
    # Time is a grace behind the last one that was released, and no further.
    assert reorder_of(service).stream_time_ms == 80 + POLICY.grace_ms


def test_it_survives_a_restart() -> None:
    first = Service(POLICY)
    first.take(A, B)
    reorder_of(first).release_idle()
    first.commit()
    second = first.restarted(POLICY)
    assert second.held == 0
    assert [aside.record for aside in second.take(record(29)).late] == [record(29)]


def test_a_crash_before_the_commit_forgets_it() -> None:
    first = Service(POLICY)
    first.take(A, B)
    reorder_of(first).release_idle()
    second = first.restarted(POLICY)
    assert left(reorder_of(second).release_idle()) == [A, B]


@pytest.mark.parametrize("records", [0, 1, 3])
def test_records_on_disk_alone_leave_too(records: int) -> None:
    buffer = BufferPolicy(records=records, when_full="spill")
    service = Service(POLICY.model_copy(update={"buffer": buffer}))
    held = [record(100 + number, b"%02d" % number) for number in range(20)]
    service.take(*reversed(held))
    assert left(reorder_of(service).release_idle()) == held
    service.commit()


def test_operators_behind_see_what_left() -> None:
    service = Service(POLICY, DeduplicatePolicy(interval_ms=100))
    service.take(A, A._replace(timestamp_ms=11))
    released = reorder_of(service).release_idle().forwarded
    assert left(service.chain.process_from(1, released)) == [A]
    service.commit()


def test_without_grace_there_is_nothing_to_let_go_of() -> None:
    service = Service(ReorderPolicy(grace_ms=0))
    assert left(service.chain.process(Batch.of([A]))) == [A]
    assert left(reorder_of(service).release_idle()) == []
