"""Write all that one query writes in a micro-batch, each part exactly once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

from headrace.spark_jobs.shapes import BUNDLE, CORRECTED, FIELDS, ORIGIN
from headrace.spark_jobs.write.aim import ROWS, Targets, aimed, rows_of
from headrace.spark_jobs.write.bundled import Aim, digests
from headrace.spark_jobs.write.digest import together
from headrace.spark_jobs.write.fields import fields_of, has_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from headrace.spark_jobs.write.avro import Encode
    from headrace.spark_jobs.write.beside import MadeRows, Table
    from headrace.spark_jobs.write.digest import Digest
    from headrace.spark_jobs.write.kafka import KafkaSink, Written
    from headrace.spark_jobs.write.where_made import Writer


OWN_COLUMNS = {"timestamp", "deleted", "corrected", "batch", "task", "sequence"}
"""A table's own columns beside the key; no field of a row may have such a name."""


class Sink(Protocol):
    """Takes the rows of a job, micro-batch by micro-batch."""

    def write(self, frame: DataFrame, batch_id: int) -> object:
        """Write a micro-batch, unless an earlier attempt did."""

    def has_written(self, spark: SparkSession, query_id: str, batch_id: int) -> bool:
        """Return whether an earlier attempt at a micro-batch left anything."""


@runtime_checkable
class MakingSink(Sink, Protocol):
    """Has the rows of bundles made where it writes them."""

    def takes_made(self, spark: SparkSession, schema: StructType, /) -> bool:
        """Return whether it does so with rows of these columns."""

    def write_made(self, made: MadeRows, batch_id: int) -> None:
        """Do as `write`."""


@runtime_checkable
class NotingSink(Sink, Protocol):
    """Notes the digest of a micro-batch beside its rows, and so reads a frame more than once."""

    def write_noted(self, frame: DataFrame, batch_id: int, digest: Callable[[], Digest]) -> None:
        """Do as `write`, where the digest of the rows is known without reading the frame."""


class KafkaOutput:
    """Writes all to Kafka: rows, late and dead records, in one transaction a task."""

    def __init__(
        self,
        kafka: KafkaSink,
        targets: Targets,
        note: Callable[[int, Written], None],
        encode: Encode | None = None,
    ) -> None:
        """Set up the output; it calls `note` with the outcome of each micro-batch.

        Rows leave as JSON, or as `encode` encodes their fields.
        """
        self._encode = encode
        self._kafka = kafka
        self._targets = targets
        self._note = note

    def writer_where_made(self, spark: SparkSession, table: Table | None = None) -> Writer:
        """Have results written where they are made; return the writer to have there.

        It writes the rows of a `table` to files.
        """
        return self._kafka.writer_where_made(spark, Aim(self._targets), table)

    def write(self, results: DataFrame, batch_id: int) -> None:
        """Write a micro-batch."""
        if BUNDLE in results.columns:
            written = self._kafka.write_bundles(results, batch_id, Aim(self._targets))
        else:
            rows = aimed(results, self._targets, self._encode)
            written = self._kafka.write(rows, batch_id)
        self._note(batch_id, written)

    def write_beside(
        self, bundles: DataFrame, batch_id: int, table: Table, put: Callable[[MadeRows], object]
    ) -> None:
        """Write all but the rows of a table, which `put` takes."""
        written = self._kafka.write_beside(bundles, batch_id, Aim(self._targets), table, put)
        self._note(batch_id, written)

    def close(self) -> None:
        """Close what stays open between micro-batches."""
        self._kafka.close()

    def wrote_otherwise(
        self, _spark: SparkSession, query_id: str, batch_id: int, options: str
    ) -> bool:
        """Return whether any part of a micro-batch was written with other options than these."""
        return self._kafka.wrote_otherwise(query_id, batch_id, options)


