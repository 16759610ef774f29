"""The plan of a micro-batch: a value is parsed once before the operator, and once behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

import headrace as hr
from headrace.spark_jobs.cli.query_job import described
from headrace.spark_jobs.headers import text_of_headers
from headrace.spark_jobs.jobs import orders_prices
from headrace.spark_jobs.jobs.inputs import Inputs
from headrace.spark_jobs.jobs.run import find_job, format_of
from headrace.spark_jobs.operators.frames import InputProgress, Spread
from headrace.spark_jobs.queries import compiled
from headrace.spark_jobs.queries.compiled import QueryJob
from headrace.spark_jobs.read.decode import JsonValue, checked_alone, readable
from headrace.spark_jobs.write.aim import Targets, aimed
from tests.spark.frames import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

    from headrace.spark_jobs.operators.topology import LookUp, StreamJoin
    from headrace.spark_jobs.queries.described import Query
    from headrace.spark_jobs.read.decode import Format

_NAMES = ["prices", "orders"]
_CONFIG = orders_prices.Config.model_validate(
    {
        "job": "orders-prices",
        "name": "priced",
        "servers": "127.0.0.1:9092",
        "checkpoint": "checkpoint",
        "inputs": {name: {"topic": name} for name in _NAMES},
        "retention": "1h",
        "release": "stream-time",
        "sink": {"kafka": {"topic": "priced"}},
    }
)
_PRICES = hr.table("prices", "currency STRING, price_cents BIGINT", retention="1h")
_RATES = hr.table("rates", "rate BIGINT", retention="1h")
_ORDERS = hr.stream("orders", "order_id STRING, quantity BIGINT")
_PAID = hr.stream("paid", "payer STRING, cents BIGINT")


def test_a_value_is_parsed_before_and_behind_the_join_and_headers_never(
    spark: SparkSession,
) -> None:
    frames = _frames(spark, (format_of(find_job("orders-prices"), name) for name in _NAMES))
    results = orders_prices.transform(Inputs(_NAMES, frames, InputProgress(), {}), _CONFIG)
    rows = aimed(results, Targets("priced", None))
    plan = _plan_of(rows.withColumn("headers", text_of_headers(rows)))
    before, behind = _halves(plan)
    assert before.count("from_json(") == len(_NAMES)
    # Behind it, an order and its price are one text.
    assert behind.count("from_json(") == 1
    # The row is written once, and the verdict of a dead record before each table of a topic.
    assert behind.count("StructsToJson") == 1
    assert before.count("StructsToJson") == len(_NAMES)
    # Headers become text before the join, and stay text behind it.
    assert before.count("transform(") == len(_NAMES)
    assert "transform(" not in behind


PLANNED = pytest.mark.long("spark", why="all joins parse their inputs at one place")


@pytest.mark.parametrize(
    "query",
    [
        _ORDERS.join_as_of(_PRICES.filter("price_cents > 0")),
        pytest.param(
            _ORDERS.filter("quantity > 0").join_as_of(_PRICES, on="order_id"), marks=PLANNED
        ),
        pytest.param(_PRICES.filter("price_cents > 0").join(_RATES, how="outer"), marks=PLANNED),
        pytest.param(_PRICES.join_on(_RATES, on="currency"), marks=PLANNED),
        _ORDERS.filter("quantity > 0").join_within(
            _PAID.filter("cents > 0"), within="10m", on=("order_id", "payer")
        ),
    ],
    ids=["table-steps", "on", "join", "join_on", "within"],
)
def test_a_query_parses_each_input_once(spark: SparkSession, query: Query) -> None:
    job, config = described(
        query, name="it", to=hr.console(), servers="here:1", checkpoint="unused", tasks=2
    )
    names = list(job.sources)
    progress = InputProgress(None, dict.fromkeys(range(len(names)), 0))
    frames = _frames(spark, job.VALUES.values())
    results = job.transform(Inputs(names, frames, progress, {}), config)
    before, _ = _halves(_plan_of(results))
    assert before.count("from_json(") == len(names)


def test_a_join_by_a_column_notes_how_its_text_is_written(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[LookUp | StreamJoin] = []
    monkeypatch.setattr(compiled, "operate", lambda topology, *_: steps.append(topology))
    orders = hr.stream("orders", "order_id STRING, at TIMESTAMP, day DATE")
    queries = [orders.join_as_of(_PRICES, on=on) for on in ("order_id", "at", "day", None)]
    for query in (*queries, orders.join_within(_PAID, within="1m", on="at")):
        job = QueryJob(query)
        names = list(job.sources)
        job.results(
            Inputs(names, _frames(spark, job.VALUES.values()), InputProgress(), {}), Spread(tasks=2)
        )
    text, time, day, key, paired = (each.meets_as for each in steps)
    assert len({text, time, day}) == len([text, time, day])
    assert (key, paired) == (None, time)


def test_a_cold_history_parses_each_version_once(spark: SparkSession) -> None:
    (price, _) = (format_of(find_job("orders-prices"), name) for name in _NAMES)
    assert isinstance(price, JsonValue)
    versions = readable(spark.createDataFrame([], SCHEMA), price)
    assert _plan_of(versions).count("from_json(") == 1


def _frames(spark: SparkSession, formats: Iterable[Format]) -> list[DataFrame]:
    """Topics as a job reads them: the number of an input stands in the plan."""
    records = [
        spark.createDataFrame([], SCHEMA).withColumn("input", F.lit(number)) for number in range(2)
    ]
    return [
        checked_alone(frame, number, each)
        for (number, frame), each in zip(enumerate(records), formats, strict=False)
    ]


def _plan_of(frame: DataFrame) -> str:
    plan: str = frame._jdf.queryExecution().optimizedPlan().toString()  # noqa: SLF001 (no public way)
    return plan


def _halves(plan: str) -> tuple[str, str]:
    """Return what a plan does before the stateful processor, and what behind it."""
    behind, mark, before = plan.partition("TransformWithState")
    assert mark
    return before, behind
