"""Selectors, comparisons and the user's own functions read records."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.errors import RecordFailed, RecordUndecodable, SelectorInvalid
from headrace.contracts.record import Headers, Record
from headrace.contracts.selectors import (
    load_function,
    load_object,
    predicate,
    select,
    select_json,
    select_number,
    select_timestamp_ms,
)


def record(value: bytes | None = None, key: bytes | None = None, headers: Headers = ()) -> Record:
    """A record of which only this matters."""
    return Record(key, value, 1_000, headers, "t", 0, 0)


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the user's own module, not installed anywhere."""
    (tmp_path / "mine.py").write_text(
        "class Rules:\n"
        "    @staticmethod\n"
        "    def big(record): return len(record.value) > 3\n"
        "def text(record): return 'a'\n"
        "def number(record): return 12\n"
        "def nothing(record): return None\n"
        "def wrong(record): return [1]\n"
        "def truth(record): return True\n"
        "def odd(record): return [1, float('nan')]\n"
        "def long(record): return {'n': float('inf'), 'm': 10**30}\n"
        "def unknown(record): return [{1}]\n"
        "class Later:\n"
        "    async def __call__(self, record): return True\n"
        "later = Later()\n"
        "def fails(record): raise KeyError('secret')\n"
        "constant = 3\n"
    )
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "needy.py").write_text("import a_library_that_is_not_there\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("mine", "broken", "needy"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("key", b"k"),
        ("value", b'{"a": {"b": "x"}, "n": 1, "f": 1.0, "l": [2, 1], "o": {"z": 1, "a": 2}}'),
        ("header.h", b"2"),
        ("header.with.dots", b"d"),
        ("header.empty", None),
        ("header.missing", None),
        ("value.a.b", b"x"),
        ("value.n", b"1"),
        ("value.f", b"1.0"),
        ("value.l", b"[2,1]"),
        ("value.o", b'{"a":2,"z":1}'),
        ("value.missing", None),
        ("value.missing.too", None),
    ],
)
def test_ids(selector: str, expected: bytes | None) -> None:
    given_record = record(
        b'{"a": {"b": "x"}, "n": 1, "f": 1.0, "l": [2, 1], "o": {"z": 1, "a": 2}}',
        b"k",
        (("h", b"1"), ("h", b"2"), ("with.dots", b"d"), ("empty", b"x"), ("empty", None)),
    )
    assert select(selector)(given_record) == expected


@pytest.mark.parametrize("selector", ["value", "value.a", "key", "header.h"])
def test_an_empty_record_has_no_id(selector: str) -> None:
    assert select(selector)(record()) is None


@given(st.text())
def test_text_is_its_utf_8_bytes(text: str) -> None:
    found = select("value.id")(record(json.dumps({"id": text}).encode()))
    assert found == text.encode()


@given(st.integers(), st.integers())
def test_two_numbers_are_two_ids(one: int, other: int) -> None:
    ids = [select("value.id")(record(b'{"id": %d}' % (n << 50))) for n in (one, other)]
    assert (ids[0] == ids[1]) == (one == other)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"{", "the value is not JSON"),
        (b"[]", "`value` is a list, not an object, so it has no `a`"),
        (b'{"a": 1}', "`value.a` is a number, not an object, so it has no `b`"),
    ],
)
def test_an_unreadable_field_says_where(value: bytes, message: str) -> None:
    with pytest.raises(RecordUndecodable, match=message):
        select("value.a.b")(record(value))


@pytest.mark.parametrize(
    ("text", "expected"), [("mine:text", b"a"), ("mine:number", b"12"), ("mine:nothing", None)]
)
@pytest.mark.usefixtures("functions")
def test_a_function_gives_an_id(text: str, expected: bytes | None) -> None:
    assert select(text)(record()) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [("mine:wrong", "returned list"), ("mine:truth", "returned bool"), ("mine:fails", "KeyError$")],
)
@pytest.mark.usefixtures("functions")
def test_a_function_that_fails_makes_a_record_dead(text: str, message: str) -> None:
    with pytest.raises(RecordUndecodable, match=message):
        select(text)(record())


