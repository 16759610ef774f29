"""The plan of a micro-batch: how often Spark parses a value before the operator and behind it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

import headrace as hr
from headrace.spark_jobs.cli.query_job import described
from headrace.spark_jobs.headers import text_of_headers
from headrace.spark_jobs.jobs import orders_customers, orders_prices
from headrace.spark_jobs.jobs.inputs import Inputs
from headrace.spark_jobs.jobs.run import find_job, format_of
from headrace.spark_jobs.operators.arriving import APART
from headrace.spark_jobs.operators.frames import InputProgress, Spread
from headrace.spark_jobs.queries import compiled
from headrace.spark_jobs.queries.compiled import QueryJob
from headrace.spark_jobs.read.decode import JsonValue, readable
from headrace.spark_jobs.write.aim import Targets, aimed
from tests.spark.frames import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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


def test_spark_parses_no_value_and_no_header_of_a_job(
    spark: SparkSession,
) -> None:
    formats = [format_of(find_job("orders-prices"), name) for name in _NAMES]
    results = orders_prices.transform(_inputs(spark, _NAMES, formats), _CONFIG)
    rows = aimed(results, Targets("priced", None))
    plan = _plan_of(rows.withColumn("headers", text_of_headers(rows)))
    before, behind = _halves(plan)
    # Before it, Python checks the values.
    assert "from_json(" not in before
    assert "StructsToJson" not in before
    # Behind it, rows come as they leave.
    assert "from_json(" not in behind
    assert "StructsToJson" not in behind
    # Headers become text before the join, and stay text behind it.
    assert before.count("transform(") == len(_NAMES)
    assert "transform(" not in behind


@pytest.mark.parametrize(("apart", "reads"), [(True, 2), (False, 4)])
def test_each_stage_reads_its_own_inputs(spark: SparkSession, *, apart: bool, reads: int) -> None:
    names = ["customers", "orders"]
    config = orders_customers.Config.model_validate(
        {
            **_CONFIG.model_dump(exclude={"release", "inputs", "corrections"}, exclude_unset=True),
            "inputs": {name: {"topic": name} for name in names},
        }
    )
    formats = [format_of(find_job("orders-customers"), name) for name in names]
    if apart:
        spark.conf.set(APART, "true")
    try:
        results = orders_customers.transform(_inputs(spark, names, formats), config)
    finally:
        spark.conf.unset(APART)
    plan = results._jdf.queryExecution().analyzed().toString()  # noqa: SLF001 (no public way)
    assert plan.count("LogicalRDD") == reads


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
    inputs = replace(_inputs(spark, names, job.VALUES.values()), progress=progress)
    results = job.transform(inputs, config)
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
        job.results(_inputs(spark, names, job.VALUES.values()), Spread(tasks=2))
    text, time, day, key, paired = (each.meets_as for each in steps)
    assert len({text, time, day}) == len([text, time, day])
    assert (key, paired) == (None, time)


def test_a_cold_history_parses_each_version_once(spark: SparkSession) -> None:
    (price, _) = (format_of(find_job("orders-prices"), name) for name in _NAMES)
    assert isinstance(price, JsonValue)
    versions = readable(spark.createDataFrame([], SCHEMA), price)
    assert _plan_of(versions).count("from_json(") == 1


def _inputs(spark: SparkSession, names: Sequence[str], formats: Iterable[Format]) -> Inputs:
    """Topics as a job reads them: the number of an input stands in the plan."""
    records = [
        spark.createDataFrame([], SCHEMA).withColumn("input", F.lit(number)) for number in range(2)
    ]
    return Inputs(names, records[: len(names)], dict(enumerate(formats)), InputProgress(), {})


def _plan_of(frame: DataFrame) -> str:
    plan: str = frame._jdf.queryExecution().optimizedPlan().toString()  # noqa: SLF001 (no public way)
    return plan


def _halves(plan: str) -> tuple[str, str]:
    """Return what a plan does before the stateful processor, and what behind it."""
    behind, mark, before = plan.partition("TransformWithState")
    assert mark
    return before, behind
