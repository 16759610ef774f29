"""Write what is no row of a table while Spark writes the rows, so that results are read once.

    bundles -> rows, in columns  -> the table, which Spark writes
            `- late and dead records, counts -> Kafka, or by `Said` to the driver

Spark's writer takes rows and gives nothing back. So what a task says of the others goes to the
driver as the update of an accumulator, which counts once for each partition that is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import DataFrame

from headrace.spark_jobs.write.bundled import Aim, in_bundles

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

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


def said_in(frame: DataFrame) -> Said:
    """Return what takes the words of all tasks; Spark keeps each for the life of its session."""
    return frame.sparkSession.sparkContext.accumulator([], _Listed())


def taken_from(said: Said) -> Rows:
    """Take out all that tasks have said."""
    found, said.value = said.value, []
    return found


def beside(aim: Aim, table: Table, write: Write, said: Said) -> Write:
    """Return the function that yields the rows of a partition, and writes all others."""

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        others: list[pa.RecordBatch] = []
        for results in in_bundles(batches):
            tabled, other = table.tabled(results), aim.wanted(results)
            if other.num_rows:
                others.append(aim.aimed(other))
            if tabled.num_rows:
                yield tabled
        for one in write(others):
            said.add(one.to_pylist())

    return rows
