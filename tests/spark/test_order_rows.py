"""The row of an order and its price has the bytes that Spark would write."""

from __future__ import annotations

import json

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

from headrace.spark_jobs.jobs.orders_prices import row_of, rows_of
from headrace.spark_jobs.jobs.rows import rows_in_columns, rows_with
from headrace.spark_jobs.versioned.records import objects
from headrace.spark_jobs.write.row_json import json_of

ORDER, PRICE = "order_id STRING, quantity BIGINT", "price_cents BIGINT"
LARGEST = (1 << 63) - 1
Given = tuple[bytes | None, bytes, bytes | None]
_ORDERS = [
    b'{"order_id":"1","quantity":2}',
    b' {"quantity" : -2, "more": [1.5, {}], "order_id":"\\u00e9\xc3\xa9\xff"} ',
    b'{"order_id":"\\"\\\\\\/\\b\\f\\n\\r\\t\x7f","quantity":0}',
    b'{"order_id":"\\ud83d\\ude00\\ud83d.","quantity":1}',
    b'{"order_id":7,"quantity":9223372036854775807}',
    b'{"order_id":true,"quantity":-9223372036854775808}',
    b'{"order_id":1.0,"quantity":3}',
    b'{"order_id":[1,"a"],"quantity":3}',
]
_PRICES = [
    None,
    b'{"price_cents":3}',
    b'{"price_cents":-1,"since":"long ago"}',
    b'{"price_cents":9223372036854775807}',
]
_KEYS = [b"product", "h\u00e9".encode(), b"\xff", None]


def test_a_row_is_as_spark_writes_it(spark: SparkSession) -> None:
    given = [(key, order, price) for key in _KEYS for order in _ORDERS for price in _PRICES]
    frame = spark.createDataFrame(given, "key BINARY, value BINARY, table_value BINARY")
    order = F.from_json(F.col("value").cast("string"), ORDER)
    price = F.from_json(F.col("table_value").cast("string"), PRICE)["price_cents"]
    row = F.struct(
        F.col("key").cast("string").alias("product"),
        order["order_id"].alias("order_id"),
        order["quantity"].alias("quantity"),
        price.alias("price_cents"),
        F.try_multiply(order["quantity"], price).alias("total_cents"),
    )
    written = F.to_json(row, {"ignoreNullFields": "false"})
    wanted = [one["row"].encode() for one in frame.select(written.alias("row")).collect()]
    assert [row_of(*one) for one in given] == wanted
    rows_there = 0
    for size in (1, 7, len(given)):
        for first in range(0, len(given), size):
            made = _rows_of(given[first : first + size])
            if made is not None:
                assert json_of(made).to_pylist() == wanted[first : first + size]
                rows_there += len(made)
    assert rows_there > len(given) / 2


def _rows_of(given: list[Given]) -> pa.StructArray | None:
    keys, values, prices = zip(*given, strict=True)
    table_values = pa.array(prices, pa.large_binary())
    return rows_of(objects(list(keys)), objects(list(values)), table_values)


def test_a_cold_history_sets_the_rows_that_it_answers(spark: SparkSession) -> None:
    order, price = _ORDERS[0], _PRICES[1]
    given = [
        (b"k", order, price, True),
        (b"k", order, None, True),
        (b"k", b"?", None, False),
        (None, None, None, False),
    ]
    frame = spark.createDataFrame(
        given, "key BINARY, value BINARY, table_value BINARY, thaws BOOLEAN"
    )
    rows = rows_with(row_of)(frame, F.col("thaws")).collect()
    assert rows.pop()["value"] is None
    met, unmet, other = (bytes(one["value"]) for one in rows)
    whole = {"product": "k", "order_id": "1", "quantity": 2, "price_cents": 3, "total_cents": 6}
    assert json.loads(met) == whole
    assert json.loads(unmet) == {**whole, "price_cents": None, "total_cents": None}
    assert other == b"?"


def test_a_total_beyond_64_bits_is_null() -> None:
    order = json.dumps({"order_id": "1", "quantity": LARGEST}).encode()
    for price_cents, total_cents in ((1, LARGEST), (2, None), (-2, None), (-1, -LARGEST)):
        price = json.dumps({"price_cents": price_cents}).encode()
        assert json.loads(row_of(b"k", order, price))["total_cents"] == total_cents
        made = _rows_of([(b"k", order, price)])
        assert (made is None) == (total_cents is None)


def test_a_column_beyond_two_gigabytes_makes_no_rows() -> None:
    one = pa.array(["a"])
    assert rows_in_columns(["it"], [pa.chunked_array([one, one])]) is None
