"""Names of columns that need quotes, where rows leave."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession, types

from headrace.spark_jobs.write.catalogs import type_in_sql
from headrace.spark_jobs.write.console import ConsoleSink


def test_a_type_is_written_as_spark_reads_it() -> None:
    shop = types.StructType().add("a`b", types.DecimalType(9, 2))
    home = types.StructType().add("zip-code", types.LongType()).add("a.b", types.ArrayType(shop))
    kind = types.MapType(types.StringType(), home)
    said = "struct<`zip-code`: bigint, `a.b`: array<struct<`a``b`: decimal(9,2)>>>"
    assert type_in_sql(kind) == f"map<string, {said}>"
    assert type_in_sql(types.TimestampNTZType()) == "timestamp_ntz"


def test_the_console_shows_columns_whatever_their_names(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = spark.createDataFrame([(1, b"two", 3)], "`a.b` INT, `c``d` BINARY, `e f` INT")
    ConsoleSink().write(rows, 0)
    shown = capsys.readouterr().out.splitlines()
    assert shown[2:5:2] == ["|a.b|c`d|e f|", "|1  |two|3  |"]