class TableOutput:
    """Writes rows to a table, and late and dead records to Kafka."""

    def __init__(
        self,
        sink: Sink,
        row_schema: StructType,
        asides: KafkaOutput,
        *,
        corrects: bool = False,
        table: Table | None = None,
    ) -> None:
        """Take the schema of a row's JSON as `row_schema`.

        With `corrects`, a column tells which rows correct an earlier one. `table` makes the rows of
        results that come in bundles.
        """
        self._sink = sink
        self._row_schema = row_schema
        self._asides = asides
        self._corrects = corrects
        self._table = table
        self._written_where_made = False

    def writer_where_made(self, spark: SparkSession) -> Writer | None:
        """Do as that of `KafkaOutput`, unless the sink needs to read the rows."""
        table, sink = self._table, self._sink
        if table is None or not isinstance(sink, MakingSink):
            return None
        if not sink.takes_made(spark, table.schema):
            return None
        self._written_where_made = True
        return self._asides.writer_where_made(spark, table)

    def write(self, results: DataFrame, batch_id: int) -> None:
        """Write a micro-batch; its steps run once, whichever sink has it already."""
        if self._table is not None and BUNDLE in results.columns:
            self._write_bundles(results, batch_id, self._table)
            return
        results = kept_of(results, self._row_schema)
        results.persist()
        try:
            # This always reads the whole frame, which commits the state of the steps.
            self._asides.write(results.where(~F.col("verdict").isin(*ROWS)), batch_id)
            rows = columns(rows_of(results), self._row_schema, corrects=self._corrects)
            self._sink.write(rows, batch_id)
        finally:
            results.unpersist()

    def _write_bundles(self, bundles: DataFrame, batch_id: int, table: Table) -> None:
        sink = self._sink
        if isinstance(sink, NotingSink) and not self._written_where_made:
            self._write_kept(bundles, batch_id, table, sink)
            return
        assert isinstance(sink, MakingSink), "only a sink that takes bundles gets any"
        self._asides.write_beside(
            bundles, batch_id, table, lambda made: sink.write_made(made, batch_id)
        )

    def _write_kept(
        self, bundles: DataFrame, batch_id: int, table: Table, sink: NotingSink
    ) -> None:
        """Keep bundles for a sink that reads rows as often as it likes."""
        bundles.persist()
        try:
            # This always reads the whole frame, which commits the state of the steps.
            self._asides.write(bundles, batch_id)
            rows = bundles.mapInArrow(table.rows_of, table.schema)
            sink.write_noted(rows, batch_id, partial(digest_of_bundles, bundles))
        finally:
            bundles.unpersist()

    def write_apart(self, rows: DataFrame, asides: DataFrame, batch_id: int) -> None:
        """Write rows, and from a frame of their own all records beside them."""
        self._asides.write(asides, batch_id)
        self._sink.write(columns(rows, self._row_schema, corrects=self._corrects), batch_id)

    def close(self) -> None:
        """Close what stays open between micro-batches."""
        self._asides.close()

    def wrote_otherwise(
        self, spark: SparkSession, query_id: str, batch_id: int, options: str
    ) -> bool:
        """Return whether any of a micro-batch was written, and not surely with these options."""
        asides = self._asides.wrote_otherwise(spark, query_id, batch_id, options)
        return asides or self._sink.has_written(spark, query_id, batch_id)


def digest_of_bundles(bundles: DataFrame) -> Digest:
    """Return what `digest_of_table` makes of the rows in bundles; this reads the whole frame."""
    return together(bundles.mapInArrow(digests, "rows bigint, total bigint").collect())


def columns(rows: DataFrame, row_schema: StructType, *, corrects: bool = False) -> DataFrame:
    """Return rows with a column for each field of their JSON; they are null for a deleted key.

    All rows of a key that is not hot are of one `task`, and the one with the highest `sequence` is
    the last. `key` is the record's, even if a row has a field of that name.
    """
    corrected = [(F.col("verdict") == CORRECTED).alias("corrected")] if corrects else []
    places = F.col("task"), F.col("sequence")
    own = [F.col("timestamp"), F.col("deleted"), *corrected, *places]
    fields = [F.col("row")[name].alias(name) for name in row_schema.names if name.lower() != "key"]
    deleted = F.col("value").isNull()
    if has_fields(rows, row_schema):
        deleted &= F.col(FIELDS).isNull()
    return (
        rows.withColumn("row", fields_of(rows, row_schema))
        .withColumn("deleted", deleted)
        .withColumn("timestamp", F.timestamp_millis("timestamp_ms"))
        .select(F.col("key").cast("string"), *own, *fields)
    )


def kept_of(results: DataFrame, row_schema: StructType) -> DataFrame:
    """Return the columns that a table and the records beside it need: all of them are kept."""
    value, fields = F.col("value"), []
    if has_fields(results, row_schema):
        # A row whose fields are there needs no JSON.
        value, fields = F.when(F.col(FIELDS).isNull(), value), [FIELDS]
    headers = F.when(~F.col("verdict").isin(*ROWS), F.col("headers"))
    given = ("verdict", "reason", "task", "sequence", *ORIGIN, "timestamp_ms", "key")
    columns = [value.alias("value"), headers.alias("headers")]
    return results.select(*given, *columns, "number", "added", *fields)
