"""The JSON of a job's rows."""

from __future__ import annotations

import json
from typing import Any

import orjson
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

from headrace.spark_jobs.shapes import CORRECTED, FIELDS, JOINED

_SPACE = " \t\n\r"
"""White space, as JSON has it around a value."""
_ALIKE = frozenset((str, int, bool, type(None)))
"""The types that orjson reads and writes as Python's own json does. It reads a whole number of more
than 64 bits as a float, so json has the last word on floats, and on what may have some inside."""
_DELETE = b"\x7f"
"""The one character of ASCII that json escapes and orjson does not."""
_NULLS_TOO = {"ignoreNullFields": "false"}


def with_row(results: DataFrame, row: Column, which: Column | None = None) -> DataFrame:
    """Set this struct, as JSON, as the value of joined and corrected rows.

    With `which`, set it only for the rows that `which` selects. The struct stays beside the JSON,
    so that a table need not parse what was written a moment before.
    """
    chosen = F.col("verdict").isin(JOINED, CORRECTED) if which is None else which
    value = F.to_json(row, _NULLS_TOO).cast("binary")
    before = F.col(FIELDS) if FIELDS in results.columns else F.lit(None)
    return results.withColumns(
        {
            "value": F.when(chosen, value).otherwise(F.col("value")),
            FIELDS: F.when(chosen, row).otherwise(before),
        }
    )


def read_json(value: bytes | None) -> dict[str, Any] | None:
    """Return the fields of a value, None for a tombstone or a value that is no JSON object."""
    if value is None:
        return None
    try:
        quick = orjson.loads(value)
    except ValueError:
        return _read_slowly(value)
    if type(quick) is dict and _ALIKE.issuperset(map(type, quick.values())):
        return quick
    return _read_slowly(value)


def text_of(field: Any) -> str | None:
    """Return a field as the text that Spark reads, None if it is null."""
    return field if field is None or isinstance(field, str) else json.dumps(field)


def write_json(fields: dict[str, Any]) -> bytes:
    """Encode fields as a value; the same fields always give the same bytes.

    Raises ValueError for a number that JSON cannot express: an infinite one, or NaN.
    """
    if _ALIKE.issuperset(map(type, fields.values())):
        try:
            quick = orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)
        except TypeError:
            return _write_slowly(fields)
        if quick.isascii() and _DELETE not in quick:
            return quick
    return _write_slowly(fields)


def _read_slowly(value: bytes) -> dict[str, Any] | None:
    # Spark, which has found the value readable, puts the same sign in the place of such bytes.
    text = value.decode(errors="replace").strip(_SPACE)
    try:
        found, end = _DECODER.raw_decode(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) and end == len(text) else None


def _write_slowly(fields: dict[str, Any]) -> bytes:
    return _ENCODER.encode(fields).encode()


def _refuse(word: str) -> None:
    message = f"{word} is no JSON"
    raise ValueError(message)


_DECODER = json.JSONDecoder(parse_constant=_refuse)
_ENCODER = json.JSONEncoder(separators=(",", ":"), sort_keys=True, allow_nan=False)
