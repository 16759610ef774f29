"""Rows to the terminal, for a look; a micro-batch that is run again is shown again."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType

ROWS_MAX = 20
"""Of each micro-batch."""


class ConsoleSink:
    """Shows the first rows of each micro-batch."""

    def write(self, frame: DataFrame, batch_id: int) -> None:
        """Print rows as a table, bytes as the text that they are mostly."""
        columns = [
            frame[field.name].cast("string").alias(field.name)
            if isinstance(field.dataType, BinaryType)
            else frame[field.name]
            for field in frame.schema.fields
        ]
        print(f"micro-batch {batch_id}")  # noqa: T201 - it was asked for
        frame.select(columns).show(ROWS_MAX, truncate=False)

    def has_written(self, _spark: SparkSession, _query_id: str, _batch_id: int) -> bool:
        """What was shown is shown again."""
        return False
