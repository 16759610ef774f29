"""Parquet files that tasks write themselves, in a folder that readers see whole or not at all.

    checkpoint=<id>/.batch=<n>.<attempt>/part-<task>-<number>.parquet    until all tasks have ended
    checkpoint=<id>/batch=<n>/part-<task>-<number>.parquet               afterwards

The driver moves the files that its tasks name. A task that was given up may still write; its file
stays behind in the folder of its attempt.

Spark's own writer would take each row from Python into Java, and write it field by field. Tasks
find the folder by its path on a disk, as that writer does. Everything is on the disk before the
checkpoint counts the micro-batch as done.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.version import __version__ as spark_version

from headrace.contracts.errors import StateUnavailable
from headrace.spark_jobs.write.bundled import digest_of_rows
from headrace.spark_jobs.write.digest import Digest
from headrace.spark_jobs.write.file_stats import stats_of
from headrace.spark_jobs.write.gathered import joined

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from headrace.spark_jobs.write.beside import MadeRows, Write

_ROW_GROUP_BYTES = 64 << 20
"""About so many bytes of rows, in memory, make a group of a file."""
_TIMES, _CODEC = (
    f"spark.sql.parquet.{name}" for name in ("outputTimestampType", "compression.codec")
)
_CODECS = {"snappy", "gzip", "zstd", "none"}
"""The names of codecs that Arrow and Spark share."""
_SPARKS_ALONE = (
    "spark.hadoop.parquet.",
    "spark.sql.files.",
    "spark.sql.parquet.",
    "spark.sql.sources.",
)
"""How the names of settings begin that may change what Spark's writer does."""
_VERSION = "org.apache.spark.version"
"""By this name in a file, Spark takes times before 1900 as they are."""


def codec_for(spark: SparkSession) -> str | None:
    """Return how tasks compress files, None if a setting asks for what only Spark's writer does."""
    codec = (spark.conf.get(_CODEC) or "").lower()
    fits = codec in _CODECS and spark.conf.get(_TIMES) == "TIMESTAMP_MICROS"
    given = (name for name, _ in spark.sparkContext.getConf().getAll())
    return codec if fits and not any(map(is_sparks_alone, given)) else None


def is_sparks_alone(setting: str) -> bool:
    """Return whether a setting may change what Spark's writer does, and tasks do not know it."""
    return setting.startswith(_SPARKS_ALONE) and setting not in {_TIMES, _CODEC}


def write_by_tasks(made: MadeRows, place: Path, codec: str) -> None:
    """Have tasks write the rows of a micro-batch; they replace those of an earlier attempt."""
    checkpoint = place.parent
    with _asked(checkpoint):
        for earlier in checkpoint.glob(f".{place.name}.*"):
            shutil.rmtree(earlier)
        checkpoint.mkdir(parents=True, exist_ok=True)
        unfinished = Path(mkdtemp(prefix=f".{place.name}.", dir=checkpoint))
    files = Files(unfinished, made.table.arrow_schema, codec)
    whole = files.gathered([filed.file for filed in made.in_files(files)])
    with _asked(checkpoint):
        if place.exists():
            shutil.rmtree(place)
        whole.rename(place)
        for folder in (checkpoint, checkpoint.parent):
            _sync(folder)
        shutil.rmtree(unfinished)


class Filed(NamedTuple):
    """A file as the task that wrote it reports it."""

    file: str
    rows: int | None = None
    total: str | None = None
    """The digest of the rows, as `Digest` has them."""
    stats: str | None = None


_FILED = pa.schema(
    [("file", pa.string()), ("rows", pa.int64()), ("total", pa.string()), ("stats", pa.string())]
)
_BATCH = pa.field("batch", pa.int64())
FILED_SCHEMA = "file STRING, rows BIGINT, total STRING, stats STRING"


class Logged(NamedTuple):
    """Files that stand in the folder of a table, whose log names them once all are there."""

    mark: str
    """Sets their names apart from those of all other attempts."""
    batch: int
    """The number of the micro-batch, which each row has in the column `batch`."""


