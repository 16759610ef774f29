"""Rows that leave to folders of Parquet: each once, or refused with a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.contracts.errors import SinkOfAnotherQuery
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


@pytest.mark.parametrize("name", ["rows[1]", "rows{a}", "rows{"])
def test_a_folder_whose_name_looks_like_a_pattern_is_looked_at(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    folder = str(tmp_path / name)
    ParquetSink("query", folder).write(batch_of(spark, [("a", 1, 1)], "other"), 0)
    with pytest.raises(SinkOfAnotherQuery, match="written with another checkpoint"):
        ParquetSink("query", folder).write(batch_of(spark, [("a", 1, 1)]), 0)
