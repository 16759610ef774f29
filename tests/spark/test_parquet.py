"""Rows that leave to folders of Parquet: each once, or refused with a sentence."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from headrace.contracts.errors import JobInvalid, SinkOfAnotherQuery
from headrace.spark_jobs.write.delta_place import DeltaPlace
from headrace.spark_jobs.write.parquet import ParquetSink
from tests.spark.batches import batch_of


def test_an_older_copy_of_a_checkpoint_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    folder = str(tmp_path / "rows")
    for batch in (9, 10, 10):
        ParquetSink("query", folder).write(batch_of(spark, [("a", batch, batch)]), batch)
    with pytest.raises(SinkOfAnotherQuery, match="has written micro-batch 10, and its checkpoint"):
        ParquetSink("query", folder).write(batch_of(spark, [("a", 9, 9), ("a", 10, 10)]), 9)
    rows = spark.read.parquet(folder).select("cents", "batch").orderBy("batch").collect()
    assert [tuple(row) for row in rows] == [(9, 9), (10, 10)]


def test_files_say_which_times_they_have(spark: SparkSession, tmp_path: Path) -> None:
    ParquetSink("query", str(tmp_path)).write(batch_of(spark, [("a", 7, 1), ("b", 9, 2)]), 0)
    bounds = []
    for file in tmp_path.rglob("*.parquet"):
        found = pq.ParquetFile(file)
        place = found.schema_arrow.get_field_index("timestamp")
        assert found.schema_arrow.field(place).type == pa.timestamp("us", tz="UTC")
        times = found.metadata.row_group(0).column(place).statistics
        bounds += [times.min.timestamp(), times.max.timestamp()]
    assert (min(bounds), max(bounds)) == (7, 9)


@pytest.mark.parametrize("name", ["rows[1]", "rows{a}", "rows{"])
def test_a_folder_whose_name_looks_like_a_pattern_is_looked_at(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    folder = str(tmp_path / name)
    ParquetSink("query", folder).write(batch_of(spark, [("a", 1, 1)], "other"), 0)
    with pytest.raises(SinkOfAnotherQuery, match="written with another checkpoint"):
        ParquetSink("query", folder).write(batch_of(spark, [("a", 1, 1)]), 0)


def test_a_folder_with_another_file_is_a_sentence(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "read me.txt").write_text("of others")
    with pytest.raises(JobInvalid, match=r"not Parquet, file:/.+/read me\.txt, and readers of the"):
        ParquetSink("query", str(tmp_path)).write(batch_of(spark, [("a", 1, 1)]), 0)


def test_no_table_of_delta_and_rows_in_parquet_share_a_folder(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(tmp_path / "rows")
    rows = batch_of(spark, [("a", 1, 1)])
    ParquetSink("query", folder).write(rows, 0)
    monkeypatch.setattr(DeltaPlace, "exists", lambda *_: False)
    with pytest.raises(JobInvalid, match="has rows that a job wrote to Parquet, which a `VACUUM`"):
        DeltaPlace(None, folder).make(spark, rows.schema)
    (tmp_path / "table" / "_delta_log").mkdir(parents=True)
    with pytest.raises(JobInvalid, match="table is a table of Delta; give `query` a folder of its"):
        ParquetSink("query", str(tmp_path / "table")).write(rows, 0)
