"""Rows to a Delta table, exactly once: the table's log knows which micro-batch came last.

The number of a micro-batch means something beside its checkpoint only, so the table remembers
which checkpoint writes to it, as a property, from before the first row on.
"""

from __future__ import annotations

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from contracts.errors import SinkOfAnotherQuery
from spark_jobs.write.batch import query_id_of

_PROPERTY = "headrace.query."


class DeltaSink:
    """Appends the micro-batches of one query to the table in a folder."""

    def __init__(self, query: str, folder: str) -> None:
        """The table is made by the first batch, if it is not there."""
        self._query = query
        self._folder = folder
        self._claimed = False

    def write(self, frame: DataFrame, batch_id: int) -> None:
        """Append a micro-batch, unless an earlier attempt did."""
        query_id = query_id_of(frame)
        if not self._claimed:
            self._claim(frame, query_id)
            self._claimed = True
        (
            frame.write.format("delta")
            .mode("append")
            .option("txnAppId", f"{self._query}/{query_id}")
            .option("txnVersion", batch_id)
            .save(self._folder)
        )

    def _claim(self, frame: DataFrame, query_id: str) -> None:
        """Note in the table whose it is, or refuse one of somebody else."""
        spark, name = frame.sparkSession, f"{_PROPERTY}{self._query}"
        make_table(spark, self._folder, frame.schema)
        table = DeltaTable.forPath(spark, self._folder)
        known = table.detail().select("properties").collect()[0]["properties"].get(name)
        if known is None:
            _set_property(spark, self._folder, name, query_id)
        elif known != query_id:
            message = (
                f"`{self._query}` has written to {self._folder} with another checkpoint, and its"
                " rows are there already; give the job another name or folder, or delete the"
                " folder to have everything written once more"
            )
            raise SinkOfAnotherQuery(message)


def make_table(spark: SparkSession, folder: str, schema: StructType | str) -> None:
    """Make an empty table, if there is none.

    A driver that was killed while it did so left a log without a first entry, which Delta's own
    `createIfNotExists` takes for a table and then does not find.
    """
    spark.createDataFrame([], schema).write.format("delta").mode("ignore").save(folder)


def _set_property(spark: SparkSession, folder: str, name: str, value: str) -> None:
    quoted = folder.replace("`", "``")
    spark.sql(f"ALTER TABLE delta.`{quoted}` SET TBLPROPERTIES ('{name}' = '{value}')")
