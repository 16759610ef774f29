"""Records of side topics, as they stand there."""

from __future__ import annotations

from headrace.contracts.dead_letter import DeadLetter, read_dead
from headrace.contracts.decision import Decision, Reason, Verdict
from headrace.contracts.record import Record
from headrace.services.emit.asides import dead_records, decision_records, late_records
from headrace.services.operators.operator import Aside

RECORD = Record(b"\xff", None, 7, (("h", None), ("h", b"")), "raw", 3, 41)
MADE = RECORD._replace(offset=None, timestamp_ms=9)
SOURCES = [RECORD._replace(offset=at) for at in (50, 51, 52)]


def aside(cause: int, record: Record) -> Aside:
    return Aside(cause, "reorder", record, Reason.UNDECODABLE, "a clause")


def letter_of(one: Aside) -> DeadLetter:
    (dead,) = dead_records([one], SOURCES)
    assert dead._replace(headers=()) == one.record._replace(headers=())
    letter = read_dead(dead)
    assert letter is not None
    return letter


def test_late_records_are_as_they_came() -> None:
    assert list(late_records([aside(0, RECORD), aside(1, MADE)])) == [RECORD, MADE]


def test_a_letter_has_the_record_its_origin_and_the_cause() -> None:
    letter = letter_of(aside(1, RECORD))
    assert letter.record == RECORD
    assert (letter.operator, letter.reason) == ("reorder", Reason.UNDECODABLE)
    assert (letter.detail, letter.exception, letter.stacktrace) == ("a clause", "", "")


def test_an_operators_record_is_found_by_the_record_that_caused_it() -> None:
    assert letter_of(aside(2, MADE)).record.offset == 52


def test_a_record_without_a_cause_stood_nowhere() -> None:
    assert letter_of(aside(-1, MADE)).record.offset is None


def test_a_decision_is_json_under_the_records_key() -> None:
    evidence = (("stream_time_ms", 12), ("grace_ms", 5))
    decision = Decision("reorder", RECORD, Verdict.DROPPED, Reason.PAST_GRACE, evidence, 0)
    (told,) = decision_records([decision])
    assert told._replace(value=None, headers=RECORD.headers) == RECORD
    assert told.headers == ()
    assert told.value == (
        b'{"operator":"reorder","verdict":"dropped","reason":"past-grace",'
        b'"evidence":{"stream_time_ms":12,"grace_ms":5},'
        b'"topic":"raw","partition":3,"offset":41,"timestamp_ms":7}'
    )
