"""Write rows to Parquet: a folder for each micro-batch, which a second attempt writes anew.

So every reader sees the same rows, and the checkpoint and micro-batch of each in the columns
`checkpoint` and `batch`. Where tasks write the files, the folder of a micro-batch appears whole.
Spark's own writer moves one file after the other into it, and a reader may see a part.

The sink does not fence a driver that still writes: where Spark's writer writes, two at a time may
both leave files in a folder.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from headrace.contracts.errors import JobInvalid, SinkOfAnotherQuery
from headrace.spark_jobs.folder import Folder, literal
from headrace.spark_jobs.write.batch import query_id_of
from headrace.spark_jobs.write.catalogs import REFUSALS, first_line
from headrace.spark_jobs.write.claims import refuse_older_copy
from headrace.spark_jobs.write.column_types import refuse_untyped
from headrace.spark_jobs.write.task_files import codec_for, write_by_tasks

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from headrace.spark_jobs.write.beside import MadeRows

_PLACES = "checkpoint STRING, batch BIGINT"
_BATCH, _CHECKPOINT = "batch=", "checkpoint="
_LOG_OF_DELTA = "_delta_log"
_OTHER_FILE = re.compile(r"Exception: (.+?) is not a Parquet file")
OF_FOLDERS = {"checkpoint", "batch"}
"""Columns that readers take from the names of folders, whatever the files have there."""


class ParquetSink:
    """Writes the micro-batches of one query to folders in a folder."""

    def __init__(self, query: str, folder: str) -> None:
        """Take the folder; the first batch makes it if it is missing."""
        self._query = query
        self._folder = folder
        self._checked = False
        self._path: str | None = None
        self._codec: str | None = None

    def write(self, frame: DataFrame, batch_id: int) -> None:
        """Write a micro-batch; it replaces the files of an earlier attempt."""
        query_id = query_id_of(frame)
        self._check(frame.sparkSession, query_id, batch_id)
        refuse_untyped(frame.schema)
        try:
            frame.write.mode("overwrite").parquet(f"{self._folder}/{_place(query_id, batch_id)}")
        except AnalysisException as error:
            message = f"{self._folder} cannot be written to: {first_line(error)}"
            raise JobInvalid(message) from error

    def takes_made(self, _spark: SparkSession, _schema: StructType, /) -> bool:
        """Return that it has rows made where it writes them, whatever their columns."""
        return True

    def write_made(self, made: MadeRows, batch_id: int) -> None:
        """Write a micro-batch while its rows are made: by its tasks, where they can."""
        query_id = query_id_of(made.bundles)
        self._check(made.bundles.sparkSession, query_id, batch_id)
        if self._path is None or self._codec is None:
            self.write(made.frame(), batch_id)
        else:
            place = Path(self._path, _place(query_id, batch_id))
            write_by_tasks(made, place, self._codec)

    def has_written(self, spark: SparkSession, query_id: str, batch_id: int) -> bool:
        """Return whether a micro-batch has its folder."""
        return bool(Folder(spark, self._folder).names(_place(query_id, batch_id)))

    def _check(self, spark: SparkSession, query_id: str, batch_id: int) -> None:
        """Look at the folder once, before anything is written there."""
        if not self._checked:
            self._refuse_others(spark, query_id)
            self._refuse_later(spark, query_id, batch_id)
            self._path = Folder(spark, self._folder).path_on_disk
            self._codec = codec_for(spark)
            self._checked = True

    def _refuse_others(self, spark: SparkSession, query_id: str) -> None:
        """Refuse a folder with rows of another checkpoint, since all would be there twice.

        Refuse a table of Delta, too: a `VACUUM` would remove the rows, which its log does not have.
        """
        if _LOG_OF_DELTA in Folder(spark, self._folder).names(""):
            message = (
                f"{self._folder} is a table of Delta; give `{self._query}` a folder of its own"
            )
            raise JobInvalid(message)
        try:
            rows = spark.read.schema(_PLACES).parquet(literal(self._folder))
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            return
        others = rows.where(rows["checkpoint"] != query_id).select("checkpoint").limit(1)
        try:
            found = others.collect()
        except REFUSALS as error:
            other = _OTHER_FILE.search(str(error))
            if other is None:
                raise
            message = (
                f"{self._folder} has a file that is not Parquet, {other[1]}, and readers of the"
                f" folder end there; give `{self._query}` a folder of its own"
            )
            raise JobInvalid(message) from error
        if found:
            message = (
                f"{self._folder} has rows that were written with another checkpoint; give"
                f" `{self._query}` another folder, or delete this one"
            )
            raise SinkOfAnotherQuery(message)

    def _refuse_later(self, spark: SparkSession, query_id: str, batch_id: int) -> None:
        """Refuse a folder with later micro-batches, whose rows may be in this one as well."""
        names = Folder(spark, self._folder).names(_of_checkpoint(query_id))
        batches = (name.removeprefix(_BATCH) for name in names if name.startswith(_BATCH))
        last = max(map(int, batches), default=batch_id)
        if last > batch_id:
            refuse_older_copy(self._query, last, batch_id)


def has_rows_of_parquet(folder: Folder) -> bool:
    """Return whether a job has written rows to Parquet in a folder."""
    return any(name.startswith(_CHECKPOINT) for name in folder.names(""))


def _of_checkpoint(query_id: str) -> str:
    return f"{_CHECKPOINT}{query_id}"


def _place(query_id: str, batch_id: int) -> str:
    return f"{_of_checkpoint(query_id)}/{_BATCH}{batch_id}"
