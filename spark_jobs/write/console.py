"""Show rows in the terminal; a micro-batch that runs again is shown again."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)
from pyspark.sql.types import BinaryType

from headrace.spark_jobs.write.quoted import quoted

ROWS_MAX = 20
"""The number of rows of each micro-batch that are shown."""


class ConsoleSink:
    """Shows the first rows of each micro-batch."""

    def write(self, frame: DataFrame, batch_id: int) -> None:
        """Print rows as a table, with bytes as text."""
        columns = [
            F.col(quoted(field.name)).cast("string").alias(field.name)
            if isinstance(field.dataType, BinaryType)
            else F.col(quoted(field.name))
            for field in frame.schema.fields
        ]
        print(f"micro-batch {batch_id}")  # noqa: T201 - it was asked for
        frame.select(columns).show(ROWS_MAX, truncate=False)

    def has_written(self, _spark: SparkSession, _query_id: str, _batch_id: int) -> bool:
        """Return False: a repeated micro-batch is shown again."""
        return False