@pytest.mark.parametrize("name", ["odd", "long", "unknown"])
@pytest.mark.usefixtures("functions")
def test_a_function_that_returns_a_list_that_is_not_json_makes_a_record_dead(name: str) -> None:
    with pytest.raises(RecordFailed, match=f"`mine:{name}` returned an? [a-z]+ that is not JSON"):
        select_json(f"mine:{name}")(record())


@pytest.mark.usefixtures("functions")
def test_an_object_that_answers_later_is_refused() -> None:
    with pytest.raises(SelectorInvalid, match="answers later"):
        load_function("mine:later")


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("value.n", 7),
        ("value.f", 0.5),
        ("value.missing", None),
        ("key", 12),
        ("header.h", -2.5),
        ("header.missing", None),
        ("value.long", 123456789012345678901234567890),
    ],
)
def test_numbers(selector: str, expected: float | None) -> None:
    value = b'{"n": 7, "f": 0.5, "long": 123456789012345678901234567890}'
    assert select_number(selector)(record(value, b"12", (("h", b"-2.5"),))) == expected


@pytest.mark.usefixtures("functions")
def test_a_function_gives_numbers_and_timestamps_too() -> None:
    assert select_number("mine:number")(record()) == 12
    assert select_timestamp_ms("mine:number")(record()) == 12
    with pytest.raises(RecordUndecodable, match="is text, not a number"):
        select_number("mine:text")(record())


@pytest.mark.parametrize("value", [b'"7"', b"true", b"[]"])
def test_not_numbers(value: bytes) -> None:
    with pytest.raises(RecordUndecodable, match="not a number"):
        select_number("value")(record(value))
    with pytest.raises(RecordUndecodable, match="not a number"):
        select_number("header.n")(record(headers=(("n", value),)))


def test_a_header_that_is_not_json_is_not_a_number() -> None:
    with pytest.raises(RecordUndecodable, match=r"`header.n` is not a number"):
        select_number("header.n")(record(headers=(("n", b"x"),)))


def test_keys_and_headers_are_text() -> None:
    assert select_json("key")(record(key=b"12")) == "12"
    with pytest.raises(RecordUndecodable, match="not UTF-8"):
        select_json("key")(record(key=b"\xff"))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"1700000000123", 1700000000123),
        (b'"1970-01-01T00:00:01.500Z"', 1500),
        (b'"1970-01-01T01:00:00+01:00"', 0),
        (b'"1969-12-31T23:59:59.9999Z"', -1),
    ],
)
def test_timestamps(value: bytes, expected: int) -> None:
    assert select_timestamp_ms("value.t")(record(b'{"t": %s}' % value)) == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"null", "is null, not a timestamp"),
        (b"1.5", "is a number, not a timestamp"),
        (b"true", "not a timestamp"),
        (b'"yesterday"', "not ISO 8601"),
        (b'"2026-01-01T00:00:00"', "without an offset"),
    ],
)
def test_not_timestamps(value: bytes, message: str) -> None:
    with pytest.raises(RecordUndecodable, match=message):
        select_timestamp_ms("value.t")(record(b'{"t": %s}' % value))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"1700000000123", 1700000000123),
        (b"-5", -5),
        (b"0", 0),
        (b"1970-01-01T00:00:01.500Z", 1500),
    ],
)
def test_timestamps_in_keys_and_headers_are_digits_or_iso_8601(text: bytes, expected: int) -> None:
    assert select_timestamp_ms("header.t")(record(headers=(("t", text),))) == expected
    assert select_timestamp_ms("key")(record(key=text)) == expected


@pytest.mark.parametrize("text", [b"", b"-", b"1.5", "\u0663".encode(), b"1 "])
def test_other_text_in_a_header_is_no_timestamp(text: bytes) -> None:
    with pytest.raises(RecordUndecodable, match="not ISO 8601"):
        select_timestamp_ms("header.t")(record(headers=(("t", text),)))


