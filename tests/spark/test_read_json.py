"""Values that a job's own functions read and write."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.spark_jobs.jobs.rows import write_json
from headrace.spark_jobs.read.json_text import read_json

texts = st.text(st.characters(codec=None), max_size=8)
numbers = (
    st.integers()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats(allow_nan=False, allow_infinity=False)
)
fields = texts | numbers | st.booleans() | st.none()
nested = st.recursive(fields, lambda inner: st.lists(inner) | st.dictionaries(texts, inner))
ASCII = "".join(map(chr, range(128)))


def _written(said: dict[str, Any]) -> bytes:
    return json.dumps(said, separators=(",", ":"), sort_keys=True, allow_nan=False).encode()


@pytest.mark.parametrize(
    ("value", "fields"),
    [
        (b'{"name":"a"}', {"name": "a"}),
        (b'{"name":"a\xff","n":1}', {"name": "a\N{REPLACEMENT CHARACTER}", "n": 1}),
        (b' \r\n\t{"n": 1}\n ', {"n": 1}),
        (b'\x0b{"n":1}', None),
        (b'{"n":1}{"n":2}', None),
        (b"", None),
        (b'{"name":"a', None),
        (b"[1]", None),
        (b'{"n":NaN}', None),
        (b'{"n":-0,"n":18446744073709551616}', {"n": 18446744073709551616}),
        (b'{"n":[36893488147419103232]}', {"n": [36893488147419103232]}),
        (b'{"name":"\\ud800"}', {"name": "\ud800"}),
        (None, None),
    ],
)
def test_a_value_is_read_as_spark_reads_it(
    value: bytes | None, fields: dict[str, object] | None
) -> None:
    assert read_json(value) == fields


@pytest.mark.parametrize("value", [b'{"n":-0}', b'{"n":1.0}', b'{"n":1e2}', b'{"n":true}'])
def test_a_number_keeps_its_type(value: bytes) -> None:
    assert repr(read_json(value)) == repr(json.loads(value))


@example({"b": 1, "a": 2})
@example({"a": "\u00e9"})
@example({"n": 1 << 64, "m": -(1 << 63)})
@example({each: each for each in ASCII} | {"all": ASCII})
@example({"b": 1.5, "a": "\ud800", "\u00e9": "\u2028"})
@example({"a": {"c": 1, "b": [1.0, 1 << 80]}})
@given(st.dictionaries(texts, nested))
def test_fields_are_written_as_json_does_and_read_back(said: dict[str, Any]) -> None:
    written = write_json(said)
    assert written == _written(said)
    assert repr(read_json(written)) == repr(json.loads(written))


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_json_lacks_is_refused(number: float) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json({"n": number})
