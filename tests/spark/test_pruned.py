"""Queries in the plan that Spark makes behind a move, which has every column of each stage."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

import headrace as hr
from tests.spark.queried import run_in_spark, said

CUSTOMERS = hr.table("customers", "name STRING", pipeline=None)
BOUGHT = hr.table("bought", "customer STRING, cents BIGINT", pipeline=None)


def test_joined_tables_leave_where_spark_prunes_no_column_as_behind_a_move(
    spark: SparkSession, tmp_path: Path
) -> None:
    excluded = "spark.sql.optimizer.excludedRules"
    spark.conf.set(excluded, "org.apache.spark.sql.catalyst.optimizer.ColumnPruning")
    try:
        ran = run_in_spark(
            spark,
            tmp_path,
            BOUGHT.join_on(CUSTOMERS, "customer").select("name", "time AS at"),
            [
                *said(0, ("o1", 2, {"customer": "c1", "cents": 5})),
                *said(1, ("c1", 1_000, {"name": "Ann"})),
            ],
        )
    finally:
        spark.conf.unset(excluded)
    assert ran.last() == {"o1": {"name": "Ann", "at": "1970-01-01T00:00:01.000000Z"}}
