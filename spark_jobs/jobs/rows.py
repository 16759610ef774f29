"""The JSON of a job's rows."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

from headrace.spark_jobs.shapes import CORRECTED, JOINED

_NULLS_TOO = {"ignoreNullFields": "false"}


def with_row(results: DataFrame, row: Column, which: Column | None = None) -> DataFrame:
    """Results whose joined and corrected rows have this struct, as JSON, for their value.

    Or those of them that `which` says, where the others have theirs already.
    """
    chosen = F.col("verdict").isin(JOINED, CORRECTED) if which is None else which
    value = F.to_json(row, _NULLS_TOO).cast("binary")
    return results.withColumn("value", F.when(chosen, value).otherwise(F.col("value")))


def read_json(value: bytes | None) -> dict[str, Any] | None:
    """The fields of a value, None of a tombstone and of what is no JSON object."""
    if value is None:
        return None
    try:
        found = _DECODER.decode(value.decode())
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def text_of(field: Any) -> str | None:
    """A field as the text that Spark takes it for, None where it is null."""
    return field if field is None or isinstance(field, str) else json.dumps(field)


def write_json(fields: dict[str, Any]) -> bytes:
    """Fields as a value; the same fields are always the same bytes.

    ValueError where JSON has no word for a number: one that is infinite, or none.
    """
    return _ENCODER.encode(fields).encode()


def _refuse(word: str) -> None:
    message = f"{word} is no JSON"
    raise ValueError(message)


_DECODER = json.JSONDecoder(parse_constant=_refuse)
_ENCODER = json.JSONEncoder(separators=(",", ":"), sort_keys=True, allow_nan=False)
