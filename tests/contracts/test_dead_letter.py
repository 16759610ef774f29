"""Dead records come back byte for byte."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.dead_letter import (
    EXCEPTION_HEADER,
    REPLAYS_HEADER,
    DeadLetter,
    cut,
    dead_headers,
    read_dead,
    replay_headers,
    replays,
)
from headrace.contracts.decision import Reason
from headrace.contracts.record import Headers, Record

OURS = [EXCEPTION_HEADER, "__streams.errors.topic", "headrace.reason", REPLAYS_HEADER]
NAMES = st.text() | st.sampled_from(OURS)
BYTES = st.none() | st.binary()
RECORDS = st.builds(
    Record,
    key=BYTES,
    value=BYTES,
    timestamp_ms=st.integers(0, 2**62),
    headers=st.lists(st.tuples(NAMES, BYTES)).map(tuple),
    topic=st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True),
    partition=st.integers(0, 2**31 - 1),
    offset=st.none() | st.integers(0, 2**63 - 1),
)
LETTERS = st.builds(
    DeadLetter,
    RECORDS,
    operator=st.text(),
    reason=st.none() | st.sampled_from(Reason),
    detail=st.text(),
    exception=st.text(),
    stacktrace=st.text(),
    is_cut=st.just(False),  # noqa: FBT003
)


def lying(letter: DeadLetter, offset: int = 0) -> Record:
    """The record that lies in the dead-letter topic."""
    return letter.record._replace(
        headers=dead_headers(letter), topic="dead", partition=0, offset=offset
    )


@given(LETTERS)
def test_a_letter_is_read_as_it_was_written(letter: DeadLetter) -> None:
    assert read_dead(lying(letter)) == letter


@given(LETTERS, LETTERS)
def test_a_record_may_die_twice(first: DeadLetter, second: DeadLetter) -> None:
    again = second._replace(record=lying(first, offset=7))
    read = read_dead(lying(again))
    assert read == again
    assert read is not None
    assert read_dead(read.record) == first


def test_headers_are_those_of_kafka_streams_and_ours() -> None:
    record = Record(b"k", b"{", 5, (("trace", b"1"),), "clicks.raw", 3, 812345)
    letter = DeadLetter(record, "intake", Reason.UNDECODABLE, "not JSON", "builtins.ValueError")
    assert dead_headers(letter) == (
        ("trace", b"1"),
        ("__streams.errors.exception", b"builtins.ValueError"),
        ("__streams.errors.message", b"not JSON"),
        ("__streams.errors.stacktrace", b""),
        ("__streams.errors.topic", b"clicks.raw"),
        ("__streams.errors.partition", b"3"),
        ("__streams.errors.offset", b"812345"),
        ("headrace.operator", b"intake"),
        ("headrace.reason", b"undecodable"),
    )


def test_a_letter_of_kafka_streams_is_read() -> None:
    headers = (
        ("own", None),
        ("__streams.errors.exception", b"java.lang.RuntimeException"),
        ("__streams.errors.message", b"\xff"),
        ("__streams.errors.stacktrace", None),
        ("__streams.errors.topic", b"in"),
        ("__streams.errors.partition", b"2"),
        ("__streams.errors.offset", b"9"),
    )
    letter = read_dead(Record(None, b"v", 5, headers, "dead", 0, 0))
    assert letter is not None
    assert letter.record == Record(None, b"v", 5, (("own", None),), "in", 2, 9)
    assert letter.reason is None
    assert letter.operator == ""


def test_other_records_are_no_letters() -> None:
    plain = Record(None, b"v", 5, (("a", b"b"),), "dead", 0, 0)
    assert read_dead(plain) is None
    assert read_dead(plain._replace(headers=((EXCEPTION_HEADER, b"x"),))) is None


@given(RECORDS, st.integers(1, 4))
def test_replays_are_counted(record: Record, times: int) -> None:
    own = tuple(header for header in record.headers if header[0] != REPLAYS_HEADER)
    record = record._replace(headers=own)
    assert replays(record) == 0
    for _ in range(times):
        record = record._replace(headers=replay_headers(record))
    assert replays(record) == times
    assert record.headers[:-1] == own


def test_a_count_that_is_no_number_is_none() -> None:
    record = Record(None, None, 0, ((REPLAYS_HEADER, "\u00b2".encode()),), "t", 0, 0)
    assert replays(record) == 0


def test_a_name_that_is_not_utf8_is_legible_and_its_bytes_are_kept() -> None:
    headers = (("\u00e9", b"1"), ("a\udcff", None))
    one = Record(b"k", b"v", 1, headers, "clicks.raw", 0, 7)
    written = dead_headers(DeadLetter(one, "intake", Reason.UNDECODABLE, "a name"))
    assert written[:3] == (("\u00e9", b"1"), ("a\\xff", None), ("headrace.names", b"c3a9 61ff"))
    assert all(name.encode() for name, _ in written)
    letter = read_dead(one._replace(headers=written))
    assert letter is not None
    assert letter.record.headers == written[:3]


@pytest.mark.parametrize("names", [("a\udcff",), ("", "\u00e9", "\udcff\udcfe", "\udcff")])
def test_a_record_that_is_put_back_has_the_names_that_it_had(names: tuple[str, ...]) -> None:
    own = tuple((name, b"%d" % at) for at, name in enumerate(names))
    one = Record(b"k", b"v", 1, own, "clicks.raw", 0, 7)
    for times in (b"1", b"2"):
        dead = dead_headers(DeadLetter(one, "intake", Reason.UNDECODABLE, "a name"))
        letter = read_dead(one._replace(headers=dead))
        assert letter is not None
        one = letter.record._replace(headers=replay_headers(letter.record))
        assert one.headers == (*own, (REPLAYS_HEADER, times))


@pytest.mark.parametrize("names", [None, b"", b"61", b"61ff zz", b"\xff", b"61 61ff", b"62ff"])
def test_a_header_of_others_by_the_name_of_ours_stays(names: bytes | None) -> None:
    own = (("a\\xff", b"1"), ("headrace.names", names))
    put_back = replay_headers(Record(b"k", b"v", 1, own, "clicks.raw", 0, 7))
    assert put_back == (*own, (REPLAYS_HEADER, b"1"))


def test_a_number_that_no_offset_has_is_no_number() -> None:
    one = Record(b"k", b"v", 1, ((REPLAYS_HEADER, b"1" * 5_000),), "clicks.raw", 0, 7)
    assert replays(one) == 0


@pytest.mark.parametrize("bytes_max", [3_000, 20_000, 200_000])
@pytest.mark.parametrize("large", ["key", "headers", "value", "all"])
def test_a_letter_that_is_cut_says_what_was_there(bytes_max: int, large: str) -> None:
    much = bytes(range(256)) * 1_000
    one = Record(
        much if large in ("key", "all") else b"k",
        much if large in ("value", "all") else b"v",
        1,
        (("h", much if large in ("headers", "all") else b"h"),),
        "clicks.raw",
        0,
        7,
    )
    whole = DeadLetter(one, "sink", Reason.TOO_LARGE, "x" * 1_000, stacktrace="y" * 4_000)
    dead = cut(one._replace(headers=dead_headers(whole)), bytes_max)
    said = dict(dead.headers)
    assert len(dead.key or b"") + len(dead.value or b"") + _size_of(dead.headers) < bytes_max
    letter = read_dead(dead)
    assert letter is not None
    assert (letter.is_cut, letter.reason, letter.record.offset) == (True, Reason.TOO_LARGE, 7)
    for part, before, left in (("key", one.key, dead.key), ("value", one.value, dead.value)):
        assert before is not None
        assert left is not None
        assert before.startswith(left)
        if left == before:
            assert f"headrace.{part}.bytes" not in said
        else:
            assert said[f"headrace.{part}.bytes"] == b"%d" % len(before)
            assert said[f"headrace.{part}.sha256"] == sha256(before).hexdigest().encode()
    assert (("h", one.headers[0][1]) in dead.headers) == ("headrace.headers.bytes" not in said)


def _size_of(headers: Headers) -> int:
    return sum(len(name) + len(value or b"") for name, value in headers)
