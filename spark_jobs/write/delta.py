"""Write rows to a Delta table, exactly once: the table's log has the last micro-batch.

A micro-batch that is computed again is compared with the one that is there; see `delta_marker.py`.

In mode `append`, rows stand beside each other, each with its micro-batch in the column `batch`. In
mode `upsert`, the last row of a key replaces the earlier ones, and a deleted key has no row. In
mode `scd2`, each version of a key has a row, from when until when; see `scd2.py`. Before the first
row, the table notes the checkpoint that writes to it, as a property.

Tasks write the files of an append where the table takes such files; see `delta_files.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)
from pyspark.sql.types import LongType, StructField, StructType

from headrace.spark_jobs.seams import last_write_of
from headrace.spark_jobs.write.attempts import attempted
from headrace.spark_jobs.write.batch import query_id_of
from headrace.spark_jobs.write.catalogs import set_properties
from headrace.spark_jobs.write.claims import (
    APPEND,
    SCD2,
    claims_of,
    is_claimed,
    refuse_missing_columns,
    refuse_other_columns,
)
from headrace.spark_jobs.write.column_types import Writer
from headrace.spark_jobs.write.delta_files import Append, TableFolder, files_in, folder_for_files
from headrace.spark_jobs.write.delta_marker import marker_of_batch, marker_text
from headrace.spark_jobs.write.delta_place import DeltaPlace
from headrace.spark_jobs.write.digest import Digest, digest_of_table
from headrace.spark_jobs.write.snapshots import TableMarker, is_written
from headrace.spark_jobs.write.upsert import merge_lasts
from headrace.spark_jobs.write.versions import merge_versions, versions_of

if TYPE_CHECKING:
    from headrace.spark_jobs.write.beside import MadeRows

_PLACES = ("task", "sequence", "batch")
"""Columns that tables of earlier versions lack."""
_WRITE = "spark.databricks.delta.write"
_SAYS = "spark.databricks.delta.commitInfo.userMetadata"
"""The setting whose text each commit has."""
_EVOLVES = "spark.databricks.delta.schema.autoMerge.enabled"
"""The setting by which Delta adds the columns to a table that rows have and it lacks."""


class DeltaSink:
    """Writes the micro-batches of one query to a table."""

    def __init__(
        self,
        query: str,
        place: DeltaPlace,
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
        self._folder: TableFolder | None = None
        """The folder for the files of tasks, if they write any."""
        self._version: int | None = None
        """The version that the table has got from the last micro-batch, if tasks wrote that."""

    def write(self, frame: DataFrame, batch_id: int) -> None:
        """Write a micro-batch, unless an earlier attempt did."""
        self.write_noted(frame, batch_id, partial(digest_of_table, frame))

    def write_noted(self, frame: DataFrame, batch_id: int, digest: Callable[[], Digest]) -> None:
        """Do as `write`, where the digest of the rows is known without reading the frame."""
        spark = frame.sparkSession
        marker = self._marker(query_id_of(frame), batch_id, digest)
        frame = frame.withColumn("batch", F.lit(batch_id).cast("bigint"))
        if self._mode == SCD2:
            frame = versions_of(frame)
        self._put(spark, frame.schema, marker, lambda: self._write(frame, marker))

    def takes_made(self, spark: SparkSession, schema: StructType, /) -> bool:
        """Return whether tasks may write rows of these columns."""
        if self._mode == APPEND:
            self._folder = folder_for_files(spark, self._place, _numbered(schema))
        return self._folder is not None

    def write_made(self, made: MadeRows, batch_id: int) -> None:
        """Have tasks write the rows of a micro-batch to files, and append those."""
        spark, query_id = made.bundles.sparkSession, query_id_of(made.bundles)
        schema = _numbered(made.table.schema)
        assert self._folder is not None, "a sink that takes rows that are made has a folder"
        if not self._claimed:
            # A table is made in a folder without files.
            self._place.make(spark, schema)
        files = files_in(self._folder, made.table.arrow_schema, query_id, batch_id)
        filed, log = made.in_files(files), self._place.log(spark)
        append = Append(spark, log, self._place.title, schema, files, filed)
        marker = self._marker(query_id, batch_id, append.digest)
        noted = self._noted(spark, marker)

        def put() -> None:
            last, self._version = self._version, None
            with _setting(spark, noted):
                self._version = append.commit(self._writer(query_id), last)

        try:
            self._put(spark, schema, marker, put)
        finally:
            append.tidy()

    def _marker(self, query_id: str, batch_id: int, digest: Callable[[], Digest]) -> TableMarker:
        marker = TableMarker(query_id, batch_id)
        if not self._repeats:
            return marker
        found = digest()
        return marker._replace(rows=found.rows, keys=found.keys)

    def _put(
        self, spark: SparkSession, schema: StructType, marker: TableMarker, put: Callable[[], None]
    ) -> None:
        """Put a micro-batch into the table, unless an earlier attempt did."""

        def write() -> None:
            is_there = False
            if not self._claimed:
                self._claim(spark, schema, marker.query_id)
                is_there = self._has(spark, marker)
            # If another commit comes between, the table may have other columns.
            self._claimed = False
            if not is_there:
                put()
            self._claimed = True

        attempted(self._query, self._place.title, marker.batch, write)

    def _write(self, frame: DataFrame, marker: TableMarker) -> None:
        """Append or merge rows, unless the table's log has the number of the micro-batch."""
        spark, batch_id = frame.sparkSession, marker.batch
        table = self._place.name_in(spark)
        number = {"txnAppId": self._writer(marker.query_id), "txnVersion": str(batch_id)}
        noted = {f"{_WRITE}.{name}": value for name, value in number.items()}
        with _setting(spark, {**noted, **self._noted(spark, marker)}):
            if self._mode == APPEND:
                frame.writeTo(table).options(**number).append()
            elif self._mode == SCD2:
                merge_versions(frame, table, batch_id, in_order=self._in_order)
            else:
                merge_lasts(frame, table, of_one_task=self._of_one_task)

    def _noted(self, spark: SparkSession, marker: TableMarker) -> dict[str, str]:
        """Return the setting by which a commit has a marker."""
        return {_SAYS: marker_text(spark.conf.get(_SAYS, None) or "", self._query, marker)}

    def has_written(self, spark: SparkSession, query_id: str, batch_id: int) -> bool:
        """Return whether the table's log has a micro-batch."""
        if not self._place.exists(spark):
            return False
        last = self._last_write(spark, query_id)
        return last is not None and last >= batch_id

    def _has(self, spark: SparkSession, wanted: TableMarker) -> bool:
        """Return whether the table has this micro-batch; refuse a table that has it otherwise."""
        last = self._last_write(spark, wanted.query_id)
        if last is None:
            return False
        found = TableMarker(wanted.query_id, last)
        if last == wanted.batch:
            found = marker_of_batch(self._place.read(spark), self._query, *found[:2])
        return is_written(self._query, self._place.title, found, wanted)

    def _last_write(self, spark: SparkSession, query_id: str) -> int | None:
        """Return the last micro-batch of a checkpoint in the table's log, None without any."""
        return last_write_of(self._place.log(spark), self._writer(query_id))

    def _writer(self, query_id: str) -> str:
        return f"{self._query}/{query_id}"

    def _claim(self, spark: SparkSession, schema: StructType, query_id: str) -> None:
        """Note in the table which checkpoint writes to it; refuse a table of another one."""
        place = self._place
        place.make(spark, schema)
        table = place.read(spark)
        properties = table.detail().select("properties").collect()[0]["properties"]
        known = is_claimed(place.title, properties, self._query, query_id, self._mode)
        kept = table.toDF()
        there = kept.columns
        self._refuse_columns(spark, [*there, *_PLACES], schema.names)
        appends, evolves = self._mode == APPEND, self._evolves(spark)
        writer = Writer(widens=not appends, fills=appends or evolves, adds=evolves)
        writer.refuse_other_types(place.title, kept.schema, schema)
        if not known:
            claims = claims_of(self._query, query_id, self._mode)
            set_properties(spark, place.name_in(spark), claims)
        _add_places(spark, schema, place.name_in(spark), there)

    def _evolves(self, spark: SparkSession) -> bool:
        """Return whether Delta adds what the rows have and the table lacks."""
        return self._mode != SCD2 and str(spark.conf.get(_EVOLVES, "false")).lower() == "true"

    def _refuse_columns(self, spark: SparkSession, there: list[str], rows: list[str]) -> None:
        """Refuse a table whose columns are not those of the rows, where Delta does not add them."""
        if self._evolves(spark):
            return
        if self._mode == APPEND:
            # Delta leaves the table's other columns null, or computes them.
            refuse_missing_columns(self._place.title, there, rows)
        else:
            # A merge would leave out what the table lacks, and say nothing.
            refuse_other_columns(self._place.title, there, rows)


@contextmanager
def _setting(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    """Have a session for a while with other settings, such as what a commit notes."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def _add_places(spark: SparkSession, schema: StructType, table: str, there: list[str]) -> None:
    known = {name.lower() for name in there}
    for field in schema.fields:
        if field.name in _PLACES and field.name not in known:
            added = f"{field.name} {field.dataType.simpleString()}"
            spark.sql(f"ALTER TABLE {table} ADD COLUMNS ({added})")


def _numbered(rows: StructType) -> StructType:
    """Return the columns of rows with the number of their micro-batch."""
    return StructType([*rows.fields, StructField("batch", LongType())])
