"""headrace: clean, correct event streams on Kafka.

This one package is installed, so a project may well have a `services` of its own. In the repository
the folders `contracts`, `services` and `spark_jobs` are at the top, and this folder links to them.
These names and those of `headrace.spark` and `headrace.testing` are public; all others may change.

A name is imported on first use: a worker of Spark and `headrace --help` use none.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.contracts.errors import HeadraceError
    from headrace.contracts.pipeline import PipelineSpec
    from headrace.contracts.policies import (
        AggregatePolicy,
        DeduplicatePolicy,
        DistinctPolicy,
        FilterPolicy,
        ReorderPolicy,
        SamplePolicy,
        SuppressPolicy,
        TablePolicy,
    )
    from headrace.contracts.record import Record
    from headrace.pipeline import Pipeline
    from headrace.spark_jobs.cli.python_job import run
    from headrace.spark_jobs.queries.aggregates import average as avg
    from headrace.spark_jobs.queries.aggregates import collect, count, reduce
    from headrace.spark_jobs.queries.aggregates import greatest as max  # noqa: A004 (hr.max)
    from headrace.spark_jobs.queries.aggregates import least as min  # noqa: A004 (hr.min)
    from headrace.spark_jobs.queries.aggregates import sum_of as sum  # noqa: A004 (hr.sum)
    from headrace.spark_jobs.queries.avro import avro
    from headrace.spark_jobs.queries.public import (
        console,
        delta,
        iceberg,
        kafka,
        parquet,
        stream,
        table,
    )
    from headrace.spark_jobs.queries.sql import sql
    from headrace.spark_jobs.queries.windows import window

__all__ = [
    "AggregatePolicy",
    "DeduplicatePolicy",
    "DistinctPolicy",
    "FilterPolicy",
    "HeadraceError",
    "Pipeline",
    "PipelineSpec",
    "Record",
    "ReorderPolicy",
    "SamplePolicy",
    "SuppressPolicy",
    "TablePolicy",
    "avg",
    "avro",
    "collect",
    "console",
    "count",
    "delta",
    "iceberg",
    "kafka",
    "max",
    "min",
    "parquet",
    "reduce",
    "run",
    "sql",
    "stream",
    "sum",
    "table",
    "window",
]
_STAND_IN = {
    "HeadraceError": "contracts.errors",
    "Pipeline": "pipeline",
    "PipelineSpec": "contracts.pipeline",
    "Record": "contracts.record",
}
_QUERIES = "spark_jobs.queries"
_OF_QUERIES = {
    **{name: f"{_QUERIES}.public:{name}" for name in ("stream", "table")},
    **{name: f"{_QUERIES}.public:{name}" for name in ("kafka", "delta", "iceberg")},
    **{name: f"{_QUERIES}.public:{name}" for name in ("parquet", "console")},
    "count": f"{_QUERIES}.aggregates:count",
    "collect": f"{_QUERIES}.aggregates:collect",
    "reduce": f"{_QUERIES}.aggregates:reduce",
    "sum": f"{_QUERIES}.aggregates:sum_of",
    "min": f"{_QUERIES}.aggregates:least",
    "max": f"{_QUERIES}.aggregates:greatest",
    "avg": f"{_QUERIES}.aggregates:average",
    "avro": f"{_QUERIES}.avro:avro",
    "run": "spark_jobs.cli.python_job:run",
    "sql": f"{_QUERIES}.sql:sql",
    "window": f"{_QUERIES}.windows:window",
}
"""The names of queries by columns; only `run` needs Spark."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    if name in _OF_QUERIES:
        load = import_module(f"{__name__}.extras").load
        return load(f"{__name__}.{_OF_QUERIES[name]}", extra="spark", needed_for=f"`{name}`")
    module = import_module(f"{__name__}.{_STAND_IN.get(name, 'contracts.policies')}")
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
