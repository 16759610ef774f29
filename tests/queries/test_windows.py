"""Windows of streams in a query: they leave when they are over, whatever cuts the micro-batches."""

from __future__ import annotations

import json
from typing import Any

import pytest

import headrace as hr
from headrace.contracts.errors import JobInvalid
from headrace.spark_jobs.queries.described import Query
from headrace.testing import QueryResult, run

RATES = hr.table("rates", "euro_cents BIGINT", retention="30d", pipeline="rates")
PAYMENTS = hr.stream(
    "payments", "account STRING, currency STRING, amount BIGINT", pipeline="payments"
)
EUROS = (
    PAYMENTS.join_as_of(RATES, on="currency", how="left")
    .select("account", "amount * euro_cents AS cents")
    .group_by("account", hr.window("10s"))
    .agg(hr.sum("cents"), payments=hr.count())
)
IN_SQL = hr.sql(
    """
    SELECT account, window_start, window_end, sum(amount * euro_cents) AS sum_cents,
        count(*) AS payments
    FROM payments p LEFT JOIN rates FOR SYSTEM_TIME AS OF p.time AS r ON p.currency = r.key
    GROUP BY p.account, window(p.time, INTERVAL 10 SECONDS)
    """,
    payments=PAYMENTS,
    rates=RATES,
)
ROWS = """
| topic | key | value | time |
|---|---|---|---|
| rates | usd | {"euro_cents": 2} | 0s |
| payments | p1 | {"account": "bob", "currency": "usd", "amount": 5} | 1s |
| payments | p2 | {"account": "ann", "currency": "usd", "amount": 1} | 9s |
| rates | usd | {"euro_cents": 3} | 9900ms |
| payments | p3 | {"account": "ann", "currency": "usd", "amount": 1} | 9950ms |
| payments | p4 | {"account": "ann", "currency": "yen", "amount": 1} | 10s |
| payments | p5 | {"account": null, "currency": "usd", "amount": 1} | 11s |
| rates | usd | {"euro_cents": 3} | 25s |
| payments | p6 | {"account": "bob", "currency": "usd", "amount": 1} | 26s |
"""


def run_any_cut(query: Query, rows: str) -> QueryResult:
    """Run rows one by one; in random micro-batches, with crashes, they give the same."""
    result = run(query, rows)
    for seed in range(8):
        other = run(query, rows, seed=seed)
        assert other.rows == result.rows
    return result


def leaves(result: QueryResult, *names: str) -> list[tuple[Any, ...]]:
    """The key, the time and some columns of each row, in their order."""
    found = [(row, json.loads(row.value or b"")) for row in result.rows]
    return [
        ((row.key or b"").decode(), row.timestamp_ms, *(value[name] for name in names))
        for row, value in found
    ]


@pytest.mark.parametrize("query", [EUROS, IN_SQL])
def test_a_window_leaves_when_both_inputs_have_passed_its_end(query: Query) -> None:
    result = run_any_cut(query, ROWS)
    assert leaves(result, "sum_cents", "payments") == [
        ("ann", 9_999, 5, 2),
        ("bob", 9_999, 10, 1),
        ("ann", 19_999, None, 1),
    ]
    assert json.loads(result.rows[0].value or b"")["window_end"] == "1970-01-01T00:00:10.000000Z"
    # The last one waits in the join for its rate.
    assert result.held == 1


def test_a_window_may_stand_before_the_columns_of_a_group_by() -> None:
    query = "SELECT account, count(*) AS n FROM payments p GROUP BY @"
    first = hr.sql(query.replace("@", "window(time, '1 hour'), account"), payments=PAYMENTS)
    last = hr.sql(query.replace("@", "account, window(time, '1 hour')"), payments=PAYMENTS)
    assert first == last


@pytest.mark.parametrize("given", ["count", hr.count])
def test_an_agg_of_no_aggregate_is_a_sentence(given: Any) -> None:
    for groups in (PAYMENTS.group_by("account", hr.window("1h")), RATES.group_by("key")):
        with pytest.raises(JobInvalid, match=r"folds by .*; write an aggregate, such as `hr\.sum"):
            groups.agg(given)
        with pytest.raises(JobInvalid, match=r"folds by .*; write an aggregate, such as `hr\.sum"):
            groups.agg(n=given)


def test_a_record_waits_in_its_window() -> None:
    result = run(EUROS, ROWS.partition('| rates | usd | {"euro_cents": 3} | 25s |')[0])
    assert len(result.rows) == 0
    assert result.held > 0


def test_a_stream_is_grouped_as_it_is_read_and_says_which_records_are_late() -> None:
    query = (
        PAYMENTS.filter("amount > 0")
        .select("account", "amount * 2 AS twice")
        .group_by("account", "key", hr.window("10s"))
        .agg(hr.sum("twice"))
        .select("key", "sum_twice", "account")
    )
    result = run(
        query,
        """
        | topic | key | value | time |
        |---|---|---|---|
        | payments | p1 | {"account": "bob", "amount": 5} | 1s |
        | payments | p2 | {"account": "bob", "amount": 0} | 2s |
        | payments | p1 | {"account": "bob", "amount": 6} | 9s |
        | payments | p1 | {"account": "bob", "amount": 7} | 12s |
        | payments | p9 | {"account": "ann", "amount": 1} | 3s |
        | payments | p1 | {"account": "bob", "amount": 7} | 20s |
        """,
    )
    assert leaves(result, "sum_twice") == [
        ('["bob","p1"]', 9_999, 22),
        ('["bob","p1"]', 19_999, 14),
    ]
    (late,) = result.late
    assert (late.key, late.timestamp_ms) == (b"p9", 3_000)
    assert json.loads(late.value or b"")["twice"] == 2