@pytest.mark.parametrize("place", ["key", "header.h"])
def test_bytes_of_any_kind_are_not_null(place: str) -> None:
    binary = record(key=b"\xff\x01", headers=(("h", b"\xff"),))
    missing = record(key=None)
    assert predicate(f"{place} != null")(binary)
    assert not predicate(f"{place} == null")(binary)
    assert predicate(f"{place} == null")(missing)
    assert not predicate(f"{place} != null")(missing)


def test_a_value_of_any_kind_is_not_null() -> None:
    for value in (b"\xff not JSON", b"\0\0\0\0\x07", b"", b"null and void", b'{"n": 1}'):
        assert predicate("value != null")(record(value))
        assert not predicate("value == null")(record(value))
    for nothing in (b" null\n", b"null", None):
        assert predicate("value == null")(record(nothing))
        assert not predicate("value != null")(record(nothing))


def test_a_records_own_timestamp() -> None:
    assert select_timestamp_ms("record")(record(b"not JSON")) == 1_000


@pytest.mark.parametrize(
    ("where", "holds"),
    [
        ("value.n >= 3", True),
        ("value.n>3", False),
        ("value.n < 3.5", True),
        ("value.n == 3", True),
        ("value.n != 3", False),
        ('value.n == "3"', False),
        ('value.s == "3"', True),
        ('value.s < "4"', True),
        ("value.b == true", True),
        ("value.b == 1", False),
        ("value.b != 1", True),
        ("value.one == true", False),
        ("value.missing == null", True),
        ("value.missing != null", False),
        ("value.missing < 3", False),
        ("value.missing > 3", False),
        ("value.missing != 3", False),
        ("value.n != null", True),
        ("header.missing != 3", False),
        ('header.missing == "x"', False),
        ('key == "k"', True),
        ('key != "k"', False),
        ("header.attempt >= 2", True),
        ("header.missing >= 2", False),
        ('header.type == "a == b"', True),
        ("mine:truth", True),
        ("mine:nothing", False),
        ("mine:Rules.big", True),
    ],
)
@pytest.mark.usefixtures("functions")
def test_comparisons(where: str, *, holds: bool) -> None:
    value = b'{"n": 3, "s": "3", "b": true, "one": 1}'
    headers = (("attempt", b"2"), ("type", b"a == b"))
    assert predicate(where)(record(value, b"k", headers)) is holds


@given(st.integers() | st.floats(allow_nan=False), st.integers(-100, 100))
def test_numbers_compare_as_numbers(found: float, literal: int) -> None:
    if found in {float("inf"), float("-inf")}:
        found = 0
    given_record = record(json.dumps({"n": found}).encode())
    assert predicate(f"value.n >= {literal}")(given_record) == (found >= literal)
    assert predicate(f"value.n == {literal}")(given_record) == (found == literal)


def test_values_without_an_order_are_undecodable() -> None:
    with pytest.raises(RecordUndecodable, match=r"`value.n` is text, and 3 is a number"):
        predicate("value.n < 3")(record(b'{"n": "secret"}'))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("absent:f", "there is no module `absent`"),
        ("json.absent:f", "there is no module `json.absent`"),
        ("absent.inner:f", "there is no module `absent`"),
        ("mine:absent", "module `mine` has no `absent`"),
        ("mine:Rules.absent", "module `mine` has no `Rules.absent`"),
        ("mine:constant", "is not a function"),
        ("broken:f", "fails when imported .ZeroDivisionError"),
        ("needy:f", "needs `a_library_that_is_not_there`, which is not installed"),
        ("key", "names nothing in a module"),
    ],
)
@pytest.mark.usefixtures("functions")
def test_functions_that_cannot_be_loaded(text: str, message: str) -> None:
    with pytest.raises(SelectorInvalid, match=message):
        load_function(text)


@pytest.mark.usefixtures("functions")
def test_an_object_need_not_be_a_function() -> None:
    assert load_object("mine:constant") == 3


def test_the_working_folder_stands_behind_the_libraries(functions: Path) -> None:
    (functions / "json.py").write_text("dumps = None\n")
    loaded: Any = load_function("json:dumps")
    assert loaded is json.dumps
    load_function("mine:text")
    assert sys.path[-1] == ""
    assert sys.path.count("") == 1
