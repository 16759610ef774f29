"""Rows that leave to Iceberg: once, and refused where a table cannot take them as they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

from headrace.contracts.errors import (
    JobInvalid,
    ReplayDiffers,
    SinkOfAnotherQuery,
    StateUnavailable,
)
from headrace.spark_jobs.write.delta_place import DeltaPlace
from headrace.spark_jobs.write.iceberg import IcebergSink
from headrace.spark_jobs.write.iceberg_place import IcebergPlace
from tests.spark.batches import Row, batch_of

Kept = tuple[str | None, int | None, int]
"""A key, cents and the number of the micro-batch."""
A, B, C = ("a", 1, 10), ("b", 2, 20), (None, 3, 30)
LATER: list[Row] = [("a", 4, 40), ("a", 5, None), ("b", 6, 60), ("c", 7, None)]


def _order(row: Kept) -> tuple[str, int, int]:
    return row[0] or "", row[2], row[1] or 0


class Table:
    """A table in a folder, which drivers write to one after the other."""

    def __init__(self, spark: SparkSession, folder: Path, *, mode: str = "append") -> None:
        """Take a folder in which nothing is yet."""
        self._spark = spark
        self._mode = mode
        self.place = IcebergPlace(None, str(folder / "rows"))

    def write(
        self,
        batch: int,
        rows: list[Row],
        *,
        query: str = "query",
        checkpoint: str = "one",
        in_order: bool = False,
    ) -> None:
        """Write a micro-batch as a driver that was just started."""
        sink = IcebergSink(query, self.place, mode=self._mode, in_order=in_order)
        sink.write(batch_of(self._spark, rows, checkpoint), batch)

    def call(self, procedure: str, options: str) -> None:
        """Call a procedure of Iceberg's for the table."""
        catalog, _, name = self.place.name_in(self._spark).partition(".")
        table = name.strip("`")
        self._spark.sql(f"CALL {catalog}.system.{procedure}(table => '{table}', {options})")

    @property
    def rows(self) -> list[Kept]:
        """Key, cents and micro-batch of each row."""
        kept = self._spark.table(self.place.name_in(self._spark)).collect()
        found = [(row["key"], row["cents"], row["batch"]) for row in kept]
        return sorted(found, key=_order)

    @property
    def versions(self) -> list[tuple[str | None, int, int | None, int | None]]:
        """Key, the seconds from which and until which it is valid, and cents of each row."""
        kept = self._spark.table(self.place.name_in(self._spark))
        seconds = [F.unix_seconds(name) for name in ("valid_from", "valid_to")]
        found = kept.select("key", *seconds, "cents").collect()
        return sorted([tuple(row) for row in found], key=lambda row: (row[0] or "", row[1]))

    def has(self, batch: int) -> bool:
        """Say whether the table has a micro-batch."""
        sink = IcebergSink("query", self.place)
        return sink.has_written(self._spark, "one", batch)


@pytest.mark.long("spark", why="its twin upserts through the same marker")
def test_appended_rows_are_there_once_behind_a_compaction_and_an_expiry_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = Table(spark, tmp_path)
    assert not table.has(0)
    table.write(0, LATER)
    table.write(0, [B], query="another", checkpoint="other")
    table.call("rewrite_data_files", "options => map('rewrite-all', 'true')")
    table.write(0, LATER)
    wanted = [("a", 40, 0), ("a", None, 0), ("b", 20, 0), ("b", 60, 0), ("c", None, 0)]
    assert table.rows == sorted(wanted, key=_order)
    with pytest.raises(ReplayDiffers, match="rows has 4 rows of it, and they are 3 now; start it"):
        table.write(0, LATER[:3])
    with pytest.raises(SinkOfAnotherQuery, match=r"`query` has written to .*/rows with another"):
        table.write(1, [A], checkpoint="new")

    table.call("expire_snapshots", "older_than => TIMESTAMP '2100-01-01', retain_last => 1")
    assert (table.has(0), table.has(1)) == (True, False)
    with pytest.raises(SinkOfAnotherQuery, match="whether micro-batch 0 of `query` is in it"):
        table.write(0, LATER)
    table.write(1, [A])
    assert table.rows == sorted([*wanted, ("a", 10, 1)], key=_order)


