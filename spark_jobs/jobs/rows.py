"""The JSON of a job's rows."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

_NULLS_TOO = {"ignoreNullFields": "false"}


def with_row(results: DataFrame, row: Column) -> DataFrame:
    """Results whose joined rows have this struct, as JSON, for their value."""
    is_joined = F.col("verdict") == "joined"
    value = F.to_json(row, _NULLS_TOO).cast("binary")
    return results.withColumn("value", F.when(is_joined, value).otherwise(F.col("value")))


def read_json(value: bytes | None) -> dict[str, Any] | None:
    """The fields of a value, None of a tombstone and of what is no JSON object."""
    if value is None:
        return None
    try:
        found = json.loads(value)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def write_json(fields: dict[str, Any]) -> bytes:
    """Fields as a value; the same fields are always the same bytes."""
    return json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()
