"""Write results in the tasks that make them.

    driver  -- words, as a property of Spark's job -->  task
    driver  <-- reports, in an accumulator -----------  task

A function behind the task would take its results in another process, and Java would pass them on.
Spark sends a processor to its workers once, before the first micro-batch, and takes nothing from it
at the end of a partition. So the driver says what a micro-batch alone has by a property, and each
task reports by an accumulator, which counts once for each partition. Spark keeps properties in its
logs: they have no passwords.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pyspark import TaskContext

from headrace.spark_jobs.write.batch import having
from headrace.spark_jobs.write.beside import MadeRows, beside, taken_from
from headrace.spark_jobs.write.task_files import Filed, Files
from headrace.spark_jobs.write.transaction import Batch, writer_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from headrace.spark_jobs.write.beside import Said, Table, Write
    from headrace.spark_jobs.write.bundled import Aim

_PROPERTY = "headrace.write"
Words = Mapping[str, Any]


class Writer(Protocol):
    """Writes the results of a partition."""

    @property
    def fields(self) -> pa.StructType | None:
        """The fields of a row that it takes in the place of JSON; None if it needs the JSON."""

    def write(self, results: Iterable[pa.RecordBatch], words: Words) -> None:
        """Write them by the words of the driver, and report."""


class KafkaWriter(NamedTuple):
    """Writes all results to Kafka."""

    client: Mapping[str, str]
    aim: Aim
    said: Said

    @property
    def fields(self) -> None:
        """Kafka gets JSON."""

    def write(self, results: Iterable[pa.RecordBatch], words: Words) -> None:
        """Write them by the words of the driver, and report."""
        write = writer_of(Batch.of_words(words, self.client))
        for report in write(self.aim.all_aimed(results)):
            self.said.add(report.to_pylist())


class TableWriter(NamedTuple):
    """Writes the rows of a table to a file, and all other results to Kafka."""

    client: Mapping[str, str]
    aim: Aim
    table: Table
    said: Said

    @property
    def fields(self) -> pa.StructType:
        """The fields of a row of the table."""
        return self.table.fields

    def write(self, results: Iterable[pa.RecordBatch], words: Words) -> None:
        """Write them by the words of the driver, and report."""
        write = writer_of(Batch.of_words(words, self.client))
        rows_of = beside(self.aim, self.table, write, self.said)
        files = Files.of_words(words["files"], self.table.arrow_schema)
        for filed in files.writer_of(rows_of)(results):
            self.said.add(filed.to_pylist())


class RowsWhereMade(MadeRows):
    """Rows of a table that are written by the tasks that make them, if they go to files."""

    def __init__(
        self, bundles: DataFrame, table: Table, rows_of: Write, words: Words, said: Said
    ) -> None:
        """Take the words for the tasks, and that to which they report."""
        super().__init__(bundles, table, rows_of)
        self._words = words
        self._said = said

    def in_files(self, files: Files) -> list[Filed]:
        """Have tasks write them to files; what they report of other results stays in `said`."""
        tell(self.bundles, {**self._words, "files": files.words()})
        found = taken_from(self._said)
        self._said.value = [row for row in found if "file" not in row]
        return [Filed(**row) for row in found if "file" in row]


def tell(bundles: DataFrame, words: Words) -> None:
    """Have the tasks that make these bundles write what is in them."""
    with having(bundles.sparkSession, _PROPERTY, json.dumps(words)):
        left = bundles.collect()
    assert not left, "a task that is to write its results keeps none"


def words_here() -> Words | None:
    """Return the driver's words for the task that runs here, None if it has no task or no words."""
    context = TaskContext.get()
    text = None if context is None else context.getLocalProperty(_PROPERTY)
    if text is None:
        return None
    words: dict[str, Any] = json.loads(text)
    return words
