"""Delta tables that were there before a job: kept as they are, or refused with a sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.contracts.errors import JobInvalid
from headrace.spark_jobs.connectors import CONNECTORS
from headrace.spark_jobs.session import open_session
from headrace.spark_jobs.write.claims import refuse_missing_columns, refuse_other_columns
from headrace.spark_jobs.write.delta import DeltaSink
from tests.spark.batches import batch_of
from tests.spark.driver import QUICK_JAVA, Driver

_OWN = "key STRING, timestamp TIMESTAMP, deleted BOOLEAN, task INT, sequence BIGINT, batch BIGINT"
_EVOLVES = "spark.databricks.delta.schema.autoMerge.enabled"


def on_a_session(check: Callable[[SparkSession, Path], None], folder: Path) -> None:
    """Check something on a session with Delta, which the other tests' session lacks."""
    spark = open_session(
        "delta",
        master="local[1]",
        shuffle_partitions=1,
        settings={
            "spark.ui.enabled": "false",
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": QUICK_JAVA,
            "spark.databricks.delta.snapshotPartitions": "1",
        },
        connectors=CONNECTORS,
    )
    check(spark, folder)
    spark.stop()


def checked(check: Callable[[SparkSession, Path], None], folder: Path) -> None:
    driver = Driver(folder / "driver.log", on_a_session, check, folder)
    assert driver.wait() == 0, driver.log


def test_the_first_column_that_differs_is_named_whatever_its_case() -> None:
    refuse_other_columns("rows", ["KEY", "cents"], ["key", "Cents"])
    refuse_missing_columns("rows", ["key", "cents", "euros"], ["key", "cents"])
    with pytest.raises(JobInvalid, match="rows lacks the column `cents`, which each row has; add"):
        refuse_missing_columns("rows", ["key", "euros"], ["key", "cents"])
    with pytest.raises(JobInvalid, match="rows has a column `euros`, which no row has; drop it by"):
        refuse_other_columns("rows", ["key", "euros", "cents"], ["key", "cents"])


def see_columns(spark: SparkSession, folder: Path) -> None:
    """Write to tables that lack a column of the rows, or have one more."""

    def made(name: str, *more: str) -> str:
        table = f"{folder}/{name}"
        schema = ", ".join([_OWN, *more])
        spark.createDataFrame([], schema).write.format("delta").save(table)
        return table

    def rows_of(table: str) -> list[tuple[object, ...]]:
        rows = spark.read.format("delta").load(table)
        return [tuple(row[name] for name in ("key", "cents", "batch")) for row in rows.collect()]

    def write(table: str, mode: str, batch: int = 0) -> None:
        DeltaSink("query", table, mode=mode).write(batch_of(spark, [("a", 1, 10)]), batch)

    for mode in ("upsert", "append", "scd2"):
        lacking = made(f"lacking-{mode}")
        with pytest.raises(JobInvalid, match=rf"lacking-{mode} lacks the column `.*ALTER TABLE"):
            write(lacking, mode)
        assert spark.read.format("delta").load(lacking).isEmpty()
    # It was not this job's table, so another job may take it.
    spark.sql(f"ALTER TABLE delta.`{folder}/lacking-append` ADD COLUMNS (cents BIGINT)")
    write(f"{folder}/lacking-append", "upsert")

    more = "cents BIGINT", "euros BIGINT"
    foreign = made("foreign", *more)
    with pytest.raises(JobInvalid, match="foreign has a column `euros`, which no row has"):
        write(foreign, "upsert")
    write(foreign, "append")
    assert rows_of(foreign) == [("a", 10, 0)]

    # The user has chosen that tables get the columns that they lack.
    spark.conf.set(_EVOLVES, "true")
    for mode in ("append", "upsert"):
        taken = made(f"taken-{mode}", "euros BIGINT")
        write(taken, mode)
        assert rows_of(taken) == [("a", 10, 0)]


@pytest.mark.long("spark", why="it starts a session of its own, with Delta")
def test_a_table_with_other_columns_is_refused_or_takes_them_where_the_user_says_so(
    tmp_path: Path,
) -> None:
    checked(see_columns, tmp_path)
