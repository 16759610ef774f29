"""A query runs over a table of records as Spark runs it, or says what only Spark answers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel

import headrace as hr
from headrace.contracts.errors import HeadraceError, JobInvalid, ScenarioInvalid, SparkNeeded
from headrace.spark_jobs.queries.described import Query
from headrace.testing import Event, check, check_any_cut, load_query, run, shown
from headrace.testing.queries.job import Job
from tests.chance import FEWER

PRICES = hr.table("prices.cleaned", "price_cents BIGINT", retention="30d")
ORDERS = hr.stream("orders.cleaned", "order_id STRING, quantity BIGINT")
PRICED = ORDERS.join_as_of(PRICES, how="left").select(
    "key", "order_id", "quantity * price_cents AS total_cents"
)
CUSTOMERS = hr.table("customers", "name STRING, segment STRING", pipeline=None)
BOUGHT = hr.table("bought", "customer STRING, cents BIGINT", pipeline=None)
SEGMENTS = BOUGHT.join_on(CUSTOMERS, "customer").group_by("segment").agg(hr.sum("cents"))
TABLE = """
    # topic         key  time  value                          -> leaves
    prices.cleaned  p    1s    {"price_cents":5}              ->
    orders.cleaned  p    2s    {"order_id":"a","quantity":2}  ->  no price after it is known
    prices.cleaned  p    3s    {"price_cents":9}              ->  orders are at 2s
    (crash)                                                   ->
    orders.cleaned  p    4s    {"order_id":"b","quantity":2}  -> p@2s={"key":"p","order_id":"a","total_cents":10}
    (progress 5s)                       -> p@4s={"key":"p","order_id":"b","total_cents":18}
    (duplicate 2)                                             ->
    orders.cleaned  p    1s    {"order_id":"c","quantity":1}  -> p@1s={"key":"p","order_id":"c","total_cents":5} late:p@1s={"order_id":"c","quantity":1}
    orders.cleaned  p    9s    {"order_id":7.5                -> dead:p@9s={"order_id":7.5
    orders.cleaned  q    9s    {"order_id":"d","quantity":1}  ->
    (wait 9s)                                                 ->
    (wait 1s)                      -> q@9s={"key":"q","order_id":"d","total_cents":null}
"""  # noqa: E501 (a table)


def test_a_table_of_records_and_events_is_checked() -> None:
    result = check(PRICED, TABLE)
    assert shown(result.late) == ['p@1s={"order_id":"c","quantity":1}']
    assert [letter.detail for letter in result.dead] == [
        "the value cannot be read as the schema says"
    ]
    assert (result.dead[0].record.topic, result.dead[0].record.offset) == ("orders.cleaned", 3)
    assert result.held == 0
    assert result.latest["p"] == {"key": "p", "order_id": "c", "total_cents": 5}
    with pytest.raises(AssertionError, match=r"expected  p@2s=[^\n]*11}\n    left      p@2s="):
        check(PRICED, TABLE.replace('"total_cents":10', '"total_cents":11'))


@pytest.mark.parametrize("topic", ["progress", "reached", "task"])
def test_a_topic_may_have_the_name_of_a_number_that_tasks_keep(topic: str) -> None:
    prices = hr.table(topic, "price_cents BIGINT", retention="30d", pipeline="prices")
    priced = ORDERS.join_as_of(prices, how="left").select(
        "key", "order_id", "quantity * price_cents AS total_cents"
    )
    check(priced, TABLE.replace("prices.cleaned", topic))


def test_records_are_python_as_well() -> None:
    price = {"topic": "prices.cleaned", "key": "p", "time": "1s", "value": {"price_cents": 5}}
    order = {"topic": "orders.cleaned", "key": "p", "time": 2_000, "headers": [("h", "1")]}
    order |= {"value": {"order_id": "a", "quantity": 2}}
    waiting = run(PRICED, [price, order])
    assert (waiting.rows, waiting.held) == ((), 1)
    result = run(PRICED, [price, order, Event("idle")])
    (row,) = result.rows
    assert json.loads(row.value or b"") == {"key": "p", "order_id": "a", "total_cents": 10}
    assert row.headers == (("h", b"1"),)


def test_tables_meet_and_groups_follow() -> None:
    table = """
    # topic    key  time  value                          -> leaves
    customers  c1   1s    {"name":"Ann","segment":"x"}   ->
    customers  c2   1s    {"name":"Bob","segment":"y"}   ->
    bought     o1   2s    {"customer":"c1","cents":5}    -> x@2s={"segment":"x","sum_cents":5}
    bought     o2   3s    {"customer":"c1","cents":6}    -> x@3s={"segment":"x","sum_cents":11}
    (restart)                                            ->
    bought     o2   4s    {"customer":"c2","cents":6}    -> x@4s={"segment":"x","sum_cents":5} y@4s={"segment":"y","sum_cents":6}
    bought     o1   5s    null                           -> x@5s=null
    """  # noqa: E501 (a table)
    assert check(SEGMENTS, table).latest == {"y": {"segment": "y", "sum_cents": 6}}
    check_any_cut(SEGMENTS, table)


RECORDS = st.lists(
    st.tuples(
        st.sampled_from(["orders.cleaned", "prices.cleaned"]),
        st.sampled_from("pq"),
        st.integers(0, 9),
        st.integers(0, 1),
    ),
    max_size=20,
)


@FEWER
@given(RECORDS)
@example([("orders.cleaned", "q", 0, 1), ("orders.cleaned", "q", 0, 0)])
def test_no_cut_and_no_crash_changes_a_row(drawn: list[tuple[str, str, int, int]]) -> None:
    now_ms = 0
    records: list[dict[str, object] | Event] = []
    for number, (topic, key, later_ms, drawn_partition) in enumerate(drawn):
        now_ms += later_ms
        value = {"order_id": str(number), "quantity": 1, "price_cents": number}
        # Versions of one key and one time in two partitions have no order that a job knows.
        partition = "pq".index(key) if topic == "prices.cleaned" else drawn_partition
        place = {"topic": topic, "partition": partition, "time": now_ms}
        records.append({**place, "key": key, "value": value})
    result = check_any_cut(PRICED, [*records, Event("idle")], partitions=2, seeds=range(2))
    orders = sum(topic == "orders.cleaned" for topic, *_ in drawn)
    assert (len(result.rows), result.held) == (orders, 0)


def test_a_crash_takes_again_what_was_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[list[str]] = []
    take = Job.take

    def take_and_note(job: Job, records: Any, told: Any = ()) -> Any:
        taken.append([record.value.decode() for _, record in records])
        return take(job, records, told)

    monkeypatch.setattr(Job, "take", take_and_note)
    counted = BOUGHT.group_by("customer").agg(hr.count())
    a, b = '{"customer":"a"}', '{"customer":"b"}'
    records: list[Any] = [
        {"key": "1", "value": a},
        Event("commit"),
        {"key": "2", "value": b},
        Event("crash"),
    ]
    result = run(counted, [*records, Event("crash"), {"key": "3", "value": a}])
    assert taken == [[a], [b], [b], [b], [a]]
    assert shown(result.rows)[-1] == 'a@0ms={"customer":"a","count":2}'


def test_a_filtered_row_of_a_stream_is_not_there_and_of_a_table_deleted() -> None:
    few = ORDERS.filter("quantity > 1").join_as_of(PRICES, how="left").filter("price_cents < 9")
    table = """
    # topic         key  time  value              -> leaves
    prices.cleaned  p    1s    {"price_cents":5}  ->
    orders.cleaned  p    2s    {"quantity":1}     ->
    orders.cleaned  p    2s    {"quantity":2}     ->
    orders.cleaned  q    2s    {"quantity":2}     ->
    (idle)  -> p@2s={"order_id":null,"quantity":2,"price_cents":5}
    """
    check(few, table)
    cheap = BOUGHT.filter("cents < 9").select("cents")
    table = """
    # key  time  value                        -> leaves
    a      1s    {"customer":"c","cents":5}   -> a@1s={"cents":5}
    a      2s    {"customer":"c","cents":10}  -> a@2s=null
    """
    check(cheap, table)


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("CAST(1.005 AS DECIMAL(4, 2))", "1.01"),
        ("CAST(-1.005 AS DECIMAL(4, 2))", "-1.01"),
        ("1.10 * 2", "2.20"),
        ("1 / 3", "0.3333333333333333"),
        ("1.00 / 3", "0.333333"),
        ("-7 div 2", "-3"),
        ("(1 div (cents - 1)) % CAST(NULL AS INT)", "null"),
        ("CAST(NULL AS INT) + 1 div (cents - 1)", "null"),
        ("1 IN (1, cents div (cents - 1))", "true"),
        ("round(2.345, 2)", "2.35"),
        ("round(-2.5)", "-3"),
        ("round(cents, 2)", "1"),
        ("round(2.345e0, 2)", "2.35"),
        ("-7 % 3", "-1"),
        (
            "-CAST('12345678901234567890.123456789012345678' AS DECIMAL(38, 18))",
            "-12345678901234567890.123456789012350000",
        ),
        ("2 + 3.5", "5.5"),
        ("1e0 + 1e7", "1.0000001E7"),
        ("CAST(1e7 AS STRING)", '"1.0E7"'),
        ("CAST('12' AS BIGINT) = 12", "true"),
        ("TRY_CAST('x' AS INT)", "null"),
        ("CAST(1.25e0 AS DECIMAL(4, 1))", "1.3"),
        ("TRY_CAST('1e300' AS DECIMAL(8, 2))", "null"),
        ("TRY_CAST(999.95 AS DECIMAL(4, 1))", "null"),
        ("NULL AND false", "false"),
        ("NULL OR 1 > 2", "null"),
        ("1 IN (2, NULL)", "null"),
        ("'b' > 'a' AND NOT 'é' < 'z'", "true"),
        ("CASE WHEN false THEN 1 ELSE 2.5 END", "2.5"),
        ("substring('abcd', -3, 2)", '"bc"'),
        ("'a_c' LIKE 'a%'", "true"),
        ("date_trunc('DAY', time)", '"1970-01-01T00:00:00.000000Z"'),
        ("concat('a', NULL)", "null"),
        ("coalesce(NULL, 1) <=> nullif(1, 1)", "false"),
    ],
)
def test_expressions_have_the_answers_of_spark(expression: str, answer: str) -> None:
    query = BOUGHT.select(f"{expression} AS x")
    (row,) = run(query, '# key time value\na 5h {"cents":1}').rows
    assert row.value == f'{{"x":{answer}}}'.encode()


@pytest.mark.parametrize(
    "expression",
    ["2147483647 + cents", "cents / 0", "cents % 0", "CAST('x' AS INT)", "CAST(300 AS TINYINT)"],
)
def test_an_expression_may_have_no_answer(expression: str) -> None:
    numbers = hr.table("numbers", "cents INT", pipeline=None)
    result = run(numbers.select(f"{expression} AS x"), '# key time value\na 1s {"cents":1}')
    assert (result.rows, bool(result.failure)) == ((), True)


def test_an_expression_without_an_answer_stops_it() -> None:
    shares = PRICED.select("100 div total_cents AS share")
    table = """
    # topic         key  time  value            -> leaves
    prices.cleaned  p    1s    {"price_cents":0}  ->
    orders.cleaned  p    1s    {"quantity":2}     ->
    (idle)                                        -> (failed)
    (idle)                                        ->
    """
    failure = check(shares, table).failure
    assert failure is not None
    assert "`select(100 div total_cents AS share)`: division by zero" in failure


class Payment(BaseModel):
    """A model with a field of a type that tests do not know."""

    currency: str
    at: dict[str, int]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (PRICED.select("soundex(order_id) AS x"), "SOUNDEX(order_id)` is an expression that only"),
        (PRICED.select("order_id + 1 AS x"), "`order_id + 1` computes with types that only Spark"),
        (PRICED.select("floor(total_cents) AS x"), "FLOOR(total_cents)"),
        (PRICED.select("total_cents * 2"), "only Spark names `total_cents * 2`; name it by `AS`"),
        (PRICED.filter("order_id"), "`order_id` is no condition but a STRING"),
        (PRICED.filter("year > 1"), "`year` is no column of key, order_id, total_cents, time"),
        (PRICED.select("headers"), "`headers` is no column"),
        (ORDERS.join_as_of(hr.table("r", "x FLOAT", retention="1d")), "`x` of `r` is a FLOAT"),
        (hr.table("p", Payment), "`at` of `p` is a MAP<STRING,BIGINT>, which only Spark handles"),
    ],
)
def test_expressions_that_only_spark_evaluates_are_named(query: Query, said: str) -> None:
    with pytest.raises(SparkNeeded) as refused:
        run(query, [])
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("query", "records", "error", "said"),
    [
        (PRICED, "# key time value\np 1s x", ScenarioInvalid, "the head needs a column `topic`"),
        (PRICED, [{"key": "p", "value": "x"}], ScenarioInvalid, "`x` names none"),
        (PRICED, [{"topic": "x", "key": "p"}], ScenarioInvalid, "`x` is no topic of this query"),
        (PRICED, [Event("rebalance")], ScenarioInvalid, "`(rebalance)` happens to pipelines alone"),
        (ORDERS, [], JobInvalid, "alone needs no job"),
        (BOUGHT.join(BOUGHT.select("cents AS c")), [], JobInvalid, "input of a query twice"),
    ],
)
def test_a_query_that_cannot_be_run_is_a_sentence(
    query: Query, records: str, error: type[HeadraceError], said: str
) -> None:
    with pytest.raises(error) as refused:
        run(query, records)
    assert said in str(refused.value)


PYTHON = """\
import headrace as hr

bought = hr.table("bought.cleaned", "customer STRING, cents BIGINT")
hr.run(bought.group_by("customer").agg(hr.count()), name="counted", to=hr.console())
"""
COLUMNS = "from pyspark.sql.functions import col\nx = col('a') * 2\n"


def test_a_query_is_loaded_from_a_job_of_python_without_a_session(tmp_path: Path) -> None:
    (tmp_path / "counted.py").write_text(PYTHON)
    (tmp_path / "none.py").write_text("import headrace\n")
    counted = load_query("counted.py", tmp_path)
    assert counted == hr.table("bought.cleaned", "customer STRING, cents BIGINT").group_by(
        "customer"
    ).agg(hr.count())
    result = run(counted, '# key time value\no1 1s {"customer":"c","cents":1}')
    assert shown(result.rows) == ['c@1s={"customer":"c","count":1}']
    with pytest.raises(JobInvalid, match=r"none.py runs 0 queries"):
        load_query("none.py", tmp_path)


def test_columns_of_pyspark_need_a_session(tmp_path: Path) -> None:
    """The process of this test may have one, so the job is loaded in another."""
    (tmp_path / "columns.py").write_text(COLUMNS)
    loads = "from headrace.testing.queries.loading import load_query; load_query('columns.py')"
    done = subprocess.run(
        [sys.executable, "-c", loads], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "SparkNeeded: columns.py:2: pyspark's columns need a session" in done.stderr
