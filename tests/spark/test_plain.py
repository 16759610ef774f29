"""Tasks make the rows of a plain query as Spark makes them, and leave all others to Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import ArithmeticException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

import headrace as hr
from headrace.contracts.errors import JobFailed
from headrace.spark_jobs.cli.failure import error_of
from headrace.spark_jobs.queries.compiled import QueryJob
from headrace.spark_jobs.queries.described import Query
from headrace.spark_jobs.queries.plain import PlainRows, plain_rows
from headrace.spark_jobs.shapes import FIELDS
from headrace.spark_jobs.versioned.records import objects
from headrace.spark_jobs.write.avro import avro_of, encoding, frame_of
from headrace.spark_jobs.write.row_avro import avro_of_rows
from headrace.spark_jobs.write.row_json import json_of

PRICES = hr.table("prices", "price_cents BIGINT, grade INT, `the name` STRING", retention="30d")
ORDERS = hr.stream("orders", "order_id STRING, quantity BIGINT, size INT, gift BOOLEAN, key STRING")
PRICED = ORDERS.join_as_of(PRICES, how="left")
NUMBER = 258
"""Of a schema in a registry."""
LONG_MAX, INT_MAX = (1 << 63) - 1, (1 << 31) - 1
PLAIN: dict[str, Query] = {
    "all columns": PRICED,
    "some": PRICED.select("key", "order_id", "gift", "`the name`", "grade AS g"),
    "in another case": PRICED.select("ORDER_ID", "Quantity * Price_Cents AS Total", "KEY"),
    "numbers": PRICED.select(
        "quantity * price_cents AS product",
        "quantity - (price_cents + quantity) AS less",
        "size * grade AS sizes",
        "price_cents",
    ),
    "steps": ORDERS.select("*", "size + size AS twice")
    .join_as_of(PRICES)
    .select("twice", "key AS product", "value_key", "price_cents - quantity AS rest")
    .select("rest", "twice * twice AS more", "product"),
    "filters": ORDERS.filter("quantity <> 0 AND NOT gift")
    .select("order_id", "quantity")
    .join_as_of(PRICES, how="left")
    .filter("`the name` IS NULL")
    .select("order_id", "quantity * price_cents AS total"),
    "constants": PRICED.select(
        "quantity * 100 AS hundreds",
        "-3 + size AS less",
        "size - (7) AS size",
        "5 * price_cents AS cents",
        "quantity + 3000000000 AS far",
    ),
    "nothing left": PRICED.filter("size IS NULL AND size > 0"),
}
CONDITIONS = (
    "quantity > 1",
    "quantity <> price_cents",
    "size >= -5",
    "3 = size",
    "grade < 3000000000 OR size = -3000000000",
    "gift",
    "NOT gift",
    "order_id = '1'",
    "'1' <= order_id",
    "order_id < `the name`",
    "`the name` IS NULL",
    "price_cents IS NOT NULL AND NOT (quantity < 0 OR gift)",
    "gift OR quantity = 0 AND size IS NULL",
    "KEY = 'product'",
    "key > 'h' OR Key IS NULL",
    "(Quantity) <= (2)",
    "quantity IN (0, -2, 7)",
    "order_id NOT IN ('1', 'x')",
    "key IN ('product')",
    "size BETWEEN -5 AND 3",
    "NOT quantity BETWEEN 0 AND 2 OR gift",
    "order_id NOT BETWEEN '0' AND '2'",
    "quantity BETWEEN price_cents AND 9",
)
"""Conditions that are plain."""
OTHER_CONDITIONS = (
    "quantity > 1.5",
    "order_id = 1",
    "size = quantity",
    "quantity IN (1, NULL)",
    "quantity IN (1, '2')",
    "quantity IN (size, 2)",
    "quantity IN (1.5, 2)",
    "quantity BETWEEN 0.5 AND 2",
    "quantity BETWEEN 1 AND NULL",
    "upper(order_id) = 'X'",
    "order_id = 'it\\'s'",
    'order_id = "it\'s"',
    r"order_id = '\f'",
    'order_id = "1"',
    "quantity = NULL",
    "size + size > 2",
    "gift = true",
    "1 < 2",
    "order_id LIKE '1%'",
    "headers IS NULL",
    "time > timestamp '2020-01-01'",
)
_IN_JAVA: dict[str, Query] = {
    **{each: PRICED.filter(each) for each in OTHER_CONDITIONS},
    "a filter behind what is computed": PRICED.select("size * size AS it").filter("it > 1"),
    "a filter of the table": ORDERS.join_as_of(PRICES.filter("grade > 1")),
    "a step of the table": ORDERS.join_as_of(PRICES.select("grade")),
    "by a column": ORDERS.join_as_of(PRICES, on="order_id"),
    "corrections": ORDERS.join_as_of(PRICES, corrections=True),
    "a history": ORDERS.join_as_of(PRICES, history="/somewhere"),
    "its time": PRICED.select("time"),
    "its headers": PRICED.select("order_id", "headers"),
    "two types": PRICED.select("quantity * size AS it"),
    "a text": PRICED.select("order_id * quantity AS it"),
    "two constants": PRICED.select("quantity * 2 * 3 AS it"),
    "a constant in a column": PRICED.select("quantity + 1 AS it").select("it + it AS it"),
    "a column and a constant": PRICED.select("quantity + price_cents + 1 AS it"),
    "constants alone": PRICED.select("1 + 2 AS it"),
    "a constant of a larger type": PRICED.select("size + 3000000000 AS it"),
    "a fraction": PRICED.select("quantity * 1.5 AS it"),
    "a text as a number": PRICED.select("quantity * '2' AS it"),
    "a quotient": PRICED.select("quantity / price_cents AS it"),
    "a function": PRICED.select("upper(order_id) AS it"),
    "a decimal": ORDERS.join_as_of(hr.table("t", "cents DECIMAL(9, 2)", retention="1d")),
    "a table": PRICES,
    "no name": PRICED.select("quantity * price_cents"),
}
KEYS = [b"product", "h\u00e9".encode(), b"\xff", None]
VALUES = [
    b"{}",
    b'{"order_id":"1","quantity":2,"size":3,"gift":true,"key":"k"}',
    b' {"quantity" : -2, "more": [1.5, {}], "order_id":"\\u00e9\xc3\xa9\xff", "gift":false} ',
    b'{"order_id":"\\"\\\\\\/\\b\\n\x7f","quantity":0, "size": null}',
    b'{"order_id":"\\ud83d\\ude00\\ud83d.","size":2147}',
    b'{"order_id":{"b": [1, "a"], "a": 1.50},"size":-5}',
]
TABLE_VALUES = [
    None,
    b"{}",
    b'{"price_cents":3,"the name":"x"}',
    b'{"price_cents":-1,"grade":7,"since":"long ago"}',
]


def _given(rows: list[tuple[bytes | None, bytes, bytes | None]]) -> list[tuple[Any, ...]]:
    return [("joined", place, 0, *row, None) for place, row in enumerate(rows)]


_RESULTS = (
    "verdict STRING, sequence BIGINT, timestamp_ms BIGINT, key BINARY, value BINARY,"
    " table_value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)


def _plain(job: QueryJob) -> PlainRows | None:
    return plain_rows(job.query, job.schemas, job.Row)


@pytest.mark.parametrize("query", PLAIN.values(), ids=PLAIN)
def test_tasks_make_the_rows_that_spark_makes(spark: SparkSession, query: Query) -> None:
    job = QueryJob(query)
    job.prepare(spark)
    assert job.leaves_bundled
    made = _plain(job)
    assert made is not None
    rows = [*product(KEYS, VALUES, TABLE_VALUES)]
    found = job.rows(spark.createDataFrame(_given(rows), _RESULTS)).orderBy("sequence").collect()
    places = [row["sequence"] for row in found]
    fields = made.rows_of(*_columns(rows))
    assert fields is not None
    assert np.flatnonzero(fields.is_valid()).tolist() == places
    left = fields.take(pa.array(places, pa.int64()))
    assert left.to_pylist() == [row[FIELDS].asDict() for row in found]
    assert json_of(left).to_pylist() == [bytes(row["value"]) for row in found]
    each = [made.row_of(*row) for row in rows]
    assert [place for place, row in enumerate(each) if row is not None] == places
    assert [row for row in each if row is not None] == json_of(left).to_pylist()


def test_avro_of_rows_is_what_spark_writes(spark: SparkSession) -> None:
    compared = 0
    for query in PLAIN.values():
        job = QueryJob(query)
        job.prepare(spark)
        made = _plain(job)
        assert made is not None
        if "the name" in made.names:
            continue  # Avro has no such name.
        rows = [*product(KEYS, VALUES, TABLE_VALUES)]
        encode = encoding(job.Row, avro_of("rows", job.Row), NUMBER)
        results = job.rows(spark.createDataFrame(_given(rows), _RESULTS))
        found = results.select("sequence", encode(results).alias("avro")).collect()
        expected = {row["sequence"]: bytes(row["avro"]) for row in found}
        making = replace(made, encode=partial(avro_of_rows, frame=frame_of(NUMBER)))
        values = making.rows_of(*_columns(rows))
        assert values is not None
        left = {place: one for place, one in enumerate(values.to_pylist()) if one is not None}
        assert left == expected
        each = [making.row_of(*row) for row in rows]
        assert each == values.to_pylist()
        compared += len(left)
    assert compared > 100


def test_conditions_hold_where_they_hold_in_spark(spark: SparkSession) -> None:
    rows = [*product(KEYS, VALUES, TABLE_VALUES)]
    counts = set()
    for condition in CONDITIONS:
        job = QueryJob(PRICED.filter(condition).select("key"))
        job.prepare(spark)
        made = _plain(job)
        assert made is not None, condition
        results = job.rows(spark.createDataFrame(_given(rows), _RESULTS))
        found = [row["sequence"] for row in results.select("sequence").collect()]
        fields = made.rows_of(*_columns(rows))
        assert fields is not None
        assert np.flatnonzero(fields.is_valid()).tolist() == sorted(found), condition
        counts.add(len(found))
    assert len(counts) > 8


def test_a_number_of_a_row_that_is_left_out_may_be_too_large(spark: SparkSession) -> None:
    job = QueryJob(PRICED.filter("quantity < 5").select("quantity * quantity AS it"))
    job.prepare(spark)
    made = _plain(job)
    assert made is not None
    values = [json.dumps({"quantity": n}).encode() for n in (LONG_MAX, 2, LONG_MAX, 3)]
    fields = made.rows_of(*_columns([(b"k", value, None) for value in values]))
    assert fields is not None
    assert fields.to_pylist() == [None, {"it": 4}, None, {"it": 9}]


def _columns(rows: list[tuple[bytes | None, bytes, bytes | None]]) -> tuple[Any, Any, Any]:
    keys, values, table_values = (list(column) for column in zip(*rows, strict=True))
    return objects(keys), objects(values), pa.array(table_values, pa.large_binary())


@pytest.mark.parametrize("query", _IN_JAVA.values(), ids=_IN_JAVA)
def test_other_queries_are_left_to_spark(spark: SparkSession, query: Query) -> None:
    job = QueryJob(query)
    job.prepare(spark)
    assert not job.leaves_bundled


def test_columns_of_pyspark_are_left_to_spark(spark: SparkSession) -> None:
    job = QueryJob(PRICED.select(F.col("order_id")))
    job.prepare(spark)
    assert not job.leaves_bundled


@pytest.mark.parametrize(
    ("setting", "value"), [("spark.sql.caseSensitive", "true"), ("spark.sql.ansi.enabled", "false")]
)
def test_a_setting_may_have_spark_compute(spark: SparkSession, setting: str, value: str) -> None:
    job = QueryJob(PLAIN["numbers"])
    job.prepare(spark)
    before = spark.conf.get(setting)
    assert before is not None
    spark.conf.set(setting, value)
    try:
        assert not job.leaves_bundled
    finally:
        spark.conf.set(setting, before)
    assert job.leaves_bundled


@pytest.mark.parametrize(
    ("expression", "order", "price"),
    [
        ("quantity * price_cents", {"quantity": LONG_MAX}, {"price_cents": 2}),
        ("quantity + price_cents", {"quantity": LONG_MAX}, {"price_cents": 1}),
        ("quantity - price_cents", {"quantity": -LONG_MAX}, {"price_cents": 2}),
        ("size * grade", {"size": INT_MAX}, {"grade": 2}),
        ("grade + 1", {}, {"grade": INT_MAX}),
        ("-2 - price_cents", {}, {"price_cents": LONG_MAX}),
        ("size - grade - size", {"size": INT_MAX}, {"grade": -1}),
    ],
)
def test_a_number_that_does_not_fit_ends_the_query_as_in_spark(
    spark: SparkSession, expression: str, order: dict[str, int], price: dict[str, int]
) -> None:
    job = QueryJob(PRICED.select(f"{expression} AS it"))
    job.prepare(spark)
    made = _plain(job)
    assert made is not None
    null = (b"k", json.dumps(order).encode(), None)
    assert made.row_of(*null) == b'{"it":null}'
    row = (b"k", json.dumps(order).encode(), json.dumps(price).encode())
    with pytest.raises(ArithmeticException) as raised:
        job.rows(spark.createDataFrame(_given([row]), _RESULTS)).collect()
    said = error_of(raised.value, "here:1")
    with pytest.raises(JobFailed, match=r"no answer for a row: what `\w+` makes does not fit"):
        made.rows_of(*_columns([null, row]))
    assert isinstance(said, JobFailed)


def test_a_text_of_two_gigabytes_makes_no_columns(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = QueryJob(PRICED.select("order_id"))
    job.prepare(spark)
    made = _plain(job)
    assert made is not None
    chunks = pa.chunked_array([pa.array(["a"]), pa.array(["b"])])
    name = "headrace.spark_jobs.queries.plain.columns_of_written"
    monkeypatch.setattr(name, lambda *_: [chunks])
    assert made.rows_of(*_columns([(b"k", b"{}", None)] * 2)) is None
