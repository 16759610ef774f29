"""Micro-batches of rows, as a sink of a table gets them."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

from headrace.spark_jobs.operators.bundles import BUNDLES_SCHEMA
from headrace.spark_jobs.write.bundled import COLUMNS, packed

_SCHEMA = "key STRING, at INT, cents BIGINT"
_QUERY_ID = "sql.streaming.queryId"
"""Where Spark says which checkpoint a micro-batch is of."""
Row = tuple[str | None, int, int | None]
"""A key, the second of its time, and cents; without them the key is deleted."""


def batch_of(spark: SparkSession, rows: list[Row], checkpoint: str = "one") -> DataFrame:
    """A micro-batch of a query with this checkpoint."""
    spark.sparkContext.setLocalProperty(_QUERY_ID, checkpoint)
    return spark.createDataFrame(rows, _SCHEMA).select(
        "key",
        F.timestamp_seconds("at").alias("timestamp"),
        F.isnull("cents").alias("deleted"),
        F.lit(0).alias("task"),
        F.col("at").cast("bigint").alias("sequence"),
        "cents",
    )


def bundles_of(
    spark: SparkSession,
    numbers: range,
    keys: Sequence[bytes | None],
    times_ms: Sequence[int],
    partitions: int,
) -> DataFrame:
    """Rows in bundles of two, with keys and times in turn; every third one is deleted."""
    results = [
        {
            **dict.fromkeys(COLUMNS.names),
            "verdict": ("joined", "corrected")[number % 2],
            "task": number % 3,
            "sequence": number,
            "timestamp_ms": times_ms[number % len(times_ms)],
            "key": keys[number % len(keys)],
            "value": None
            if number % 3 == 0
            else json.dumps({"text": f"é{number}", "n": number, "yes": True}).encode(),
        }
        for number in numbers
    ]
    bundles = [
        (place, bundle)
        for place, first in enumerate(range(0, len(results), 2))
        for bundle in packed(pa.Table.from_pylist(results[first : first + 2], COLUMNS))
    ]
    return spark.createDataFrame(bundles, BUNDLES_SCHEMA).repartition(partitions, "task")


def sorted_rows(read: DataFrame) -> list[tuple[object, ...]]:
    """All rows, with a key as its bytes, since PySpark does not read a text that is none."""
    key = read["key"].cast("binary").alias("key")
    time = read["timestamp"].cast("double").alias("timestamp")
    others = (name for name in read.columns if name not in {"key", "timestamp"})
    return sorted((tuple(row) for row in read.select(key, time, *others).collect()), key=str)
