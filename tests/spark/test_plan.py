"""The plan of a micro-batch of `orders-prices`: it parses values, and nothing else."""

from __future__ import annotations

from pyspark.sql import SparkSession

from headrace.spark_jobs.headers import text_of_headers
from headrace.spark_jobs.jobs import orders_prices
from headrace.spark_jobs.jobs.inputs import Inputs
from headrace.spark_jobs.jobs.run import find_job, format_of
from headrace.spark_jobs.operators.frames import InputProgress
from headrace.spark_jobs.read.decode import checked
from headrace.spark_jobs.write.aim import Targets, aimed
from tests.spark.frames import SCHEMA

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


def test_a_value_is_parsed_before_and_behind_the_join_and_headers_never(
    spark: SparkSession,
) -> None:
    formats = {
        number: format_of(find_job("orders-prices"), name) for number, name in enumerate(_NAMES)
    }
    records = checked(spark.createDataFrame([], SCHEMA), formats)
    results = orders_prices.transform(Inputs(_NAMES, records, InputProgress(), {}), _CONFIG)
    rows = aimed(results, Targets("priced", None))
    written = rows.withColumn("headers", text_of_headers(rows))
    plan = written._jdf.queryExecution().optimizedPlan().toString()  # noqa: SLF001 (no public way)
    before, behind = _halves(plan)
    assert before.count("from_json(") == len(_NAMES)
    assert behind.count("from_json(") == len(_NAMES)
    # The row is written once, and the verdict of a dead record.
    assert plan.count("StructsToJson") == 2
    # Headers become text before the join, and stay text behind it.
    assert before.count("transform(") == 1
    assert "transform(" not in behind


def _halves(plan: str) -> tuple[str, str]:
    """Return what a plan does before the stateful processor, and what behind it."""
    behind, mark, before = plan.partition("TransformWithState")
    assert mark
    return before, behind