class Files(NamedTuple):
    """The files of a micro-batch, one for each task that has rows."""

    folder: Path
    schema: pa.Schema
    codec: str
    logged: Logged | None = None

    @property
    def batch_id(self) -> int:
        """The micro-batch of files that stand in the folder of a table."""
        assert self.logged is not None
        return self.logged.batch

    @property
    def _columns(self) -> pa.Schema:
        """The columns of a file."""
        return self.schema if self.logged is None else self.schema.append(_BATCH)

    def words(self) -> dict[str, Any]:
        """Return what tasks that know the columns need to know of these files, for `of_words`."""
        return {"folder": str(self.folder), "codec": self.codec, "logged": self.logged}

    @classmethod
    def of_words(cls, words: Mapping[str, Any], schema: pa.Schema) -> Files:
        """Return the files of which these are the words."""
        logged = None if words["logged"] is None else Logged(*words["logged"])
        return cls(Path(words["folder"]), schema, words["codec"], logged)

    def writer_of(self, rows_of: Write) -> Write:
        """Return the function that writes the rows of a partition, and tells of its file."""

        def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            context = TaskContext.get()
            assert context is not None
            mark = "" if self.logged is None else f"{self.logged.mark}-"
            # A task that is run again has another number.
            name = f"part-{context.partitionId():05d}-{mark}{context.taskAttemptId()}.parquet"
            digest = Digest()
            rows = (self._table_of(batch, digest) for batch in rows_of(batches))
            groups = joined(rows, _ROW_GROUP_BYTES)
            first = next(groups, None)
            if first is not None:
                self.write(name, chain([first], groups))
                filed = Filed(name)
                if self.logged is not None:
                    with _asked(self.folder):
                        stats = stats_of(pq.read_metadata(self.folder / name))
                    filed = Filed(name, digest.rows, str(digest.total), stats)
                yield pa.RecordBatch.from_pylist([filed._asdict()], _FILED)

        return write

    def _table_of(self, rows: pa.RecordBatch, digest: Digest) -> pa.Table:
        """Return rows as they stand in a file; add those of a table with a log to the digest."""
        if self.logged is not None:
            digest.add(digest_of_rows(rows))
            numbers = pa.repeat(pa.scalar(self.logged.batch, _BATCH.type), rows.num_rows)
            rows = rows.append_column(_BATCH, numbers)
        return pa.Table.from_batches([rows])

    def gathered(self, names: Sequence[str]) -> Path:
        """Move files into a folder that has no others, and return it."""
        whole = self.folder / "whole"
        with _asked(self.folder):
            whole.mkdir()
            for name in names:
                with _there(self.folder / name):
                    (self.folder / name).rename(whole / name)
        if not names:
            # Readers find the columns before there are rows.
            empty = self._replace(folder=whole)
            empty.write(f"part-{0:05d}.parquet", [self.schema.empty_table()])
        with _asked(self.folder):
            _sync(whole)
        return whole

    def found(self, names: Sequence[str]) -> dict[str, os.stat_result]:
        """Find files where they were written; they stay there, and their names are on the disk."""
        found = {}
        with _asked(self.folder):
            for name in names:
                with _there(self.folder / name):
                    found[name] = (self.folder / name).stat()
            _sync(self.folder)
        return found

    def remove(self, names: Sequence[str]) -> None:
        """Remove files that no log names."""
        with _asked(self.folder):
            for name in names:
                (self.folder / name).unlink(missing_ok=True)

    def write(self, name: str, groups: Iterable[pa.Table]) -> None:
        """Write a file of rows in groups."""
        with _file_at(self.folder / name) as out:
            with _asked(self.folder):
                writer = pq.ParquetWriter(
                    out,
                    self._columns,
                    compression=self.codec,
                    store_schema=False,
                    write_page_checksum=True,
                )
                writer.add_key_value_metadata({_VERSION: spark_version})
            # Making rows may fail as well, and that is not the folder's fault.
            for group in groups:
                with _asked(self.folder):
                    writer.write_table(group)
            with _asked(self.folder):
                writer.close()
                out.flush()
                os.fsync(out.fileno())


@contextmanager
def _there(path: Path) -> Iterator[None]:
    """Raise one sentence if the driver does not find what a task has written."""
    try:
        yield
    except FileNotFoundError as error:
        message = (
            f"a task has written {path}, and the driver does not find it; give the job a folder"
            " that all machines share"
        )
        raise StateUnavailable(message) from error


@contextmanager
def _file_at(path: Path) -> Iterator[BinaryIO]:
    with _asked(path.parent):
        file = path.open("wb")
    try:
        yield file
    finally:
        # Its buffer may find no room either.
        with _asked(path.parent):
            file.close()


@contextmanager
def _asked(folder: Path) -> Iterator[None]:
    """Raise one sentence if the disk refuses what it is asked."""
    try:
        yield
    except OSError as error:
        message = (
            f"{folder} cannot be written to: {error.strerror or error}; see that its disk"
            " has room, and that this user may write there on each machine"
        )
        raise StateUnavailable(message) from error


def _sync(folder: Path) -> None:
    """Have the names in a folder on the disk."""
    names = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(names)
    finally:
        os.close(names)