def test_the_last_row_of_a_key_is_the_only_one_and_a_deleted_key_has_none(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = Table(spark, tmp_path, mode="upsert")
    table.write(0, [A, B, C])
    table.write(1, [*LATER, C])
    table.write(2, [])
    table.write(1, [*LATER, C])
    assert table.rows == [(None, 30, 0), (None, 30, 1), ("b", 60, 1)]
    appending = Table(spark, tmp_path)
    with pytest.raises(SinkOfAnotherQuery, match="was written with `mode: upsert`"):
        appending.write(3, [A])


@pytest.mark.parametrize(
    ("of_one_task", "last"), [(True, [("a", 40, 1)]), (False, [("a", 10, 0), ("b", 20, 0)])]
)
def test_an_earlier_row_of_another_task_is_the_last_one_where_a_key_has_one_task(
    spark: SparkSession, tmp_path: Path, *, of_one_task: bool, last: list[Kept]
) -> None:
    place = IcebergPlace(None, str(tmp_path / "rows"))
    batches: list[list[Row]] = [[A, B], [("a", 0, 40), ("b", 0, None)]]
    for batch, rows in enumerate(batches):
        sink = IcebergSink("query", place, mode="upsert", of_one_task=of_one_task)
        sink.write(batch_of(spark, rows).withColumn("task", F.lit(batch)), batch)
    kept = spark.table(place.name_in(spark)).select("key", "cents", "batch").collect()
    assert sorted(tuple(row) for row in kept) == last


@pytest.mark.long("spark", why="the statement is tested in SQLite, and with Delta")
def test_a_row_is_valid_until_the_next_one_of_its_key_however_late(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = Table(spark, tmp_path, mode="scd2")
    table.write(0, [("a", 10, 1), ("a", 30, 3), ("b", 10, 1), (None, 5, 5), ("c", 9, None)])
    late: list[Row] = [("a", 20, 2), ("a", 40, None), ("b", 10, 2), ("c", 8, 8), ("b", 7, None)]
    for _ in range(2):
        table.write(1, late)
    assert table.versions == [
        (None, 5, None, 5),
        ("a", 10, 20, 1),
        ("a", 20, 30, 2),
        ("a", 30, 40, 3),
        ("b", 7, 7, None),
        ("b", 10, None, 2),
        ("c", 8, 9, 8),
    ]
    table.write(2, [("a", 35, 9), ("b", 9, None)], in_order=True)
    behind = [("a", 30, 40, 3), ("a", 40, None, 9), ("b", 7, 7, None), ("b", 10, 10, None)]
    assert table.versions[3:7] == behind, "the time of the last one is theirs"


def test_a_table_with_other_columns_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(spark, tmp_path)
    table.place.make(spark, spark.createDataFrame([], "key STRING, cents BIGINT").schema, {"a": ""})
    with pytest.raises(JobInvalid, match="rows lacks the column `timestamp`, which each row has"):
        table.write(0, [A])
    other = Table(spark, tmp_path / "other")
    rows = batch_of(spark, []).withColumn("batch", F.lit(0).cast("bigint"))
    other.place.make(spark, rows.withColumn("cents", F.lit(0)).schema, {"a": ""})
    with pytest.raises(JobInvalid, match="`cents` as `int`, and the rows have it as `bigint`"):
        other.write(0, [A])


def test_a_place_that_spark_does_not_know_is_refused(spark: SparkSession) -> None:
    with pytest.raises(JobInvalid, match=r"Spark knows no catalog `lake` of `lake\.sales\.orders`"):
        IcebergPlace("lake.sales.orders", None).check(spark)
    spark.conf.set("spark.sql.catalog.away", "org.example.Away")
    with pytest.raises(StateUnavailable, match=r"`away\.sales\.a` cannot be looked up: .*Cannot"):
        IcebergPlace("away.sales.a", None).check(spark)
    with pytest.raises(StateUnavailable, match=r"`away\.sales\.a` cannot be looked up: .*Cannot"):
        DeltaPlace("away.sales.a", None).check(spark)
    with pytest.raises(JobInvalid, match=r"`spark_catalog\.default\.rows` cannot be made: "):
        IcebergPlace("spark_catalog.default.rows", None).make(spark, batch_of(spark, []).schema, {})
