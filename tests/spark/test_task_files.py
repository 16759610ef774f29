"""Tasks write rows to Parquet themselves: what Spark would write, whole or not at all."""

from __future__ import annotations

import resource
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BooleanType, LongType, StringType, StructType

from headrace.contracts.errors import StateUnavailable
from headrace.spark_jobs.operators.tabled import Tabled
from headrace.spark_jobs.write.batch import as_query
from headrace.spark_jobs.write.beside import MadeRows, Write
from headrace.spark_jobs.write.gathered import joined
from headrace.spark_jobs.write.parquet import ParquetSink
from headrace.spark_jobs.write.task_files import (
    Files,
    codec_for,
    is_sparks_alone,
    write_by_tasks,
)
from tests.spark.batches import bundles_of, sorted_rows

ROW = StructType().add("text", StringType()).add("n", LongType()).add("yes", BooleanType())
TABLE = Tabled(ROW, corrects=True)
TIMES_MS = (0, -1, -2_208_988_800_001, -62_135_596_800_000, 1_700_000_000_123, 253_402_300_799_999)
KEYS = (b"k", None, b"\xff\xfe", "schlüssel".encode())
PLACE = "checkpoint=one/batch=0"


def _bundles(spark: SparkSession, count: int) -> DataFrame:
    """Rows in bundles of two, each in a partition of its own."""
    return bundles_of(spark, range(count), KEYS, TIMES_MS, 4)


def _write(
    bundles: DataFrame, folder: Path, rows_of: Write = TABLE.rows_of, batch: int = 0
) -> None:
    with as_query(bundles.sparkSession, "one"):
        ParquetSink("query", str(folder)).write_made(MadeRows(bundles, TABLE, rows_of), batch)


def _rows(spark: SparkSession, folder: Path) -> list[tuple[object, ...]]:
    return sorted_rows(spark.read.parquet(str(folder)))


def test_spark_reads_what_it_would_have_written(spark: SparkSession, tmp_path: Path) -> None:
    bundles = _bundles(spark, 40)
    _write(bundles, tmp_path / "ours")
    frame = bundles.mapInArrow(TABLE.rows_of, TABLE.schema)
    with as_query(spark, "one"):
        ParquetSink("query", str(tmp_path / "sparks")).write(frame, 0)
    assert len(_rows(spark, tmp_path / "ours")) == 40
    assert _rows(spark, tmp_path / "ours") == _rows(spark, tmp_path / "sparks")
    ours, sparks = (spark.read.parquet(str(tmp_path / who)).schema for who in ("ours", "sparks"))
    assert ours == sparks
    names = {path.name for path in (tmp_path / "ours" / PLACE).iterdir()}
    assert not any(name.startswith(("_", ".")) for name in names), "Spark writes such files"


def test_files_of_both_writers_have_the_same_columns(spark: SparkSession, tmp_path: Path) -> None:
    bundles = _bundles(spark, 40)
    _write(bundles, tmp_path / "rows")
    with as_query(spark, "one"):
        frame = bundles.mapInArrow(TABLE.rows_of, TABLE.schema)
        ParquetSink("query", str(tmp_path / "rows")).write(frame, 1)
    files = [pq.ParquetFile(path) for path in (tmp_path / "rows").rglob("*.parquet")]
    kinds = {
        tuple(
            (column.name, column.physical_type, str(column.logical_type))
            for column in map(file.schema.column, range(len(file.schema)))
        )
        for file in files
    }
    assert len(kinds) == 1
    assert all(b"org.apache.spark.version" in file.metadata.metadata for file in files)


