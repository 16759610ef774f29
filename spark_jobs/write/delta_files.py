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
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.types import StructType

from headrace.contracts.errors import WorkerStalled
from headrace.spark_jobs.folder import Folder
from headrace.spark_jobs.seams import DeltaCommit, folder_of_log
from headrace.spark_jobs.write.digest import together
from headrace.spark_jobs.write.task_files import Files, Logged, codec_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

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


class TableFolder(NamedTuple):
    """The folder of a table that takes the files of tasks."""

    path: Path
    codec: str


def folder_for_files(
    spark: SparkSession, place: DeltaPlace, schema: StructType
) -> TableFolder | None:
    """Return the folder in which tasks may write the files of a table, None if they may not.

    The table need not be there yet.
    """
    given = (name for name, _ in spark.sparkContext.getConf().getAll())
    codec = codec_for(spark)
    if codec is None or any(map(is_deltas_alone, given)):
        return None
    folder = place.folder
    if place.exists(spark):
        log = place.log(spark)
        folder = folder_of_log(log) if _fits(DeltaCommit(spark, log), schema) else None
    # Without a table, a catalog decides where it makes one.
    path = None if folder is None else Folder(spark, folder).path_on_disk
    return None if path is None else TableFolder(Path(path), codec)


def is_deltas_alone(setting: str) -> bool:
    """Return whether a setting may change what Delta's writer does, and tasks do not know it."""
    return setting.startswith(_OF_SESSION) and setting not in _KNOWN


@dataclass
class Append:
    """The files of a micro-batch, on their way into a table."""

    spark: SparkSession
    log: Any
    title: str
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
        commit = DeltaCommit(self.spark, self.log)
        if commit.version_before == last:
            commit.depend_on(writer)
        elif commit.last_number_of(writer) >= batch_id:
            return None
        if not _fits(commit, self.schema):
            message = (
                f"{self.title} has got other columns or properties since the job began, and"
                " asks for Delta's own writer now; start the job again, and it will take that"
            )
            raise WorkerStalled(message)
        added = [*self._added()]
        self.may_be_committed = True
        return commit.append(writer, batch_id, added)

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


def files_in(folder: TableFolder, rows: pa.Schema, query_id: str, batch_id: int) -> Files:
    """Return the files in which tasks write the rows of a micro-batch."""
    mark = f"{query_id}-{batch_id}-{secrets.token_hex(4)}"
    return Files(folder.path, rows, folder.codec, Logged(mark, batch_id))


def _fits(commit: DeltaCommit, schema: StructType) -> bool:
    """Return whether a table asks for no more than files of these columns."""
    protocol, metadata = commit.described()
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
