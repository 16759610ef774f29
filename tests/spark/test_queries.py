"""Queries by columns through real queries of Spark, over rows in files."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.errors import ParseException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)
from pyspark.sql.types import StructType

import headrace as hr
from headrace.contracts.errors import JobInvalid, SchemaRefused
from headrace.spark_jobs.jobs.cold import SCHEMA as COLD_SCHEMA
from headrace.spark_jobs.queries.compiled import QueryJob
from headrace.spark_jobs.queries.described import Query
from headrace.spark_jobs.shapes import COLD, DEAD, FIELDS, JOINED
from headrace.spark_jobs.write.output import columns
from tests.queries.test_known_before import RIGHT, WRONG
from tests.spark.queried import Ran, run_in_spark, said

HOUR_MS = 3_600_000
FAR_MS = 10 * HOUR_MS


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> Callable[..., Ran]:
    """Run a query over rows; its inputs are numbered as it names its sources."""
    return partial(run_in_spark, spark, tmp_path)


PRICES = hr.table("prices.cleaned", "price_cents BIGINT", retention="30d")
ORDERS = hr.stream("orders.cleaned", "order_id STRING, quantity BIGINT")
PAYMENTS = hr.stream("payments.cleaned", "cents BIGINT")
PAID = ORDERS.join_within(PAYMENTS, within="10m")
END = ("end", FAR_MS, {"order_id": "end", "quantity": 0})
PRICES_SAID = (
    ("p1", 100, {"price_cents": 7}),
    ("p1", 300, {"price_cents": 9}),
    ("p2", 100, {"price_cents": "dear"}),
    ("end", FAR_MS, {"price_cents": 0}),
)


@pytest.mark.long("spark", why="test_query_answers.py joins as of a time")
def test_orders_meet_the_price_of_their_own_time(
    spark: SparkSession, run: Callable[..., Ran]
) -> None:
    assert spark is not None
    priced = (
        ORDERS.filter("order_id <> 'end'")
        .join_as_of(PRICES, how="left")
        .select(
            "key",
            "order_id",
            (F.col("quantity") * F.col("price_cents")).alias("total_cents"),
            # No row has no quantity, but one that is left out, and the counts of a task.
            "100 div coalesce(quantity, 0) AS share",
        )
    )
    orders = said(
        1,
        ("p1", 200, {"order_id": "a", "quantity": 2}),
        ("p1", 300, {"order_id": "b", "quantity": 2}),
        ("p1", 50, {"order_id": "c", "quantity": 2}),
        ("p2", 200, {"order_id": "d", "quantity": 1}),
        ("p2", 200, "{no JSON"),
        END,
    )
    ran = run(priced, [*said(0, *PRICES_SAID), *orders])
    assert ran.of(JOINED) == [
        ("p1", {"key": "p1", "order_id": "a", "total_cents": 14, "share": 50}),
        ("p1", {"key": "p1", "order_id": "b", "total_cents": 18, "share": 50}),
        ("p1", {"key": "p1", "order_id": "c", "total_cents": None, "share": 50}),
        ("p2", {"key": "p2", "order_id": "d", "total_cents": None, "share": 100}),
    ]
    assert ran.of(DEAD) == [("p2", "{no JSON"), ("p2", {"price_cents": "dear"})]
    assert all(row["headers"][0]["key"] == "h" for row in ran.records)


def test_a_payment_looks_up_by_its_currency_and_leaves_with_its_own_key(
    run: Callable[..., Ran],
) -> None:
    rates = hr.table("rates", "rate DECIMAL(38, 18), key STRING", retention="30d")
    payments = hr.stream("payments", "currency STRING, amount DECIMAL(20, 2), time TIMESTAMP")
    euros = payments.filter("amount <> 13").join_as_of(
        rates.filter("rate > 0").select("rate", "value_key AS note", "time AS since"),
        on="currency",
        how="left",
    )
    rows = [
        *said(
            0,
            ("usd", 100, '{"rate": 0.920000000000000001, "key": "x"}'),
            ("usd", 200, '{"rate": -1}'),
            ("end", FAR_MS, '{"rate": 1}'),
        ),
        *said(
            1,
            (
                "a",
                150,
                '{"currency": "usd", "amount": 10.10, "time": "2020-01-01T01:02:03.123456+01:00"}',
            ),
            ("b", 250, '{"currency": "usd", "amount": 1}'),
            ("c", 150, '{"currency": null, "amount": 2}'),
            ("d", 150, '{"currency": "usd", "amount": 13}'),
            ("e", 150, '{"currency": "usd", "amount": NaN}'),
            ("end", FAR_MS, '{"currency": "end", "amount": 13}'),
        ),
    ]
    ran = run(euros, rows)
    empty = {"rate": None, "note": None, "since": None, "value_time": None}
    assert ran.of(JOINED) == [
        (
            "a",
            {
                "currency": "usd",
                "amount": 10.10,
                "value_time": "2020-01-01T00:02:03.123456Z",
                "rate": 0.920000000000000001,
                "note": "x",
                "since": "1970-01-01T00:00:00.100000Z",
            },
        ),
        ("b", {"currency": "usd", "amount": 1.00, **empty}),
        ("c", {"currency": None, "amount": 2.00, **empty}),
    ]
    raw = next(bytes(row["value"]) for row in ran.records if row["key"] == b"a")
    assert b'"amount":10.10' in raw
    assert b'"rate":0.920000000000000001' in raw
    assert [key for key, _ in ran.of(DEAD)] == ["e"]
    assert {
        header["key"]
        for row in ran.records
        if row["verdict"] == JOINED
        for header in row["headers"]
    } == {"h"}


CUSTOMERS = hr.table("customers", "name STRING, segment STRING", pipeline=None)
BOUGHT = hr.table("bought", "customer STRING, cents BIGINT, price DECIMAL(10, 2)", pipeline=None)
WHO = BOUGHT.join_on(CUSTOMERS, "customer")
DOUBLES = BOUGHT.select("CAST(cents AS DOUBLE) AS d", "customer")


@pytest.mark.long("spark", why="test_query_answers.py folds such a join")
def test_tables_meet_and_are_folded_exactly(run: Callable[..., Ran]) -> None:
    folded = (
        BOUGHT.filter("cents <> 13")
        .join_on(CUSTOMERS, "customer")
        .group_by("segment")
        .agg(
            hr.count(),
            hr.sum("cents"),
            hr.avg("cents"),
            hr.min("name"),
            hr.max("cents"),
            paid=hr.sum("price"),
            mean=hr.avg("price"),
        )
        .filter("count < 3")
        .select("key", "*", "sum_cents IS NULL AS too_much")
    )
    big = (1 << 63) - 1
    customers = said(
        1,
        ("c1", 1, {"name": "Ann", "segment": "x"}),
        ("c2", 2, {"name": "Bob", "segment": "y"}),
        ("c3", 2, {"name": "Cy", "segment": None}),
    )
    bought = said(
        0,
        ("o1", 3, '{"customer": "c1", "cents": 5, "price": 0.10}'),
        ("o2", 4, '{"customer": "c1", "cents": 6, "price": 0.20}'),
        ("o2", 5, '{"customer": "c2", "cents": 6, "price": 0.20}'),
        ("o3", 6, f'{{"customer": "c2", "cents": {big}, "price": null}}'),
        ("o4", 7, '{"customer": "c1", "cents": 13, "price": 1}'),
        ("o5", 8, '{"customer": "c3", "cents": 1, "price": 1}'),
        ("o6", 9, '{"customer": "c4", "cents": 1, "price": 1}'),
    )
    last = run(folded, [*bought, *customers]).last()
    assert last["x"] == {
        "key": "x", "segment": "x", "count": 1, "sum_cents": 5, "avg_cents": 5.0, "min_name": "Ann",
        "max_cents": 5, "paid": 0.10, "mean": 0.10, "too_much": False,
    }  # fmt: skip
    assert last["y"] == {
        "key": "y", "segment": "y", "count": 2, "sum_cents": None, "min_name": "Bob",
        "avg_cents": float(big + 6) / 2, "max_cents": big, "paid": 0.20, "mean": 0.20,
        "too_much": True,
    }  # fmt: skip
    assert last.keys() == {"x", "y"}


AT = "2020-01-01T00:00:00.000001Z"


@pytest.mark.long("spark", why="test_shipped_jobs.py joins two tables by key")
def test_tables_meet_by_key_and_are_told_by_column(run: Callable[..., Ran]) -> None:
    kinds = "note STRING, at TIMESTAMP, ratio DOUBLE, cents DECIMAL(9, 2), tags ARRAY<STRING>"
    notes = hr.table("notes", kinds, pipeline=None)
    both = CUSTOMERS.select("upper(name) AS name").join(notes, how="outer")
    both = both.filter("note IS DISTINCT FROM 'no'")
    rows = [
        *said(0, ("c1", 1, {"name": "Ann"}), ("c2", 2, {"name": "Bob"}), ("c1", 9, None)),
        *said(
            1,
            ("c1", 5, {"note": "no"}),
            ("c2", 6, {"note": "é", "at": AT, "ratio": 0.1, "cents": 1.5}),
            ("c3", 6, {"note": "z", "ratio": 1e300, "tags": ["a", None]}),
            ("c4", 7, '{"ratio": -1e400}'),
            ("c4", 8, ""),
            ("c4", 9, '{"ratio": 1} and more'),
        ),
    ]
    ran = run(both, rows, makes_tables=True)
    assert ran.last() == {
        "c1": None,
        "c2": {
            "name": "BOB",
            "note": "é",
            "at": AT,
            "ratio": 0.1,
            "cents": 1.5,
            "tags": None,
        },
        "c3": {
            "name": None,
            "note": "z",
            "at": None,
            "ratio": 1e300,
            "cents": None,
            "tags": ["a", None],
        },
        "c4": {
            "name": None,
            "note": None,
            "at": None,
            "ratio": "-Infinity",
            "cents": None,
            "tags": None,
        },
    }
    assert ran.of(DEAD) == [("c4", ""), ("c4", '{"ratio": 1} and more')]
    assert len(ran.table) > 3
    assert ran.table == ran.parsed
    (row,) = [one for one in ran.table if one["note"] == "é"]
    assert (row["key"], row["at"].microsecond, row["deleted"]) == ("c2", 1, False)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (lambda: PRICES.select("price"), "names a column `price`"),
        (lambda: ORDERS.join_as_of(CUSTOMERS), "remembers only its latest rows"),
        (lambda: ORDERS.join_as_of(PRICES, on="none"), "`none`"),
        (lambda: ORDERS.join_as_of(PRICES).join_as_of(PRICES), "write it to a topic"),
        (lambda: ORDERS.join_as_of(PRICES, corrections=True).filter("true"), "before the join"),
        (lambda: ORDERS.join_as_of(PRICES).group_by("key"), "name one window"),
        (lambda: ORDERS.group_by("key"), "name one window of time beside the columns"),
        (lambda: ORDERS.group_by("key", hr.window("1h"), hr.window("2h")), "name one window"),
        (lambda: ORDERS.group_by(hr.window("1h")), "names no column beside its window"),
        (lambda: ORDERS.group_by("none", hr.window("1h")), "names a column `none`"),
        (lambda: hr.window("0s"), "a `window` has no size"),
        (
            lambda: ORDERS.join_as_of(PRICES, grace="1m").group_by("key", hr.window("1h")),
            "with `grace` cannot be grouped by window",
        ),
        (
            lambda: ORDERS.join_as_of(PRICES, corrections=True).group_by("key", hr.window("1h")),
            "with `corrections` cannot be grouped by window",
        ),
        (
            lambda: ORDERS.group_by("key", hr.window("1h")).agg(window_end=hr.count()),
            "two columns `window_end`",
        ),
        (
            lambda: ORDERS.group_by("key", hr.window("1h")).agg(hr.count()).group_by("count"),
            "cannot be grouped once more",
        ),
        (lambda: ORDERS.join_within(cast("Any", PRICES), within="10m"), "takes another stream"),
        (lambda: ORDERS.join_within(ORDERS, within="10m"), "both have a column `order_id`"),
        (lambda: PAID.join_within(ORDERS, within="10m"), "cannot be joined once more"),
        (lambda: PAID.join_as_of(PRICES), "cannot be joined once more"),
        (lambda: PAID.group_by("key"), "name one window"),
        (lambda: ORDERS.join_within(PAYMENTS, within="soon"), "`within` of `join_within`"),
        (lambda: ORDERS.join_within(PAYMENTS, within=9, how=cast("Any", "x")), "left or outer"),
        (lambda: ORDERS.join_within(PAYMENTS, within=9, on="cents"), "names a column `cents`"),
        (lambda: ORDERS.join_within(PAYMENTS, within=9, on=("key", "id")), "names a column `id`"),
        (
            lambda: ORDERS.join_within(PAYMENTS, within=9, on=cast("Any", ("key", "cents", "x"))),
            "write a column of this stream that has the other's key, or a column of each",
        ),
        (
            lambda: ORDERS.join_within(PAYMENTS, within=9, grace="1m"),
            "leave `grace` out, or read a stream with `pipeline=None`",
        ),
        (lambda: ORDERS.select("quantity AS key"), "the record's own key"),
        (lambda: ORDERS.select("quantity", "order_id AS Quantity"), "two columns `quantity`"),
        (lambda: ORDERS.join_as_of(BOUGHT.join(CUSTOMERS)), "only a table that is read"),
        (lambda: CUSTOMERS.join(CUSTOMERS), "both have a column `name`"),
        (lambda: WHO.select("name").group_by("name"), "stands between"),
        (lambda: BOUGHT.group_by("customer").agg(hr.sum("none")), "`none`"),
        (lambda: hr.stream("x", ""), "no columns"),
        (lambda: ORDERS.select(F.lit), "takes names"),
        (lambda: hr.table("x", "a INT", retention="soon"), "`retention` of the table `x`"),
    ],
)  # fmt: skip
def test_a_step_that_cannot_work_is_refused_where_it_is_written(
    query: Callable[[], object], said: str
) -> None:
    with pytest.raises(JobInvalid, match=said):
        query()


@pytest.mark.parametrize(
    ("query", "error", "said"),
    [
        (ORDERS.join_as_of(PRICES).select("no_function(quantity) AS x"), JobInvalid, "`select"),
        (ORDERS.join_as_of(PRICES).filter("rand() > 0.5"), JobInvalid, "leave out what is random"),
        (ORDERS.join_as_of(PRICES).select("sum(quantity) AS s"), JobInvalid, "`select"),
        (DOUBLES.group_by("customer").agg(hr.sum("d")), JobInvalid, "exactly"),
        (hr.table("x", "a DECIMAL(99, 2)"), SchemaRefused, "`x`"),
    ],
)  # fmt: skip
def test_mistakes_that_only_spark_can_tell_are_refused_before_the_first_read(
    spark: SparkSession, query: Query, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        QueryJob(query).prepare(spark)


def test_rows_that_a_cold_history_answers_have_their_columns_as_well(spark: SparkSession) -> None:
    query = ORDERS.join_as_of(PRICES, history="cold")
    job = QueryJob(query.select("order_id", "quantity * price_cents AS cents"))
    job.prepare(spark)
    order, price = b'{"order_id":"o%d","quantity":2}', b'{"price_cents":%d}'
    results = spark.createDataFrame(
        [(JOINED, order % 1, price % 7, 1), (COLD, order % 2, None, 2)],
        "verdict STRING, value BINARY, table_value BINARY, sequence BIGINT",
    ).withColumns(
        {
            "key": F.lit(b"p"),
            "timestamp_ms": F.lit(5),
            "task": F.lit(0),
            "headers": F.array().cast("array<struct<key:string,value:binary>>"),
        }
    )
    is_cold = F.col("verdict") == COLD
    met = F.when(is_cold, F.lit(price % 9)).otherwise(F.col("table_value"))
    thawed = job.rows(results).withColumns(
        {"thaws": is_cold, "table_value": met, "verdict": F.lit(JOINED)}
    )
    answered = job.rows(thawed, F.col("thaws")).orderBy("sequence")
    rows = columns(answered, job.Row).collect()
    assert [(row["order_id"], row["cents"]) for row in rows] == [("o1", 14), ("o2", 18)]
    assert rows == columns(answered.drop(FIELDS), job.Row).collect()


def test_a_cold_history_gives_the_rows_of_the_tables_steps(spark: SparkSession) -> None:
    table = PRICES.filter("price_cents > 5").select("price_cents * 2 AS twice")
    history = QueryJob(ORDERS.join_as_of(table, history="cold")).fall_back(None)
    assert history is not None
    assert history.as_kept is not None
    values = [b'{"price_cents":9}', b'{"price_cents":5}', None]
    kept = [(b"p", value, time, "t", 0, time) for time, value in enumerate(values)]
    versions = history.as_kept(spark.createDataFrame(kept, COLD_SCHEMA)).orderBy("offset")
    found = [(row["timestamp_ms"], row["value"]) for row in versions.collect()]
    assert found == [(0, b'{"twice":18}'), (1, None), (2, None)]
    plain = QueryJob(ORDERS.join_as_of(PRICES, history="cold")).fall_back(None)
    assert plain is not None
    assert plain.as_kept is None


@pytest.mark.usefixtures("spark")
def test_spark_reads_the_schemas_that_are_right_and_no_others() -> None:
    for ddl in RIGHT:
        StructType.fromDDL(ddl)
    for ddl, _ in WRONG:
        with pytest.raises(ParseException):
            StructType.fromDDL(ddl)


def test_a_description_is_a_value_that_says_what_it_does() -> None:
    query = ORDERS.filter("quantity > 0").join_as_of(PRICES, on="order_id", grace="10s")
    assert query == ORDERS.filter("quantity > 0").join_as_of(PRICES, on="order_id", grace=10_000)
    assert query.columns == ("order_id", "quantity", "price_cents")
    table, stream, filtered, joined = query.explain().splitlines()
    assert table.endswith("price_cents BIGINT; state: the versions of the last 30d")
    assert stream.startswith("stream orders.cleaned, written by `orders`: order_id STRING")
    assert filtered == "orders.cleaned: filter(quantity > 0)"
    assert joined.endswith("a record waits for 10s of the stream's own time")
