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
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.version import __version__ as spark_version

from headrace.contracts.errors import StateUnavailable
from headrace.spark_jobs.write.gathered import joined

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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
    whole = files.gathered(made.in_files(files))
    with _asked(checkpoint):
        if place.exists():
            shutil.rmtree(place)
        whole.rename(place)
        for folder in (checkpoint, checkpoint.parent):
            _sync(folder)
        shutil.rmtree(unfinished)


class Files(NamedTuple):
    """The files of a micro-batch, one for each task that has rows."""

    folder: Path
    schema: pa.Schema
    codec: str

    def words(self) -> dict[str, str]:
        """Return what tasks that know the columns need to know of these files."""
        return {"folder": str(self.folder), "codec": self.codec}

    def writer_of(self, rows_of: Write) -> Write:
        """Return the function that writes the rows of a partition, and yields its file's name."""

        def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            context = TaskContext.get()
            assert context is not None
            # A task that is run again has another number.
            name = f"part-{context.partitionId():05d}-{context.taskAttemptId()}.parquet"
            rows = (pa.Table.from_batches([batch]) for batch in rows_of(batches))
            groups = joined(rows, _ROW_GROUP_BYTES)
            first = next(groups, None)
            if first is not None:
                self.write(name, chain([first], groups))
                yield pa.RecordBatch.from_pydict({"file": [name]})

        return write

    def gathered(self, names: Sequence[str]) -> Path:
        """Move files into a folder that has no others, and return it."""
        whole = self.folder / "whole"
        with _asked(self.folder):
            whole.mkdir()
            for name in names:
                try:
                    (self.folder / name).rename(whole / name)
                except FileNotFoundError as error:
                    message = (
                        f"a task has written {self.folder / name}, and the driver does not find it;"
                        " give the job a folder that all machines share"
                    )
                    raise StateUnavailable(message) from error
        if not names:
            # Readers find the columns before there are rows.
            empty = self._replace(folder=whole)
            empty.write(f"part-{0:05d}.parquet", [self.schema.empty_table()])
        with _asked(self.folder):
            _sync(whole)
        return whole

    def write(self, name: str, groups: Iterable[pa.Table]) -> None:
        """Write a file of rows in groups."""
        with _file_at(self.folder / name) as out:
            with _asked(self.folder):
                writer = pq.ParquetWriter(
                    out,
                    self.schema,
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
