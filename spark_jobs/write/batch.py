"""Ask Spark about the micro-batch that is being written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession

_QUERY_ID = "sql.streaming.queryId"


def query_id_of(frame: DataFrame) -> str:
    """Return the id of the checkpoint behind a frame in `foreachBatch`; it outlives the driver."""
    query_id = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    assert query_id is not None, "a batch is written inside of foreachBatch"
    return query_id


@contextmanager
def as_query(spark: SparkSession, query_id: str) -> Iterator[None]:
    """Write as the query of a checkpoint does, outside of it and before its first micro-batch."""
    with having(spark, _QUERY_ID, query_id):
        yield


@contextmanager
def having(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Give a local property to the jobs that this thread starts in here."""
    context = spark.sparkContext
    context.setLocalProperty(name, value)
    try:
        yield
    finally:
        # Py4J takes None for null, which removes the property; PySpark's types know no None.
        context.setLocalProperty(name, None)  # type: ignore[arg-type]
