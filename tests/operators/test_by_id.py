"""Duplicates by id alone: the key says nothing, and every partition's id is one id."""

from __future__ import annotations

from headrace.contracts.decision import Reason
from headrace.contracts.policies import DeduplicatePolicy, FilterPolicy, ReorderPolicy
from headrace.contracts.record import Record
from tests.operators.service import FAR_MS, Service, left, record

BY_ID = DeduplicatePolicy(by="id", id="value.id", interval_ms=1_000)


def event(timestamp_ms: int, key: bytes | None, event_id: str) -> Record:
    """A record with an id in its value."""
    return record(timestamp_ms, key, b'{"id": "%s"}' % event_id.encode())


def test_one_id_under_two_keys_is_a_duplicate() -> None:
    one, two, none = event(10, b"a", "x"), event(20, b"b", "x"), event(30, None, "x")
    assert left(Service(BY_ID).take(one, two, none)) == [one]


def test_a_record_without_key_has_an_id_like_any_other() -> None:
    one, two = event(10, None, "x"), event(20, None, "y")
    assert left(Service(BY_ID).take(one, two)) == [one, two]


def test_behind_reorder_the_earliest_is_the_first() -> None:
    service = Service(ReorderPolicy(grace_ms=100), BY_ID)
    late, early = event(20, b"a", "x"), event(10, b"b", "x")
    service.take(late, early)
    assert left(service.take(event(FAR_MS, b"c", "y"))) == [early]


def test_in_front_of_reorder_the_one_that_came_first_is_the_first() -> None:
    service = Service(BY_ID, ReorderPolicy(grace_ms=100))
    late, early = event(20, b"a", "x"), event(10, b"b", "x")
    service.take(late, early)
    assert left(service.take(event(FAR_MS, b"c", "y"))) == [late]


def test_an_id_is_known_after_a_restart() -> None:
    first = Service(ReorderPolicy(grace_ms=0), BY_ID)
    first.take(event(10, b"a", "x"))
    second = first.restarted(ReorderPolicy(grace_ms=0), BY_ID)
    assert left(second.take(event(20, b"b", "x"), event(20, b"a", "y"))) == [event(20, b"a", "y")]


def test_a_record_that_the_chain_filters_out_first_is_no_first_record() -> None:
    service = Service(FilterPolicy(where='key == "a"'), BY_ID)
    wrong, right = event(10, b"b", "x"), event(20, b"a", "x")
    assert left(service.take(wrong, right)) == [right]


def test_a_record_without_id_is_forwarded_and_one_that_cannot_be_read_is_dead() -> None:
    service = Service(BY_ID, explain=True)
    nothing, null, broken = record(1, value=b"{}"), record(2, value=None), record(3, value=b"{")
    step = service.take(nothing, null, broken)
    assert left(step) == [nothing, null]
    assert [(aside.record, aside.reason) for aside in step.dead] == [(broken, Reason.UNDECODABLE)]
    assert [one.reason for one in step.decisions] == [
        Reason.NULL_ID, Reason.NULL_ID, Reason.UNDECODABLE,
    ]  # fmt: skip


def test_two_deduplications_in_one_chain_keep_apart() -> None:
    by_key = DeduplicatePolicy(name="keys", interval_ms=1_000)
    by_id = BY_ID.model_copy(update={"name": "ids"})
    first = Service(by_key, by_id)
    first.take(event(10, b"a", "x"))
    # The key "x" is not the id "x", although both are deduplicated.
    again = event(20, b"x", "y")
    assert left(first.restarted(by_key, by_id).take(again, event(20, b"y", "x"))) == [again]