@pytest.mark.parametrize(
    ("how", "times_ms"), [("inner", [9_999]), ("outer", [9_999, 9_999, 19_999])]
)
def test_a_window_behind_two_streams_waits_for_records_alone(how: Any, times_ms: list[int]) -> None:
    orders = hr.stream("orders", "shop STRING", pipeline="orders")
    paid = hr.stream("paid", "cents BIGINT", pipeline="paid")
    query = (
        orders.join_within(paid, within="4s", how=how)
        .select("coalesce(shop, '?') AS shop", "cents")
        .group_by("shop", hr.window("10s"))
        .agg(hr.sum("cents"), hr.count())
    )
    result = run_any_cut(
        query,
        """
        | topic | key | value | time |
        |---|---|---|---|
        | orders | o1 | {"shop": "a"} | 5s |
        | paid | o1 | {"cents": 5} | 6s |
        | orders | o2 | {"shop": "a"} | 9s |
        | paid | o3 | {"cents": 7} | 9s |
        | orders | o4 | {"shop": "b"} | 12s |
        | orders | o5 | {"shop": "b"} | 40s |
        | paid | o6 | {"cents": 7} | 40s |
        """,
    )
    assert [row.timestamp_ms for row in result.rows] == times_ms
    passed = "have passed" if how == "inner" else "are 4s past"
    assert query.explain().endswith(f"until both inputs {passed} the window's end")


def test_a_late_record_behind_a_join_is_told_once_as_it_came() -> None:
    late = '| payments | p9 | {"account": "ann", "currency": "usd", "amount": 1} | @ |'
    result = run(EUROS, ROWS + late.replace("@", "3s") + "\n" + late.replace("@", "24s"))
    assert [(one.key, one.timestamp_ms) for one in result.late] == [(b"p9", 3_000), (b"p9", 24_000)]
    assert json.loads(result.late[0].value or b"")["amount"] == 1
    # Its row is in its window, if that has not left.
    rows = ROWS + late.replace("@", "24s") + "\n(progress 30s)"
    found = leaves(run(EUROS, rows), "payments")
    assert found[-2:] == [("ann", 29_999, 1), ("bob", 29_999, 1)]


def test_a_late_record_that_can_meet_nothing_is_told_too() -> None:
    late = '| payments | p9 | {"account": "ann", "currency": null, "amount": 1} | 3s |\n'
    result = run(EUROS, ROWS + late)
    assert [(one.key, one.timestamp_ms) for one in result.late] == [(b"p9", 3_000)]
    joined = PAYMENTS.join_as_of(RATES, on="currency", how="left")
    result = run(joined, ROWS + late)
    assert [(one.key, one.timestamp_ms) for one in result.late] == [(b"p9", 3_000)]
    assert (b"p9", 3_000) in [(row.key, row.timestamp_ms) for row in result.rows]


def test_keys_and_times_are_folded_as_columns_are() -> None:
    in_sql = hr.sql(
        "SELECT account, count(key) AS keys, max(p.time) AS last FROM payments p"
        " GROUP BY account, window(time, '10 seconds')",
        payments=PAYMENTS,
    )
    grouped = PAYMENTS.group_by("account", hr.window("10s"))
    query = grouped.agg(hr.count("key"), hr.max("Time").alias("max_time"))
    for each, names in ((in_sql, ("keys", "last")), (query, ("count_key", "max_time"))):
        result = run(
            each,
            """
            | topic | key | value | time |
            |---|---|---|---|
            | payments | p1 | {"account": "bob"} | 1s |
            | payments | p2 | {"account": "bob"} | 9s |
            | payments | p3 | {"account": "bob"} | 10s |
            """,
        )
        assert leaves(result, *names) == [("bob", 9_999, 2, "1970-01-01T00:00:09.000000Z")]


def test_keys_that_are_no_text_are_not_added_up_together() -> None:
    query = PAYMENTS.group_by("key", hr.window("10s")).agg(hr.sum("amount"))
    keys = ("é".encode(), b"\x00\x80", b"\x00\x81", b"end")
    records = [
        {"key": key, "value": {"amount": 1}, "time": 10_000 * (key == b"end")} for key in keys
    ]
    assert leaves(run(query, records), "sum_amount") == [("é", 9_999, 1)]


@pytest.mark.parametrize(
    "query",
    [
        PAYMENTS.group_by("account", hr.window("10s")).agg(hr.count("headers")),
        hr.table("rates", "euro_cents BIGINT").group_by("euro_cents").agg(hr.count("time")),
    ],
)
def test_a_column_that_cannot_be_counted_is_a_sentence(query: Query) -> None:
    with pytest.raises(JobInvalid, match=r"names a column `(headers|time)`, and there are `"):
        run(query, "# key time value\n")


def test_it_says_what_it_keeps_and_until_when() -> None:
    said = EUROS.explain().splitlines()[-1]
    assert said.startswith("group_by(account, window(10s)).agg(sum(cents) AS sum_cents, count(*)")
    assert said.endswith("state: a row a group, until both inputs have passed the window's end")
