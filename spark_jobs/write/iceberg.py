"""Write rows to an Iceberg table, exactly once: its snapshots have the last micro-batch.

The columns, and the modes `append`, `upsert` and `scd2`, are those of a Delta table.

Iceberg does not compare the marker of a commit with those that are there. So this sink looks for
its last one before it writes; see `snapshots.py`. If snapshots were expired in which it could have
been, the rows themselves tell, by their column `batch`. A micro-batch without rows leaves nothing.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

from headrace.contracts.errors import SinkOfAnotherQuery
from headrace.spark_jobs.write.attempts import attempted
from headrace.spark_jobs.write.batch import query_id_of
from headrace.spark_jobs.write.claims import (
    APPEND,
    SCD2,
    UPSERT,
    claims_of,
    is_claimed,
    property_of,
    refuse_other_columns,
)
from headrace.spark_jobs.write.column_types import Writer
from headrace.spark_jobs.write.commit import committed_with
from headrace.spark_jobs.write.digest import digest_of_table
from headrace.spark_jobs.write.iceberg_place import IcebergPlace
from headrace.spark_jobs.write.snapshots import TableMarker, is_written, past_of
from headrace.spark_jobs.write.upsert import merge_lasts
from headrace.spark_jobs.write.versions import merge_versions, versions_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from headrace.spark_jobs.write.digest import Digest


class IcebergSink:
    """Writes the micro-batches of one query to a table."""

    def __init__(
        self,
        query: str,
        place: IcebergPlace,
        *,
        mode: str = APPEND,
        in_order: bool = False,
        of_one_task: bool = False,
        repeats: bool = True,
    ) -> None:
        """Take the place of a table; the first batch makes the table if it is missing.

        With `in_order`, a later row of a key never holds before an earlier one; see `scd2.py`. With
        `of_one_task`, all rows of a key are of one task; see `upsert.py`. With `repeats`, a
        micro-batch that is computed again surely has the same rows.
        """
        self._query = query
        self._place = place
        self._mode = mode
        self._in_order = in_order
        self._of_one_task = of_one_task
        self._repeats = repeats
        self._claimed = False

    def write(self, frame: DataFrame, batch_id: int) -> None:
        """Write a micro-batch, unless an earlier attempt did."""
        self.write_noted(frame, batch_id, partial(digest_of_table, frame))

    def write_noted(self, frame: DataFrame, batch_id: int, digest: Callable[[], Digest]) -> None:
        """Do as `write`, where the digest of the rows is known without reading the frame."""
        spark, query_id = frame.sparkSession, query_id_of(frame)
        found = digest()
        frame = frame.withColumn("batch", F.lit(batch_id).cast("bigint"))
        if self._mode == SCD2:
            frame = versions_of(frame)
        if not self._claimed:
            self._claim(frame, query_id)
            self._claimed = True
        marker = TableMarker(query_id, batch_id)
        if self._repeats:
            marker = marker._replace(rows=found.rows, keys=found.keys)
        table = self._place.name_in(spark)

        def commit() -> None:
            if self._mode == UPSERT:
                merge_lasts(frame, table, of_one_task=self._of_one_task)
            elif self._mode == SCD2:
                merge_versions(frame, table, batch_id, in_order=self._in_order)
            else:
                frame.writeTo(table).append()

        def write() -> None:
            if not self._has(spark, marker) and found.rows:
                committed_with(spark, {property_of(self._query): marker.text}, commit)

        attempted(self._query, self._place.title, batch_id, write)

    def has_written(self, spark: SparkSession, query_id: str, batch_id: int) -> bool:
        """Return whether the table has a micro-batch."""
        if not self._place.exists(spark):
            return False
        found = past_of(self._place.read(spark), self._query, query_id)
        if not found.is_whole:
            return self._has_rows_since(spark, batch_id)
        return found.marker is not None and found.marker.batch >= batch_id

    def _has(self, spark: SparkSession, wanted: TableMarker) -> bool:
        """Return whether the table has this micro-batch; refuse a table that cannot tell."""
        found = past_of(self._place.read(spark), self._query, wanted.query_id)
        if not found.is_whole and self._has_rows_since(spark, wanted.batch):
            message = (
                f"{self._place.title} has lost the snapshots that say whether micro-batch"
                f" {wanted.batch} of `{self._query}` is in it, and has rows of that number or a"
                " higher one; if no other job writes there, delete the rows with `batch >="
                f" {wanted.batch}` and start it again, else give it another name, checkpoint and"
                " table"
            )
            raise SinkOfAnotherQuery(message)
        return is_written(self._query, self._place.title, found.marker, wanted)

    def _has_rows_since(self, spark: SparkSession, batch_id: int) -> bool:
        """Return whether any row has this micro-batch's number or a higher one."""
        rows = spark.table(self._place.name_in(spark))
        return not rows.where(F.col("batch") >= batch_id).isEmpty()

    def _claim(self, frame: DataFrame, query_id: str) -> None:
        """Note in the table which checkpoint writes to it; refuse a table of another one."""
        spark, place = frame.sparkSession, self._place
        claims = claims_of(self._query, query_id, self._mode)
        place.make(spark, frame.schema, claims)
        properties = dict(place.read(spark).properties())
        if not is_claimed(place.title, properties, self._query, query_id, self._mode):
            place.set(spark, claims)
        there = spark.table(place.name_in(spark)).schema
        refuse_other_columns(place.title, there.names, frame.columns)
        Writer().refuse_other_types(place.title, there, frame.schema)
