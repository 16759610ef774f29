"""Let Spark 4.1 report on a micro-batch that it does again.

Behind each micro-batch Spark reports how far its Kafka sources are behind their topics. It knows
the ends of the topics from planning that micro-batch. But a start after a crash does a micro-batch
again that an earlier driver planned. Spark 4.1 ends the query over the report on it, although the
micro-batch is written and committed (SPARK-57438).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.spark_jobs.seams import REAL_TIME_MODE, ask_for_ends, has_class
from headrace.spark_jobs.write.batch import query_id_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    Write = Callable[[DataFrame, int], None]


def reportable(spark: SparkSession, write: Write) -> Write:
    """Return the write of a query whose first micro-batch may be one that is done again."""
    asks = has_class(spark, REAL_TIME_MODE)

    def ask_and_write(frame: DataFrame, batch_id: int) -> None:
        nonlocal asks
        if asks:
            ask_for_ends(spark, query_id_of(frame))
            asks = False
        write(frame, batch_id)

    return ask_and_write
