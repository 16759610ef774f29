"""JSON, exact where a double would not be."""

from __future__ import annotations

import json
import os
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.errors import RecordUndecodable
from headrace.contracts.serde.json import Json, decode_json, decode_json_field, encode_json
from tests.bench.processes import memory_bytes

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
)
DOCUMENTS: st.SearchStrategy[Json] = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10
)


@given(DOCUMENTS)
def test_a_written_value_is_read(document: Json) -> None:
    assert decode_json(encode_json(document)) == document


@given(DOCUMENTS)
def test_it_reads_what_others_write(document: Json) -> None:
    assert decode_json(json.dumps(document).encode()) == document


@given(st.dictionaries(st.text(), st.integers()))
def test_the_order_of_keys_does_not_matter(document: dict[str, Json]) -> None:
    assert encode_json(document) == encode_json(dict(reversed(document.items())))


def test_written_values_take_the_memory_of_their_bytes() -> None:
    before = memory_bytes(os.getpid())
    written = [encode_json({"number": number}) for number in range(50_000)]
    assert memory_bytes(os.getpid()) - before < 1000 * len(written)


@given(st.integers(), st.integers())
def test_whole_numbers_stay_apart_at_any_length(one: int, other: int) -> None:
    one_read = decode_json_field(b'{"id": {"n": %d}}' % (one << 60), ("id", "n"))
    other_read = decode_json_field(b'{"id": {"n": %d}}' % (other << 60), ("id", "n"))
    assert (one_read == other_read) == (one == other)


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("beside", [None, 1, 10**30, "null"])
def test_a_number_that_json_lacks_is_undecodable_at_any_depth(odd: float, beside: Json) -> None:
    documents: list[Json] = [[odd, beside], {"a": {"b": [beside, odd]}}, [[beside], {"n": odd}]]
    for document in documents:
        with pytest.raises(RecordUndecodable, match="NaN or infinite"):
            encode_json(document)


@given(st.integers(0, (1 << 56) - 1))
def test_a_long_of_kafkas_is_a_number(number: int) -> None:
    assert decode_json(number.to_bytes(8)) == number


@pytest.mark.parametrize("data", [b"\0" * 7, b"\0" * 9, b"\1" + b"\0" * 7])
def test_other_bytes_are_no_number(data: bytes) -> None:
    with pytest.raises(RecordUndecodable, match="not JSON"):
        decode_json(data)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\xff", b"NaN", b'"\\ud800"', b"1e999", b"[" * 2000 + b"]" * 2000]
)
def test_not_json(data: bytes) -> None:
    with pytest.raises(RecordUndecodable, match="not JSON"):
        decode_json(data)


def test_a_number_longer_than_any_double_is_undecodable() -> None:
    with pytest.raises(RecordUndecodable, match="infinity"):
        decode_json(b"1" + b"0" * 5000)


def test_exact_reading_never_ends_in_a_crash() -> None:
    depth = 1_000
    data = b"[" * depth + b"9" * 30 + b"]" * depth
    # How deep the standard library can go differs between versions of Python.
    with suppress(RecordUndecodable):
        found = decode_json(data)
        assert json.dumps(found) == data.decode()


def test_a_whole_number_is_exact_as_far_as_doubles_reach_and_undecodable_beyond() -> None:
    assert decode_json_field(b'{"id": %b}' % (b"9" * 308), ("id",)) == int("9" * 308)
    for digits in (309, 5_000):
        with pytest.raises(RecordUndecodable, match="infinity"):
            decode_json_field(b'{"id": %b}' % (b"9" * digits), ("id",))


def test_very_deep_nesting_is_undecodable() -> None:
    document: Json = []
    for _ in range(100_000):
        document = [document]
    with pytest.raises(RecordUndecodable, match="nested"):
        encode_json(document)


def test_a_path_through_something_else_names_the_place_and_not_the_content() -> None:
    with pytest.raises(RecordUndecodable) as error:
        decode_json_field(b'{"order": ["secret"]}', ("order", "id"))
    assert str(error.value) == "`value.order` is a list, not an object, so it has no `id`"


@pytest.mark.parametrize("data", [b"null", b"{}", b'{"a": null}', b'{"a": {"b": null}}'])
def test_missing_and_null_are_nothing(data: bytes) -> None:
    assert decode_json_field(data, ("a", "b")) is None
