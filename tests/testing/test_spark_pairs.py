"""Two streams within a window, as `headrace.testing` runs them: pairs, and records alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.contracts.errors import JobInvalid
from headrace.contracts.record import Record
from headrace.testing import Event, check, check_any_cut, run
from tests.chance import FEWER
from tests.oracles.versioned import met_within
from tests.testing.test_spark_queries import ORDERS, RECORDS

PAYMENTS = hr.stream("payments.cleaned", "cents BIGINT")
PAID = """
    # topic           key  time  value                          -> leaves
    orders.cleaned    o    1m    {"order_id":"a","quantity":2}  ->
    orders.cleaned    o    2m    {"order_id":"b","quantity":0}  ->
    payments.cleaned  o    11m   {"cents":7}                    ->
    (crash)                                                     ->
    payments.cleaned  o    11m1ms  {"cents":8}                  ->
    payments.cleaned  o    9m    {"cents":9}                    ->
    (progress 12m)  -> o@9m={"order_id":"a","cents":9} o@11m={"order_id":"a","cents":7}
    orders.cleaned    o    10m   {"quantity":1}  -> late:o@10m={"order_id":null,"quantity":1}
    orders.cleaned    p    30m   {"order_id":"c","quantity":1}  ->
    payments.cleaned  p    41m   {"cents":1}                    ->
    (progress 41m)  -> p@30m={"order_id":"c","cents":null}
"""


def test_two_streams_meet_within_a_window() -> None:
    bought = ORDERS.filter("quantity > 0").join_within(PAYMENTS, within="10m", how="left")
    result = check(bought.select("order_id", "cents"), PAID)
    assert (len(result.late), result.held) == (1, 2)
    assert "join_within(payments.cleaned, 10m) by key, left; state: " in bought.explain()


PAYERS = hr.stream("payments.cleaned", "payer STRING, cents BIGINT")
BY_COLUMNS = """
    # topic           key  time  value                              -> leaves
    orders.cleaned    o1   1m    {"order_id":"a","quantity":2}      ->
    orders.cleaned    o2   2m    {"order_id":null,"quantity":3}     ->
    orders.cleaned    o3   3m    {"order_id":"b","quantity":0}      ->
    payments.cleaned  p1   5m    {"payer":"a","cents":7}            ->
    payments.cleaned  p2   6m    {"payer":null,"cents":8}           ->
    (crash)                                                         ->
    (progress 30m)  -> o1@5m={"key":"o1","quantity":2,"cents":7} o2@2m={"key":"o2","quantity":3,"cents":null} p2@6m={"key":"p2","quantity":null,"cents":8}
    orders.cleaned    o4   9m    {"order_id":"a","quantity":1}  -> late:o4@9m={"order_id":"a","quantity":1}
"""  # noqa: E501 (a table)


def test_streams_meet_by_columns_and_leave_with_their_own_keys() -> None:
    bought = ORDERS.filter("quantity > 0").join_within(
        PAYERS, within="10m", on=("order_id", "payer"), how="outer"
    )
    check(bought.select("key", "quantity", "cents"), BY_COLUMNS)
    assert "join_within(payments.cleaned, 10m) by order_id = payer, outer" in bought.explain()
    # By a key of one side, the column of the other is its text.
    by_key = ORDERS.join_within(PAYMENTS, within="10m", on="quantity").select("order_id", "cents")
    check(
        by_key,
        """
    # topic           key  time  value                          -> leaves
    orders.cleaned    o1   1m    {"order_id":"a","quantity":7}  ->
    payments.cleaned  7    2m    {"cents":1}                    ->
    payments.cleaned  o1   2m    {"cents":2}                    ->
    (progress 3m)  -> o1@2m={"order_id":"a","cents":1}
    """,
    )
    assert ORDERS.join_within(PAYMENTS, within=1, on=("Key", "key")) == ORDERS.join_within(
        PAYMENTS, within=1
    )


RAW_ORDERS = hr.stream("orders.raw", "order_id STRING")
GRACED = """
    # topic           key  time  value             -> leaves
    orders.raw        o    20m   {"order_id":"a"}  ->
    payments.cleaned  o    21m   {"cents":1}       ->
    payments.cleaned  o    90m   {"cents":9}       ->
    orders.raw        o    25m   {"order_id":"b"}  -> o@21m={"order_id":"a","cents":1}
    orders.raw        o    22m   {"order_id":"c"}  ->  three minutes behind the highest time
    orders.raw        o    18m   {"order_id":"d"}  -> late:o@18m={"order_id":"d"}
    orders.raw        o    60m   {"order_id":"e"}  -> o@22m={"order_id":"c","cents":1} o@25m={"order_id":"b","cents":1}
