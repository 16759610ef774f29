"""The JSON of a job's rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)
from pyspark.sql.types import BinaryType

from headrace.spark_jobs.read.json_text import ALIKE
from headrace.spark_jobs.shapes import CORRECTED, FIELDS, JOINED

if TYPE_CHECKING:
    from headrace.spark_jobs.versioned.records import Objects
    from headrace.spark_jobs.versioned.stream_table import RowOf

_DELETE = b"\x7f"
"""The one character of ASCII that json escapes and orjson does not."""
_NULLS_TOO = {"ignoreNullFields": "false"}


def with_row(results: DataFrame, row: Column) -> DataFrame:
    """Set this struct, as JSON, as the value of joined and corrected rows.

    The struct stays beside the JSON, so that a table need not parse what was written a moment
    before.
    """
    chosen = F.col("verdict").isin(JOINED, CORRECTED)
    value = F.to_json(row, _NULLS_TOO).cast("binary")
    return results.withColumns(
        {
            "value": F.when(chosen, value).otherwise(F.col("value")),
            FIELDS: F.when(chosen, row),
        }
    )


def rows_with(row_of: RowOf) -> Callable[[DataFrame, Column], DataFrame]:
    """Return what sets the value of the results that a column selects to their rows."""

    def row_if_any(
        key: bytes | None, value: bytes | None, table_value: bytes | None
    ) -> bytes | None:
        return None if value is None else row_of(key, value, table_value)

    def with_rows(results: DataFrame, which: Column) -> DataFrame:
        # Spark calls a function for all rows, and some have another kind of value, or none.
        value = F.when(which, F.col("value"))
        # Spark 4.1 would look for another kind of function in the types, and warn that it is none.
        made = F.udf(row_if_any, BinaryType(), useArrow=False)("key", value, "table_value")
        return results.withColumn("value", F.when(which, made).otherwise(F.col("value")))

    return with_rows


def write_json(fields: dict[str, Any]) -> bytes:
    """Encode fields as a value; the same fields always give the same bytes.

    Raises ValueError for a number that JSON cannot express: an infinite one, or NaN.
    """
    return write_alike(fields) or _write_slowly(fields)


def write_alike(fields: dict[str, Any]) -> bytes | None:
    """Do as `write_json` with fields that are all of a type in `ALIKE`, None for others."""
    if not ALIKE.issuperset(map(type, fields.values())):
        return None
    try:
        # A copy, as in `write_row`.
        quick = b"%b" % orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return _write_slowly(fields)
    if quick.isascii() and _DELETE not in quick:
        return quick
    return _write_slowly(fields)


def write_row(fields: dict[str, Any]) -> bytes:
    """Encode fields as Spark writes a row: in their order, and nulls too."""
    try:
        # A copy: orjson leaves a row at the start of a kilobyte, and has to find another kilobyte
        # for the next one. To make a row and keep it took 1.8 us, and takes 0.14.
        return b"%b" % orjson.dumps(fields)
    except TypeError:
        # A text may have half of a pair of characters, for which Spark writes a question mark.
        return orjson.dumps({name: _whole(field) for name, field in fields.items()})


def texts_of(keys: Objects, decode: Callable[[bytes], str | None]) -> pa.StringArray:
    """Return keys as texts; `decode` says what stands in the place of bytes that are no text."""
    try:
        return pa.array(keys, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if key is None else decode(key) for key in keys], pa.string())


def rows_in_columns(names: Sequence[str], columns: Sequence[pa.Array]) -> pa.StructArray | None:
    """Make rows of the columns of their fields, None if one has more than two gigabytes."""
    if any(isinstance(column, pa.ChunkedArray) for column in columns):
        return None
    return pa.StructArray.from_arrays(columns, names=names)


def _whole(field: Any) -> Any:
    return field.encode(errors="replace").decode() if isinstance(field, str) else field


def _write_slowly(fields: dict[str, Any]) -> bytes:
    return _ENCODER.encode(fields).encode()


_ENCODER = json.JSONEncoder(separators=(",", ":"), sort_keys=True, allow_nan=False)
