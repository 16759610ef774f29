"""Tests of queries, which need no Spark, give the answers of Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import headrace as hr
from headrace.contracts.errors import JobInvalid
from headrace.contracts.record import Record
from headrace.spark_jobs.jobs.inputs import Inputs
from headrace.spark_jobs.operators.frames import InputProgress
from headrace.spark_jobs.queries.compiled import QueryJob
from headrace.spark_jobs.queries.described import Query
from headrace.spark_jobs.shapes import CHANGED, DEAD, JOINED
from headrace.testing import QueryResult, load_query
from headrace.testing import run as run_here
from tests.chance import seed_of_run
from tests.pages import write_files
from tests.spark.answers import READ, WHOLE_VALUES, Drawn, differences, read_differences, rows
from tests.spark.frames import apart, read_rows, write_rows
from tests.spark.queried import Ran, run_in_spark, said

FAR_MS = 36_000_000
PRICES = (
    ("p1", 100, {"price_cents": 7}),
    ("p1", 300, {"price_cents": 9}),
    ("p2", 100, {"price_cents": "dear"}),
    ("end", FAR_MS, {"price_cents": 0}),
)
ORDERS = (
    ("p1", 200, {"order_id": "a", "quantity": 2}),
    ("p1", 300, {"order_id": "b", "quantity": 2}),
    ("p1", 50, {"order_id": "é", "quantity": None}),
    ("p2", 200, {"order_id": "d", "quantity": 1}),
    ("p2", 200, "{no JSON"),
    ("end", FAR_MS, {"order_id": "end", "quantity": 0}),
)
CUSTOMERS = hr.table("customers", "name STRING, segment STRING", pipeline=None)
BOUGHT = hr.table("bought", "customer STRING, cents BIGINT, price DECIMAL(10, 2)", pipeline=None)
WHO = (
    ("c1", 1, {"name": "Ann", "segment": "x"}),
    ("c2", 2, {"name": "Bob", "segment": "y"}),
    ("c3", 2, {"name": "Cy", "segment": None}),
    ("c2", 9, {"name": "Bob", "segment": "x"}),
)
WHAT = (
    ("o1", 3, '{"customer": "c1", "cents": 5, "price": 0.10}'),
    ("o2", 4, '{"customer": "c1", "cents": 6, "price": 0.20}'),
    ("o2", 5, '{"customer": "c2", "cents": 6, "price": 0.205}'),
    ("o3", 6, '{"customer": "c2", "cents": 9223372036854775807, "price": null}'),
    ("o4", 3_600_000, '{"customer": "c1", "cents": 13, "price": 1}'),
    ("o5", 7_199_999, '{"customer": "c1", "cents": 7, "price": 1}'),
    ("o1", 7_200_000, None),
)
FOLDED = (
    BOUGHT.join_on(CUSTOMERS, "customer")
    .group_by("segment")
    .agg(
        hr.count(),
        hr.sum("cents"),
        hr.avg("cents"),
        hr.min("name"),
        hr.max("price"),
        hr.collect("price"),
        paid=hr.sum("price"),
        mean=hr.avg("price"),
    )
    .select("key", "*", "sum_cents IS NULL AS too_much")
)
AN_HOUR = (
    BOUGHT.filter("cents < 1000")
    .select("customer", "date_trunc('HOUR', time) AS hour", "price * 100 AS price")
    .group_by("customer", "hour")
    .agg(hr.sum("price"), hr.count())
)
"""A windowed sum: what each customer bought in each hour."""


class Both:
    """Runs a query in Spark and here."""

    def __init__(self, spark: SparkSession, folder: Path, query: Query, *sides: Any) -> None:
        given = [row for number, side in enumerate(sides) for row in said(number, *side)]
        topics = [source.topic for source in query.sources]
        self.spark: Ran = run_in_spark(spark, folder, query, given)
        records = [record._replace(topic=topics[number]) for number, record in given]
        self.here: QueryResult = run_here(query, iter(sorted(records, key=_time_ms)))

    def spark_records(self, verdict: str) -> list[tuple[Any, ...]]:
        """Key, value, time and headers of what Spark gave, byte by byte, sorted."""
        found = [each for each in self.spark.records if each["verdict"] == verdict]
        return sorted(
            [
                (
                    bytes(each["key"]),
                    None if each["value"] is None else bytes(each["value"]),
                    each["timestamp_ms"],
                    tuple((one["key"], bytes(one["value"])) for one in each["headers"] or ()),
                )
                for each in found
            ],
            key=repr,
        )


def _apart(records: DataFrame, job: QueryJob) -> Sequence[DataFrame]:
    names = list(job.sources)
    formats = dict(enumerate(job.VALUES.values()))
    return Inputs(names, apart(records, len(names)), formats, InputProgress(), {}).frames


def _time_ms(record: Record) -> int:
    return record.timestamp_ms


def _seen(records: tuple[Record, ...]) -> list[tuple[Any, ...]]:
    return sorted(
        [(one.key, one.value, one.timestamp_ms, one.headers) for one in records], key=repr
    )


def test_the_job_of_the_readme(spark: SparkSession, tmp_path: Path) -> None:
    write_files("README.md", tmp_path)
    query = load_query("priced.py", tmp_path)
    both = Both(spark, tmp_path, query, PRICES, ORDERS)
    assert both.spark_records(JOINED) == _seen(both.here.rows)
    assert len(both.here.rows) == 4
    dead = [(one[0], one[1], len(one[3])) for one in both.spark_records(DEAD)]
    letters = [letter.record for letter in both.here.dead]
    assert dead == sorted((one.key, one.value, len(one.headers) + 8) for one in letters)


def test_a_backfill_has_the_rows_of_the_query(spark: SparkSession, tmp_path: Path) -> None:
    write_files("README.md", tmp_path)
    query = load_query("priced.py", tmp_path)
    given = [*said(0, *PRICES), *said(1, *ORDERS)]
    topics = [source.topic for source in query.sources]
    records = [record._replace(topic=topics[number]) for number, record in given]
    rows = [json.loads(row.value or b"") for row in run_here(query, records).rows]
    job = QueryJob(query)
    read = read_rows(spark, write_rows(tmp_path / "in", given))
    frame = job.columns(job.in_bulk(_apart(read, job)))
    found = [row.asDict() for row in frame.where("order_id <> 'end'").drop("time").collect()]
    assert sorted(found, key=str) == sorted(rows, key=str)
    folded = QueryJob(FOLDED)
    with pytest.raises(JobInvalid, match="computed row by row"):
        folded.in_bulk(_apart(read, folded))


ASKED = hr.stream("asked", "order_id STRING, quantity BIGINT", pipeline=None)
PAID = hr.stream("paid", "cents BIGINT, note STRING", pipeline=None)
PAYMENTS = (
    ("p1", 210, {"cents": 5, "note": "first"}),
    ("p1", 211, {"cents": 0, "note": "left out"}),
    ("p2", 230, {"cents": 6, "note": "too far"}),
    ("p3", 240, {"cents": 7, "note": "alone"}),
    ("\udcff", 241, {"cents": 7, "note": "alone, and no text"}),
    ("p1", 302, {"cents": 8}),
    ("p1", 290, {"cents": 9}),
    ("p1", 300, "{no JSON"),
    ("end", FAR_MS, {"cents": 1}),
)


def test_two_streams_within_a_window(spark: SparkSession, tmp_path: Path) -> None:
    query = ASKED.join_within(PAID.filter("cents > 0"), within=10, how="outer").select(
        "key", "time", "*", "quantity * cents AS total"
    )
    both = Both(spark, tmp_path, query, ORDERS, PAYMENTS)
    assert both.spark_records(JOINED) == _seen(both.here.rows)
    found = [json.loads(row.value or b"") for row in both.here.rows]
    assert [(row["key"], row["order_id"], row["cents"], row["total"]) for row in found] == [
        ("p1", "é", None, None),
        ("p1", "a", 5, 10),
        ("p2", "d", None, None),
        ("p2", None, 6, None),
        ("p3", None, 7, None),
        (None, None, 7, None),
        ("p1", "b", 9, 18),
        ("p1", "b", 8, 16),
    ]
    assert {row["reason"] for row in both.spark.records if row["verdict"] == DEAD}


PAYERS = hr.stream("paid", "payer STRING, cents BIGINT", pipeline=None)
PAID_BY = (
    ("x1", 205, {"payer": "a", "cents": 1}),
    ("x2", 206, {"payer": None, "cents": 2}),
    ("x3", 301, {"payer": "b", "cents": 0}),
    ("x4", 400, {"payer": "b", "cents": 3}),
    ("x5", 55, {"payer": "é", "cents": 4}),
    ("end", FAR_MS, {"payer": "end", "cents": 1}),
)


PART = pytest.mark.long("spark", why="the aggregation joins and folds in one query")


@pytest.mark.long("spark", why="two streams, and a backfill, have a test each")
@pytest.mark.parametrize("how", ["inner", "outer"])
def test_two_streams_by_columns_and_their_backfill(
    spark: SparkSession, tmp_path: Path, how: Any
) -> None:
    met = ASKED.join_within(
        PAYERS.filter("cents > 0"), within=10, on=("order_id", "payer"), how=how
    )
    both = Both(spark, tmp_path, met.select("key", "time", "order_id", "cents"), ORDERS, PAID_BY)
    assert both.spark_records(JOINED) == _seen(both.here.rows)
    found = [json.loads(row.value or b"") for row in both.here.rows]
    assert {(row["key"], row["order_id"], row["cents"]) for row in found} >= {
        ("p1", "a", 1),
        ("p1", "é", 4),
    }
    given = [*said(0, *ORDERS), *said(1, *PAID_BY)]
    topics = [source.topic for source in met.sources]
    records = [(number, record._replace(topic=topics[number])) for number, record in given]
    read = read_rows(spark, write_rows(tmp_path / "bulk", records))
    job = QueryJob(met.select("key", "order_id", "cents"))
    frame = job.columns(job.in_bulk(_apart(read, job)))
    # Spark made a plan with 81 of them in 40 seconds, when every expression told inputs apart.
    plan = frame._jdf.queryExecution().optimizedPlan().toString()  # noqa: SLF001 (Java's alone)
    assert plan.count("from_json") < 45
    in_bulk = [row.asDict() for row in frame.where("key <> 'end'").drop("time").collect()]
    streamed = [{name: row[name] for name in ("key", "order_id", "cents")} for row in found]
    alive = [row for row in streamed if row["key"] != "end"]
    assert sorted(in_bulk, key=str) == sorted(alive, key=str)


@pytest.mark.parametrize(
    ("query", "sides"),
    [
        pytest.param(BOUGHT.join(CUSTOMERS.select("name"), how="outer"), (WHAT, WHO), marks=PART),
        (FOLDED, (WHAT, WHO)),
        pytest.param(AN_HOUR, (WHAT,), marks=PART),
    ],
    ids=["the join", "the aggregation", "the windowed sum"],
)
def test_tables(spark: SparkSession, tmp_path: Path, query: Query, sides: Any) -> None:
    both = Both(spark, tmp_path, query, *sides)
    assert {row["verdict"] for row in both.spark.records} == {CHANGED}
    # A group that was there within a micro-batch alone is deleted here, and never leaves in Spark.
    in_spark = {bytes(row["key"]): row["value"] for row in both.spark.records}
    here = {row.key: row.value for row in both.here.rows}
    assert in_spark.keys() <= here.keys()
    assert {key: value for key, value in here.items() if value is not None} == {
        key: bytes(value) for key, value in in_spark.items() if value is not None
    }
    assert both.here.latest


def test_values_are_read_alike(spark: SparkSession) -> None:
    wrong = [
        each
        for kind, values in READ.items()
        for each in read_differences(spark, kind, [f'{{"x":{value}}}' for value in values])
    ]
    assert wrong + read_differences(spark, "STRING", WHOLE_VALUES) == []


IN_ANOTHER_ORDER = (
    "7 * i * j",
    "i + -5 + j",
    "1 + (i + 2) + (j + 3)",
    "(i + 1) + l",
    "CAST(NULL AS INT) * i * 7",
    "100 * (i * 7) * CAST(j AS SMALLINT)",
    # Without constants it computes as it is written.
    "j * (l * l)",
    "j + (l + l)",
)
"""Spark computes with the constants of a sum or product last, so that others overflow."""
AT_THE_EDGE = (
    "CAST(CAST(l AS DOUBLE) AS BIGINT)",
    "CAST(CAST(i AS DOUBLE) AS INT)",
    "CAST(round(d) AS STRING)",
    "CAST(NULL AS INT) % (i % j)",
    "1 % (i % j) - CAST(NULL AS INT)",
    "i % j < CAST(NULL AS INT)",
    "(i % j > 0) AND false",
    "isnull((i % j) IS NULL)",
)
"""The largest BIGINT is none as a double, and Spark takes it all the same; it rounds to no -0.0.
A null that is one in every row hides all errors beside it. Planning takes out two errors more."""


def test_expressions_are_evaluated_alike(spark: SparkSession) -> None:
    drawn = Drawn(1)
    some = (*IN_ANOTHER_ORDER, *AT_THE_EDGE, *(drawn.expression() for _ in range(30)))
    expressions = list(dict.fromkeys(some))
    assert differences(spark, expressions, rows(1, 30)) == []


@pytest.mark.long("spark", why="it draws a thousand expressions by chance")
def test_drawn_expressions_are_evaluated_alike(spark: SparkSession) -> None:
    seed = seed_of_run()
    drawn = Drawn(seed)
    wrong: list[str] = []
    for turn in range(10):
        expressions = list(dict.fromkeys(drawn.expression() for _ in range(100)))
        wrong += differences(spark, expressions, rows(seed * 10 + turn, 50))
    assert wrong == []
