"""Write what is no row of a table while the rows are written, so that results are read once.

    results -> rows, in columns  -> the table
            `- late and dead records, counts -> Kafka, or by `Said` to the driver

The writer of a table takes rows and gives nothing back. So what a task says of the others goes to
the driver as the update of an accumulator, which counts once for each partition that is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import DataFrame

from headrace.spark_jobs.write.bundled import Aim, in_bundles
from headrace.spark_jobs.write.task_files import FILED_SCHEMA, Filed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from headrace.spark_jobs.write.task_files import Files

Rows = list[dict[str, Any]]
Said = Accumulator[Rows]
Write = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]
"""Writes the rows of a partition to Kafka, and says what it wrote."""


class Table(Protocol):
    """Makes the rows of a table of results in bundles."""

    @property
    def schema(self) -> StructType:
        """The columns."""

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns as Arrow calls them."""

    @property
    def fields(self) -> pa.StructType:
        """The fields of a row's JSON."""

    def rows_of(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of bundles in columns."""

    def tabled(self, results: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows among results in columns."""


class _Listed(AccumulatorParam[Rows]):
    def zero(self, value: Rows) -> Rows:  # noqa: ARG002 - there is one kind of nothing
        return []

    def addInPlace(self, value1: Rows, value2: Rows) -> Rows:  # noqa: N802 (as Spark calls it)
        value1 += value2
        return value1


def said_in(spark: SparkSession) -> Said:
    """Return what takes the words of all tasks; Spark keeps each for the life of its session."""
    return spark.sparkContext.accumulator([], _Listed())


def taken_from(said: Said) -> Rows:
    """Take out all that tasks have said."""
    found, said.value = said.value, []
    return found


class MadeRows:
    """The rows of a table in a micro-batch, which are made while they are written."""

    def __init__(self, bundles: DataFrame, table: Table, rows_of: Write) -> None:
        """Take the function that makes the rows of a partition of bundles, and reads all of it."""
        self.bundles = bundles
        self.table = table
        self._rows_of = rows_of

    def frame(self) -> DataFrame:
        """Return them as a frame, for Spark's writers."""
        return self.bundles.mapInArrow(self._rows_of, self.table.schema)

    def in_files(self, files: Files) -> list[Filed]:
        """Have tasks write them to files, and return what they say of those."""
        filed = self.bundles.mapInArrow(files.writer_of(self._rows_of), FILED_SCHEMA)
        return [Filed(*row) for row in filed.collect()]


def beside_bundles(aim: Aim, table: Table, write: Write, said: Said) -> Write:
    """Do as `beside` with results in bundles."""
    rows = beside(aim, table, write, said)
    return lambda batches: rows(in_bundles(batches))


def beside(aim: Aim, table: Table, write: Write, said: Said) -> Write:
    """Return the function that yields the rows among results, and writes all others."""

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        others: list[pa.RecordBatch] = []
        for results in batches:
            tabled, other = table.tabled(results), aim.wanted(results)
            if other.num_rows:
                others.append(aim.aimed(other))
            if tabled.num_rows:
                yield tabled
        for one in write(others):
            said.add(one.to_pylist())

    return rows
