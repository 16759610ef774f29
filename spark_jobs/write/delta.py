"""Write rows to a Delta table, exactly once: the table's log has the last micro-batch.

In mode `append`, rows stand beside each other, each with its micro-batch in the column `batch`. In
mode `upsert`, the last row of a key replaces the earlier ones, and a deleted key has no row. In
mode `scd2`, each version of a key has a row, from when until when; see `scd2.py`. Before the first
row, the table notes the checkpoint that writes to it, as a property.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)
from pyspark.sql.types import StructType

from headrace.spark_jobs.folder import Folder
from headrace.spark_jobs.seams import last_write_of
from headrace.spark_jobs.write.batch import query_id_of
from headrace.spark_jobs.write.claims import (
    APPEND,
    SCD2,
    claims_of,
    is_claimed,
    refuse_missing_columns,
    refuse_other_columns,
)
from headrace.spark_jobs.write.quoted import quoted
from headrace.spark_jobs.write.upsert import REPLACES, last_of_keys
from headrace.spark_jobs.write.versions import merge_versions, versions_of

_PLACES = ("task", "sequence", "batch")
"""Columns that tables of earlier versions lack."""
_WRITE = "spark.databricks.delta.write"
_EVOLVES = "spark.databricks.delta.schema.autoMerge.enabled"
"""The setting by which Delta adds the columns to a table that rows have and it lacks."""


class DeltaSink:
    """Writes the micro-batches of one query to the table in a folder."""

    def __init__(
        self, query: str, folder: str, *, mode: str = APPEND, in_order: bool = False
    ) -> None:
        """Take the folder of a table; the first batch makes the table if it is missing.

        With `in_order`, a later row of a key never holds before an earlier one; see `scd2.py`.
        """
        self._query = query
        self._folder = folder
        self._mode = mode
        self._in_order = in_order
        self._claimed = False

    def write(self, frame: DataFrame, batch_id: int) -> None:
        """Write a micro-batch, unless an earlier attempt did."""
        query_id = query_id_of(frame)
        frame = frame.withColumn("batch", F.lit(batch_id).cast("bigint"))
        if self._mode == SCD2:
            frame = versions_of(frame)
        if not self._claimed:
            self._claim(frame, query_id)
            self._claimed = True
        if self._mode != APPEND:
            with self._noting(frame.sparkSession, query_id, batch_id):
                self._merge(frame, batch_id)
            return
        (
            frame.write.format("delta")
            .mode("append")
            .option("txnAppId", self._writer(query_id))
            .option("txnVersion", batch_id)
            .save(self._folder)
        )

    def _merge(self, frame: DataFrame, batch_id: int) -> None:
        """Put the versions, or the last row of each key; all rows without a key stay."""
        if self._mode == SCD2:
            table = _named(frame.sparkSession, self._folder)
            merge_versions(frame, table, batch_id, in_order=self._in_order)
            return
        (
            DeltaTable.forPath(frame.sparkSession, self._folder)
            .alias("kept")
            .merge(last_of_keys(frame).alias("new"), "kept.key = new.key")
            .whenMatchedDelete(f"new.deleted AND {REPLACES}")
            .whenMatchedUpdateAll(REPLACES)
            .whenNotMatchedInsertAll("NOT new.deleted")
            .execute()
        )

    @contextmanager
    def _noting(self, spark: SparkSession, query_id: str, batch_id: int) -> Iterator[None]:
        """Have a merge note the number of a micro-batch in its commit."""
        noted = {"txnAppId": self._writer(query_id), "txnVersion": str(batch_id)}
        for name, value in noted.items():
            spark.conf.set(f"{_WRITE}.{name}", value)
        try:
            yield
        finally:
            for name in noted:
                spark.conf.unset(f"{_WRITE}.{name}")

    def has_written(self, spark: SparkSession, query_id: str, batch_id: int) -> bool:
        """Return whether the table's log has a micro-batch."""
        if not DeltaTable.isDeltaTable(spark, self._folder):
            return False
        last = last_write_of(spark, self._folder, self._writer(query_id))
        return last is not None and last >= batch_id

    def _writer(self, query_id: str) -> str:
        return f"{self._query}/{query_id}"

    def _claim(self, frame: DataFrame, query_id: str) -> None:
        """Note in the table which checkpoint writes to it; refuse a table of another one."""
        spark = frame.sparkSession
        make_table(spark, self._folder, frame.schema)
        table = DeltaTable.forPath(spark, self._folder)
        properties = table.detail().select("properties").collect()[0]["properties"]
        known = is_claimed(self._folder, properties, self._query, query_id, self._mode)
        there = table.toDF().columns
        self._refuse_columns(spark, [*there, *_PLACES], frame.columns)
        if not known:
            for name, value in claims_of(self._query, query_id, self._mode).items():
                _set_property(spark, self._folder, name, value)
        _add_places(spark, self._folder, frame, there)

    def _refuse_columns(self, spark: SparkSession, there: list[str], rows: list[str]) -> None:
        """Refuse a table whose columns are not those of the rows, where Delta does not add them."""
        if self._mode != SCD2 and str(spark.conf.get(_EVOLVES, "false")).lower() == "true":
            return
        if self._mode == APPEND:
            # Delta leaves the table's other columns null, or computes them.
            refuse_missing_columns(self._folder, there, rows)
        else:
            # A merge would leave out what the table lacks, and say nothing.
            refuse_other_columns(self._folder, there, rows)


def make_table(spark: SparkSession, folder: str, schema: StructType | str) -> None:
    """Make an empty table, if there is none.

    A driver that was killed while it made one leaves a log without a first entry. Delta's own
    `createIfNotExists` takes that for a table, and then does not find it.
    """
    spark.createDataFrame([], schema).write.format("delta").mode("ignore").save(folder)


def _add_places(spark: SparkSession, folder: str, frame: DataFrame, there: list[str]) -> None:
    for field in frame.schema.fields:
        if field.name in _PLACES and field.name not in there:
            added = f"{field.name} {field.dataType.simpleString()}"
            spark.sql(f"ALTER TABLE {_named(spark, folder)} ADD COLUMNS ({added})")


def _named(spark: SparkSession, folder: str) -> str:
    """Return a table's name in SQL, where a path that begins in this process's folder is none."""
    return f"delta.{quoted(Folder(spark, folder).url)}"


def _set_property(spark: SparkSession, folder: str, name: str, value: str) -> None:
    spark.sql(f"ALTER TABLE {_named(spark, folder)} SET TBLPROPERTIES ('{name}' = '{value}')")
