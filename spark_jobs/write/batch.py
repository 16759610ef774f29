"""Ask Spark about the micro-batch that is being written."""

from __future__ import annotations

from pyspark.sql import DataFrame

_QUERY_ID = "sql.streaming.queryId"


def query_id_of(frame: DataFrame) -> str:
    """Return the id of the checkpoint behind a frame in `foreachBatch`; it outlives the driver."""
    query_id = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    assert query_id is not None, "a batch is written inside of foreachBatch"
    return query_id