"""  # noqa: E501 (a table)


def test_a_record_waits_for_a_grace_where_no_sidecar_tells_progress() -> None:
    payments = hr.stream("payments.cleaned", "cents BIGINT", pipeline=None)
    graced = RAW_ORDERS.join_within(payments, within="5m", grace="3m")
    check(graced, GRACED)
    assert "each record until both inputs are 8m past its time" in graced.explain()


@pytest.mark.parametrize(
    ("left", "right", "said"),
    [
        ("order_id", "cents", None),
        ("quantity", "cents", None),
        ("quantity", "at", "`join_within` goes by `quantity`, a bigint and `at`, a timestamp, and"),
        ("order_id", "price", "by `order_id`, a string and `price`, a decimal(9,2), and rows meet"),
        ("order_id", "items", "`join_within` goes by `items`, a array<int>, and rows meet by text"),
    ],
)
def test_columns_whose_texts_differ_do_not_meet(left: str, right: str, said: str | None) -> None:
    payments = hr.stream(
        "payments.cleaned", "cents BIGINT, at TIMESTAMP, price DECIMAL(9, 2), items ARRAY<INT>"
    )
    met = ORDERS.join_within(payments, within="1m", on=(left, right))
    if said is None:
        assert run(met, []).rows == ()
        return
    with pytest.raises(JobInvalid) as refused:
        run(met, [])
    assert said in str(refused.value)


IDS = st.sampled_from(["a", "b", None])


@given(
    st.lists(st.tuples(st.booleans(), IDS, st.integers(0, 9)), max_size=20),
    st.sampled_from(["inner", "left", "outer"]),
)
def test_pairs_by_columns_are_those_of_the_oracle(
    drawn: list[tuple[bool, str | None, int]], how: Any
) -> None:
    now_ms = 0
    records: list[dict[str, object] | Event] = []
    sides: tuple[list[Record], list[Record]] = ([], [])
    for number, (is_payment, column, later_ms) in enumerate(drawn):
        now_ms += later_ms
        value = {"payer" if is_payment else "order_id": column}
        value["cents" if is_payment else "quantity"] = number  # type: ignore[assignment]
        topic = "payments.cleaned" if is_payment else "orders.cleaned"
        records.append({"topic": topic, "key": str(number), "value": value, "time": now_ms})
        meets_by = None if column is None else column.encode()
        sides[is_payment].append(
            Record(meets_by, str(number).encode(), now_ms, (), topic, 0, number)
        )
    met = ORDERS.join_within(PAYERS, within=5, on=("order_id", "payer"), how=how)
    result = run(met.select("quantity", "cents"), [*records, Event("progress", 60_000)])
    found = [(row.timestamp_ms, json.loads(row.value or b"")) for row in result.rows]
    wanted = [
        (time_ms, {"quantity": left and int(left), "cents": right and int(right)})
        for _, left, right, time_ms in met_within(*sides, 5, how)
    ]
    assert sorted(found, key=str) == sorted(wanted, key=str)
    firsts = {row["cents"] if row["quantity"] is None else row["quantity"] for _, row in found}
    assert {int(row.key or b"") for row in result.rows} == firsts


@FEWER
@given(RECORDS)
def test_no_cut_and_no_crash_changes_a_pair(drawn: list[tuple[str, str, int, int]]) -> None:
    now_ms = 0
    records: list[dict[str, object] | Event] = []
    for number, (topic, key, later_ms, partition) in enumerate(drawn):
        now_ms += later_ms
        value = {"order_id": str(number), "quantity": 1, "cents": number}
        place = {"partition": partition, "time": now_ms, "key": key, "value": value}
        records.append({**place, "topic": topic.replace("prices", "payments")})
    pairs = ORDERS.join_within(PAYMENTS, within=5, how="outer")
    check_any_cut(pairs, [*records, Event("progress", 60_000)], partitions=2, seeds=range(2))
