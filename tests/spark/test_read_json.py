"""Values that a job's own functions read."""

from __future__ import annotations

import pytest

from headrace.spark_jobs.jobs.rows import read_json


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
        (None, None),
    ],
)
def test_a_value_is_read_as_spark_reads_it(
    value: bytes | None, fields: dict[str, object] | None
) -> None:
    assert read_json(value) == fields
