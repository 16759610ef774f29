"""The JSON of rows in columns is that which `orjson` writes of each row."""

from __future__ import annotations

from typing import Any

import orjson
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.spark_jobs.write.row_json import json_of

LONG_MAX = (1 << 63) - 1
FIELDS = pa.struct(
    {
        "text": pa.string(),
        'a "name"\n': pa.string(),
        "long": pa.int64(),
        "short": pa.int16(),
        "yes": pa.bool_(),
    }
)
texts = st.none() | st.text(max_size=4) | st.sampled_from(('"', "\\", "\x00", "\x1f", "\x7f", "é"))
rows = st.fixed_dictionaries(
    {
        "text": texts,
        'a "name"\n': texts,
        "long": st.none() | st.integers(-LONG_MAX - 1, LONG_MAX),
        "short": st.none() | st.integers(-(1 << 15), (1 << 15) - 1),
        "yes": st.none() | st.booleans(),
    }
)
NULLS: dict[str, Any] = dict.fromkeys(field.name for field in FIELDS)
PLAIN = {**NULLS, "text": "é\x7f", "long": -LONG_MAX - 1}
ESCAPED = [{**NULLS, "text": f"a{sign}"} for sign in '"\\\x1f']


@given(given_rows=st.lists(rows, max_size=5), start=st.integers(0, 2))
@example(given_rows=[], start=0)
@example(given_rows=[NULLS, PLAIN], start=0)
@example(given_rows=[*ESCAPED, PLAIN], start=0)
@example(given_rows=[*ESCAPED, PLAIN], start=len(ESCAPED))
def test_the_json_of_columns_is_that_of_rows(given_rows: list[dict[str, Any]], start: int) -> None:
    in_order = [{name: row[name] for name in NULLS} for row in given_rows]
    columns = pa.array(in_order, FIELDS).slice(start)
    assert json_of(columns).to_pylist() == [*map(orjson.dumps, in_order[start:])]