def test_a_micro_batch_is_seen_when_all_of_it_is_there(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / PLACE

    def looked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in TABLE.rows_of(batches):
            assert not place.exists()
            yield rows
        assert not place.exists()

    _write(_bundles(spark, 40), tmp_path, looked)
    assert len(_rows(spark, tmp_path)) == 40


def test_a_second_attempt_replaces_the_first(spark: SparkSession, tmp_path: Path) -> None:
    def fails(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from TABLE.rows_of(batches)
        message = "the last moment"
        raise ValueError(message)

    bundles = _bundles(spark, 40)
    with pytest.raises(Exception, match="the last moment"):
        _write(bundles, tmp_path, fails)
    (attempt,) = (tmp_path / "checkpoint=one").iterdir()
    assert attempt.name.startswith(".batch=0."), "readers see it"
    for _ in range(2):
        _write(bundles, tmp_path)
        assert len(_rows(spark, tmp_path)) == 40
    assert [path.name for path in (tmp_path / "checkpoint=one").iterdir()] == ["batch=0"]


def test_files_of_lost_tasks_stay_behind(tmp_path: Path) -> None:
    files = Files(tmp_path, TABLE.arrow_schema, "snappy")
    for name in ("part-1.parquet", "part-2.parquet"):
        (tmp_path / name).touch()
    whole = files.gathered(["part-2.parquet"])
    assert [path.name for path in whole.iterdir()] == ["part-2.parquet"]


def test_a_folder_that_machines_do_not_share_is_a_sentence(tmp_path: Path) -> None:
    files = Files(tmp_path, TABLE.arrow_schema, "snappy")
    with pytest.raises(StateUnavailable, match="give the job a folder that all machines share"):
        files.gathered(["part-1.parquet"])


def test_columns_are_there_before_rows(spark: SparkSession, tmp_path: Path) -> None:
    _write(_bundles(spark, 2).limit(0), tmp_path)
    read = spark.read.parquet(str(tmp_path))
    assert read.count() == 0
    assert read.columns[:2] == ["key", "timestamp"]


def test_rows_are_written_in_groups(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(tmp_path, TABLE.arrow_schema, "zstd")
    tables = [table for table in _tables(spark, 8) for _ in range(2)]
    files.write("rows.parquet", joined(tables, 1))
    metadata = pq.ParquetFile(tmp_path / "rows.parquet").metadata
    assert metadata.num_row_groups == len(tables)
    assert metadata.row_group(0).column(0).compression == "ZSTD"


def _tables(spark: SparkSession, count: int) -> list[pa.Table]:
    bundles = _bundles(spark, count).toArrow().to_batches()
    return [pa.Table.from_batches([rows]) for rows in TABLE.rows_of(bundles)]


def test_a_disk_without_room_is_a_sentence(spark: SparkSession, tmp_path: Path) -> None:
    groups = _tables(spark, 40)
    files = Files(tmp_path, TABLE.arrow_schema, "none")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(StateUnavailable, match=r"cannot be written to: .+; see that its disk"):
            files.write("rows.parquet", groups)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_in_the_place_of_the_folder_is_a_sentence(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "checkpoint=one").touch()
    bundles = _bundles(spark, 2)
    with pytest.raises(StateUnavailable, match="cannot be written to: File exists"):
        write_by_tasks(MadeRows(bundles, TABLE, TABLE.rows_of), tmp_path / PLACE, "snappy")


@pytest.mark.parametrize(
    ("name", "value", "codec"),
    [
        ("spark.sql.parquet.compression.codec", "ZSTD", "zstd"),
        ("spark.sql.parquet.compression.codec", "lz4", None),
        ("spark.sql.parquet.outputTimestampType", "INT96", None),
    ],
)
def test_settings_choose_the_writer(
    spark: SparkSession, tmp_path: Path, name: str, value: str, codec: str | None
) -> None:
    assert codec_for(spark) == "snappy"
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        assert codec_for(spark) == codec
        _write(_bundles(spark, 4), tmp_path)
    finally:
        spark.conf.set(name, before or "")
    assert (tmp_path / PLACE / "_SUCCESS").exists() == (codec is None)


@pytest.mark.parametrize(
    ("name", "is_theirs"),
    [
        ("spark.hadoop.parquet.block.size", True),
        ("spark.sql.files.maxRecordsPerFile", True),
        ("spark.sql.parquet.writeLegacyFormat", True),
        ("spark.sql.parquet.compression.codec", False),
        ("spark.sql.shuffle.partitions", False),
    ],
)
def test_a_setting_that_tasks_do_not_know_is_left_to_spark(name: str, *, is_theirs: bool) -> None:
    assert is_sparks_alone(name) == is_theirs
