"""A buffer that must shut down says where and why; what left before has left."""

from __future__ import annotations

import pytest

from headrace.contracts.decision import Verdict
from headrace.contracts.policies import (
    AnyOperator,
    BufferPolicy,
    FilterPolicy,
    ReorderPolicy,
    SuppressPolicy,
    TablePolicy,
)
from headrace.contracts.record import Record
from headrace.services.operators.operator import Failure
from tests.operators.service import Service, left, record

SHUT_DOWN = BufferPolicy(records=2, when_full="shut-down")
REORDER = ReorderPolicy(grace_ms=50, late="topic", buffer=SHUT_DOWN)
SUPPRESS = SuppressPolicy(until="time-limit", limit_ms=50, buffer=SHUT_DOWN)
TABLE = TablePolicy()
FILTER = FilterPolicy(where="value >= 2")
both = pytest.mark.parametrize("policy", [REORDER, SUPPRESS], ids=lambda policy: policy.kind)


def keyed(timestamp_ms: int, value: bytes = b"9") -> Record:
    """A record with a key of its own."""
    return record(timestamp_ms, b"%03d" % timestamp_ms, value)


def test_reorder_says_what_is_full_and_what_to_do() -> None:
    step = Service(REORDER).take(keyed(1), keyed(2), keyed(3), keyed(4))
    assert step.failure is not None
    assert step.failure[:2] == (2, "reorder")
    assert step.failure.sentence.startswith("operator `reorder` holds 3 records")
    assert step.failure.sentence.endswith("raise its bounds, or let it spill or emit early")


def test_suppress_says_what_is_full_and_what_to_do() -> None:
    policy = SUPPRESS.model_copy(update={"name": "updates"})
    step = Service(policy).take(keyed(1), keyed(2), keyed(3), keyed(4))
    # 28 bytes an update, and its key, value and topic.
    assert step.failure == Failure(
        2,
        "updates",
        "operator `updates` holds 3 updates of 114 bytes, more than its buffer may; raise its"
        " bounds, or let it spill",
    )


@both
def test_records_that_left_before_the_failure_have_left(policy: AnyOperator) -> None:
    step = Service(policy).take(keyed(1), keyed(60), keyed(61), keyed(62), keyed(200))
    assert step.failure is not None
    assert (step.failure.cause, left(step), step.forwarded.causes) == (3, [keyed(1)], [1])


@both
def test_a_buffer_that_is_full_to_the_brim_does_not_fail(policy: AnyOperator) -> None:
    service = Service(policy)
    assert service.take(keyed(1), keyed(2)).failure is None
    assert service.held == 2


@both
def test_a_record_that_makes_room_as_it_comes_does_not_fail(policy: AnyOperator) -> None:
    step = Service(policy).take(keyed(1), keyed(2), keyed(60))
    assert step.failure is None
    assert left(step) == [keyed(1), keyed(2)]


@both
def test_the_cause_is_the_place_in_the_chains_batch(policy: AnyOperator) -> None:
    few = [keyed(1, b"1"), keyed(2), keyed(3, b"1"), keyed(4), keyed(5, b"1"), keyed(6)]
    step = Service(FILTER, policy).take(*few)
    assert step.failure is not None
    assert (step.failure.cause, step.failure.operator) == (5, policy.kind)


@both
def test_records_that_left_before_go_through_the_operators_behind(policy: AnyOperator) -> None:
    records = [keyed(1, b"1"), keyed(2), keyed(60), keyed(61), keyed(62), keyed(63)]
    step = Service(policy, FILTER).take(*records)
    assert step.failure is not None
    assert (left(step), step.forwarded.causes) == ([keyed(2)], [2])


def test_no_record_behind_the_failure_is_decided() -> None:
    records = [keyed(1), keyed(2), keyed(3), keyed(4, b"no number")]
    step = Service(FILTER, REORDER, explain=True).take(*records)
    assert step.failure is not None
    assert step.dead == []
    assert {one.cause for one in step.decisions} <= {0, 1, 2}


def test_a_record_in_front_of_the_failure_stays_dead() -> None:
    records = [keyed(1, b"no number"), keyed(2), keyed(3), keyed(4)]
    step = Service(FILTER, SUPPRESS, explain=True).take(*records)
    assert [aside.cause for aside in step.dead] == [0]
    dead = [one for one in step.decisions if one.verdict is Verdict.DEAD]
    assert [(one.operator, one.cause) for one in dead] == [("filter", 0)]


@both
def test_after_a_failure_the_state_is_that_of_the_last_commit(policy: AnyOperator) -> None:
    service = Service(TABLE, policy)
    service.take(keyed(1))
    before = dict(service.store.range(b"", b"\xff"))
    assert service.take(keyed(2), keyed(3)).failure is not None
    service.overlay.discard()
    assert dict(service.store.range(b"", b"\xff")) == before


@pytest.mark.parametrize("answer", ["spill", "emit-early"])
@both
def test_a_service_with_another_answer_goes_on_where_one_shut_down(
    policy: AnyOperator, answer: str
) -> None:
    failed = Service(policy)
    failed.take(keyed(1), keyed(2))
    assert failed.take(keyed(3), keyed(4)).failure is not None
    buffer = BufferPolicy.model_validate({"records": 2, "when_full": answer})
    service = failed.restarted(policy.model_copy(update={"buffer": buffer}))
    gone = left(service.take(keyed(3), keyed(4))) + left(service.take(keyed(500)))
    assert gone == [keyed(1), keyed(2), keyed(3), keyed(4)]


@both
def test_updates_of_one_key_take_one_place(policy: AnyOperator) -> None:
    step = Service(policy).take(*(record(time, value=b"9") for time in (1, 2, 3, 4)))
    assert (step.failure is None) == isinstance(policy, SuppressPolicy)
