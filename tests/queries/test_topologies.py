"""A query over its topics: which of them it refuses, and what leaves for which sink."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from pyspark.sql import types as spark
from pyspark.sql.types import StructType

import headrace as hr
from headrace.contracts.errors import JobInvalid, StateOfOtherOptions
from headrace.contracts.record import Record
from headrace.spark_jobs.jobs.config import Mode
from headrace.spark_jobs.operators.options import options_of
from headrace.spark_jobs.operators.running import open_topology
from headrace.spark_jobs.operators.stamp import keep_options
from headrace.spark_jobs.queries.compiled import QueryJob
from headrace.spark_jobs.queries.described import Query
from headrace.spark_jobs.queries.topologies import Plan, inputs_of
from headrace.spark_jobs.queries.types import texts_of
from headrace.spark_jobs.versioned.arrival import Arrival, Arrivals
from headrace.spark_jobs.versioned.state import MemoryRows, TaskState
from headrace.testing import run

CITY = StructType().add("city", "string")
HOMES = "home STRUCT<city: STRING>"
ORDERS = hr.stream("orders.cleaned", HOMES).select("home.city")
OWNERS = hr.table("owners.cleaned", HOMES).select("home.city")
SHIPPED = hr.stream("shipped.cleaned", "city STRING")
PLACES = hr.table("places.cleaned", "city STRING", retention="30d")


def pair(plan: Plan) -> object:
    return plan.pair()


def met(plan: Plan) -> object:
    return plan.met(CITY.names)


def joined(plan: Plan) -> object:
    return plan.topology()


@pytest.mark.parametrize(
    ("query", "compute", "step"),
    [
        (ORDERS.join_as_of(PLACES), met, "join_as_of"),
        (ORDERS.join_within(SHIPPED, within="1m"), pair, "join_within"),
        (OWNERS.join(PLACES), joined, "join"),
        (OWNERS.join_on(PLACES, "city"), joined, "join_on"),
    ],
)
def test_two_columns_of_one_name_are_refused_once_their_names_are_known(
    query: Query, compute: Callable[[Plan], object], step: str
) -> None:
    sources = inputs_of(query)
    plan = Plan(query, sources, dict.fromkeys(sources, CITY), dict.fromkeys(sources, CITY))
    with pytest.raises(JobInvalid) as refused:
        compute(plan)
    assert str(refused.value).startswith(f"`{step}`: ")
    assert "both have a column `city`; give one another name before" in str(refused.value)


@pytest.mark.parametrize(
    ("mode", "times_ms"),
    [("append", [10, 5, 10, 9]), ("scd2", [10, 5, 10, 9]), ("upsert", [10, 10])],
)
def test_a_table_by_upsert_gets_no_version_behind_a_newer_one(
    mode: Mode, times_ms: list[int]
) -> None:
    sources = inputs_of(PLACES)
    plan = Plan(PLACES, sources, {}, dict.fromkeys(sources, CITY))
    running = open_topology(plan.topology(mode), TaskState(MemoryRows()))
    versions = [(10, b"old"), (5, b"late"), (10, None), (9, b"behind a deletion")]
    records = [Record(b"k", value, time_ms, (), "places", 0, 0) for time_ms, value in versions]
    (changed,) = running.process(Arrivals.of([Arrival(0, record) for record in records]))
    assert changed.times_ms.tolist() == times_ms


def test_the_latest_rows_of_a_table_that_remembers_are_those_of_the_latest_times() -> None:
    table = """
        | key | time | value |
        | a | 9s | {"city":"new"} |
        | a | 5s | {"city":"late"} |
        | b | 9s | null |
        | b | 5s | {"city":"late"} |
    """
    assert run(PLACES, table).latest == {"a": {"city": "new"}}
    plain = hr.table("places.cleaned", "city STRING")
    assert run(plain, table).latest == {"a": {"city": "late"}, "b": {"city": "late"}}


def test_a_step_by_headers_is_refused_where_the_history_has_none() -> None:
    table = PLACES.filter("size(headers) > 0")
    QueryJob(SHIPPED.select("key").join_as_of(table))
    with pytest.raises(JobInvalid, match="which has no headers, and `filter"):
        QueryJob(SHIPPED.select("key").join_as_of(table, history="cold"))


def test_a_query_that_reads_a_topic_twice_is_refused_wherever_it_runs() -> None:
    twice = SHIPPED.join_within(SHIPPED.select("city AS other"), within="1m")
    sentence = "`shipped.cleaned` is the input of a query twice; name another topic"
    with pytest.raises(JobInvalid, match=sentence):
        QueryJob(twice)
    with pytest.raises(JobInvalid, match=sentence):
        run(twice, [])


def _options(query: Query) -> dict[str, int]:
    schema = StructType().add("city", "string").add("place", "string")
    sources = inputs_of(query)
    plan = Plan(query, sources, dict.fromkeys(sources, schema), dict.fromkeys(sources, CITY))
    return options_of(plan.topology())


@pytest.mark.parametrize(("before", "now"), [("city", "place"), ("city", None), (None, "city")])
def test_records_that_wait_by_one_column_are_not_met_by_another(
    before: str | None, now: str | None
) -> None:
    stream = hr.stream("sent.cleaned", "city STRING, place STRING")
    table = hr.table("places.cleaned", "name STRING", retention="30d")
    numbers: dict[str, int] = {}
    keep_options(numbers, _options(stream.join_as_of(table, on=before)))
    same = before and before.upper()
    assert keep_options(numbers, _options(stream.join_as_of(table, on=same))) == []
    with pytest.raises(StateOfOtherOptions, match="met by another column, which the records"):
        keep_options(numbers, _options(stream.join_as_of(table, on=now)))
    older = {name: one for name, one in numbers.items() if not name.endswith(":meets_by")}
    assert keep_options(older, _options(stream.join_as_of(table, on=now))) == []


SENT = hr.stream("sent.cleaned", "at TIMESTAMP")


@pytest.mark.parametrize(
    "query",
    [
        SENT.join_within(hr.stream("paid.cleaned", "cents BIGINT"), within="1h", on="at"),
        SENT.join_as_of(hr.table("days.cleaned", "name STRING", retention="30d"), on="at"),
    ],
)
def test_records_that_wait_by_one_text_of_a_column_are_not_met_by_another(query: Query) -> None:
    sources = inputs_of(query)
    plan = Plan(query, sources, dict.fromkeys(sources, CITY), dict.fromkeys(sources, CITY))

    def options(kind: spark.DataType, zone: str) -> dict[str, int]:
        return options_of(replace(plan, met_as=texts_of([kind], zone)).topology())

    whole, time, money = spark.LongType(), spark.TimestampType(), spark.DecimalType(9, 2)
    for before, now in [(time, time), (money, whole), (money, spark.DecimalType(9, 3))]:
        numbers: dict[str, int] = {}
        keep_options(numbers, options(before, "UTC"))
        assert keep_options(numbers, options(before, "UTC")) == []
        with pytest.raises(StateOfOtherOptions, match="met by a column of another type, or by"):
            keep_options(numbers, options(now, "Europe/Berlin"))
    numbers = {}
    keep_options(numbers, options(whole, "UTC"))
    assert keep_options(numbers, options(spark.StringType(), "Europe/Berlin")) == []
    older = options_of(plan.topology())
    assert keep_options(older, options(time, "UTC")) == []


def _held(
    *steps: str, has: Sequence[str] = ("city",), fields: Sequence[str] = ("city",)
) -> dict[str, int]:
    """Return the options of two streams, of which the left one has these fields and columns."""
    left = hr.stream("sent.cleaned", ", ".join(f"{name} STRING" for name in fields))
    right = hr.stream("paid.cleaned", "cents STRING")
    for step in steps:
        left = left.filter(step) if "<>" in step else left.select(*step.split(", "))
    query = left.join_within(right, within="1h")
    schemas = {"left": _texts(fields), "right": _texts(["cents"])}
    plan = Plan(query, inputs_of(query), schemas, schemas | {"left": _texts(has)})
    return options_of(plan.topology())


def _texts(names: Sequence[str]) -> StructType:
    schema = StructType()
    for name in names:
        schema = schema.add(name, "string")
    return schema


def test_records_that_wait_in_a_window_do_not_go_on_without_a_column_that_they_lack() -> None:
    numbers: dict[str, int] = {}
    keep_options(numbers, _held("city, upper(city) AS big", has=["city", "big"]))
    assert keep_options(numbers, _held("lower(city) AS big, city", has=["big", "city"])) == []
    others = [
        _held("city, upper(city) AS large", has=["city", "large"]),
        _held(fields=["city", "big", "place"]),
        numbers | {"option:join_within(paid.cleaned):right_columns": 1},
    ]
    for other in others:
        with pytest.raises(StateOfOtherOptions, match="had other columns of its"):
            keep_options(numbers, other)
    older = {name: one for name, one in numbers.items() if not name.endswith("_columns")}
    assert keep_options(older, others[0]) == []


def test_records_that_wait_in_a_window_as_they_were_read_have_all_columns() -> None:
    numbers: dict[str, int] = {}
    keep_options(numbers, _held())
    assert keep_options(numbers, _held(fields=["city", "place"])) == []
    assert keep_options(numbers, _held(fields=["city"])) == []
    assert keep_options(numbers, _held("city <> 'Ur'")) == []
    assert keep_options(numbers, _held()) == []
    with pytest.raises(StateOfOtherOptions, match="had other columns of its left stream"):
        keep_options(numbers, _held("upper(city) AS big", has=["big"]))


def _window_options(kind: str) -> dict[str, int]:
    sent = hr.stream("sent.cleaned", f"city STRING, weight {kind}")
    query = sent.group_by("city", hr.window("1h")).agg(hr.max("weight"), hr.count("weight"))
    sources = inputs_of(query)
    weights = StructType().add("city", "string").add("weight", kind.lower())
    plan = Plan(query, sources, dict.fromkeys(sources, weights), dict.fromkeys(sources, weights))
    return options_of(plan.windows(weights).step)


def test_open_windows_of_columns_of_other_types_do_not_go_on() -> None:
    numbers: dict[str, int] = {}
    keep_options(numbers, _window_options("INTEGER"))
    assert keep_options(numbers, _window_options("LONG")) == []
    with pytest.raises(StateOfOtherOptions, match="had columns of other types, of which its open"):
        keep_options(numbers, _window_options("STRING"))
    older = {name: one for name, one in numbers.items() if not name.endswith(":kinds")}
    assert keep_options(older, _window_options("STRING")) == []
