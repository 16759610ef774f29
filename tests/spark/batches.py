"""Micro-batches of rows, as a sink of a table gets them."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

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
