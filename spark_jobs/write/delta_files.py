"""Append files that tasks have written to a Delta table, by a commit of our own.

    <table>/part-<task>-<checkpoint>-<micro-batch>-<attempt>-<number>.parquet
    <table>/_delta_log/<version>.json    names each file with its bounds, has the number of the
                                         micro-batch, and is there whole or not at all

Delta's protocol lets anybody do so who keeps what the table asks of its writers. Delta's own writer
takes each row from Python into Java, writes it field by field, and collects the bounds of columns
by the row. It stays for tables that ask for more than a file of the table's columns: partitions,
constraints, generated columns, other names of columns in files, and whatever is newer.

A file that no commit names is in no table: that of a lost task, or of a driver that died before its
commit. `VACUUM` removes such files.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from headrace.contracts.errors import WorkerStalled
from headrace.spark_jobs.folder import Folder
from headrace.spark_jobs.seams import commit_files, depends_on_writer, described_by
from headrace.spark_jobs.write.digest import together
from headrace.spark_jobs.write.task_files import Files, Logged, codec_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from headrace.spark_jobs.write.beside import MadeRows
    from headrace.spark_jobs.write.delta_place import DeltaPlace
    from headrace.spark_jobs.write.digest import Digest
    from headrace.spark_jobs.write.task_files import Filed

_WRITER_VERSION_MAX = 2
"""The highest version of the protocol whose tables ask for nothing that is not looked for here."""
_DELTA = "delta."
_HARMLESS = {
    f"{_DELTA}{name}"
    for name in (
        "appendOnly",
        "checkpointInterval",
        "deletedFileRetentionDuration",
        "logRetentionDuration",
    )
}
"""The properties of a table that say nothing about the files of an append."""
_OF_SESSION = "spark.databricks.delta."
_KNOWN = {f"{_OF_SESSION}snapshotPartitions"}


def takes_files(spark: SparkSession, place: DeltaPlace, schema: StructType) -> bool:
    """Return whether tasks may write the files of a table, which need not be there yet."""
    given = (name for name, _ in spark.sparkContext.getConf().getAll())
    if any(map(is_deltas_alone, given)) or codec_for(spark) is None:
        return False
    if not place.exists(spark):
        # A catalog decides where it makes a table.
        return place.folder is not None and _path_of(spark, place.folder) is not None
    log = place.log(spark)
    on_disk = _path_of(spark, str(log.dataPath())) is not None
    return on_disk and _fits(log.startTransaction(), schema)


def is_deltas_alone(setting: str) -> bool:
    """Return whether a setting may change what Delta's writer does, and tasks do not know it."""
    return setting.startswith(_OF_SESSION) and setting not in _KNOWN


@dataclass
class Append:
    """The files of a micro-batch, on their way into a table."""

    spark: SparkSession
    place: DeltaPlace
    schema: StructType
    """The columns of the rows."""
    files: Files
    filed: Sequence[Filed]
    may_be_committed: bool = False
    """Whether a commit that names them was begun; it may be there even where it failed."""

    def digest(self) -> Digest:
        """Return the digest of the rows in the files."""
        return together((each.rows, each.total) for each in self.filed)

    def commit(self, writer: str, last: int | None) -> int | None:
        """Append the files, unless the table's log has the micro-batch of this writer.

        Return the version that the table has got. `last` is the one that it got from this writer's
        micro-batch before, if that is known.
        """
        batch_id = self.files.batch_id
        transaction = self.place.log(self.spark).startTransaction()
        if transaction.readVersion() == last:
            # To ask for the writer's number would read all of the table's state.
            depends_on_writer(transaction, writer)
        elif transaction.txnVersion(writer) >= batch_id:
            return None
        if not _fits(transaction, self.schema):
            message = (
                f"{self.place.title} has got other columns or properties since the job began, and"
                " asks for Delta's own writer now; start the job again, and it will take that"
            )
            raise WorkerStalled(message)
        added = [*self._added()]
        self.may_be_committed = True
        return commit_files(self.spark, transaction, writer, batch_id, added)

    def tidy(self) -> None:
        """Remove the files, unless a commit may name them."""
        if not self.may_be_committed:
            self.files.remove([each.file for each in self.filed])

    def _added(self) -> Iterator[dict[str, Any]]:
        found = self.files.found([each.file for each in self.filed])
        for each in self.filed:
            there = found[each.file]
            yield {
                "path": each.file,
                "partitionValues": {},
                "size": there.st_size,
                "modificationTime": there.st_mtime_ns // 1_000_000,
                "dataChange": True,
                "stats": each.stats,
            }


def append_made(
    made: MadeRows, place: DeltaPlace, schema: StructType, query_id: str, batch_id: int
) -> Append:
    """Have tasks write the rows of a micro-batch to files in the folder of a table."""
    spark = made.bundles.sparkSession
    path, codec = _path_of(spark, str(place.log(spark).dataPath())), codec_for(spark)
    assert path is not None, "a table that takes files is on a disk"
    assert codec is not None, "no setting changes while a job runs"
    mark = f"{query_id}-{batch_id}-{secrets.token_hex(4)}"
    files = Files(Path(path), made.table.arrow_schema, codec, Logged(mark, batch_id))
    return Append(spark, place, schema, files, made.in_files(files))


def _path_of(spark: SparkSession, folder: str) -> str | None:
    return Folder(spark, folder).path_on_disk


def _fits(transaction: Any, schema: StructType) -> bool:
    """Return whether a table asks for no more than files of these columns."""
    protocol, metadata = described_by(transaction)
    there = StructType.fromJson(json.loads(metadata["schemaString"]))
    asked = {name for name in metadata["configuration"] if name.startswith(_DELTA)}
    return (
        protocol["minWriterVersion"] <= _WRITER_VERSION_MAX
        and not metadata["partitionColumns"]
        and asked <= _HARMLESS
        and all(field.nullable and {*field.metadata} <= {"comment"} for field in there.fields)
        and _kinds(there) == _kinds(schema)
    )


def _kinds(schema: StructType) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in schema.fields}
