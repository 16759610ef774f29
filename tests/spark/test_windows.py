"""Windows of streams in Spark, as they are read and behind joins: the rows that tests give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.spark_jobs.queries.described import Query
from headrace.spark_jobs.shapes import JOINED
from tests.spark.test_query_answers import ASKED, ORDERS, PAID, PAYMENTS, PRICES, Both
from tests.spark.test_query_answers import _seen as seen

LONG = pytest.mark.long("spark", why="the rows of a join as of a time are folded alike")
DEAR = hr.table("prices", "price_cents BIGINT", retention="30d", pipeline=None)
AS_OF = (
    ASKED.join_as_of(DEAR, how="left")
    .select("key", "order_id", "quantity * price_cents AS cents")
    .group_by("key", hr.window(100))
    .agg(hr.sum("cents"), hr.count(), hr.min("order_id"), hr.avg("cents"), hr.max("time"))
)
WITHIN = (
    ASKED.join_within(PAID.filter("cents > 0"), within=10, how="outer")
    .group_by("order_id", "note", hr.window(100))
    .agg(hr.sum("cents"), hr.count(), hr.collect("quantity"))
    .filter("count > 0")
)
ALONE = (
    PAID.filter("cents > 0")
    .select("time", "cents % 2 = 0 AS even", "cents")
    .group_by("even", hr.window(100))
    .agg(hr.sum("cents"), hr.max("time"))
    .select("even", "sum_cents", "max_time", "window_end")
)


@pytest.mark.parametrize(
    ("query", "sides", "rows"),
    [
        (AS_OF, (PRICES, ORDERS), [("p1", 99), ("p1", 299), ("p1", 399), ("p2", 299)]),
        pytest.param(WITHIN, (ORDERS, PAYMENTS), [('["a","first"]', 299)], marks=LONG),
        pytest.param(
            ALONE, (PAYMENTS,), [("false", 299), ("true", 299), ("true", 399)], marks=LONG
        ),
    ],
    ids=["as of", "within", "alone"],
)
def test_windows_of_streams(
    spark: SparkSession, tmp_path: Path, query: Query, sides: Any, rows: list[tuple[str, int]]
) -> None:
    both = Both(spark, tmp_path, query, *sides)
    assert both.spark_records(JOINED) == seen(both.here.rows)
    # A row that no sink takes is a dead letter of the stream.
    topics = {row["topic"] for row in both.spark.records if row["verdict"] == JOINED}
    assert topics == {query.sources[-1].topic}
    found = [((record.key or b"").decode(), record.timestamp_ms) for record in both.here.rows]
    assert sorted(found) == rows
