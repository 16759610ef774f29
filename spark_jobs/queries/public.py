"""Functions that begin a query and name its sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import BaseModel

from headrace.contracts.errors import JobInvalid, SchemaRefused
from headrace.contracts.problem_text import show
from headrace.spark_jobs.jobs.config import Mode
from headrace.spark_jobs.jobs.given import taken
from headrace.spark_jobs.queries.ddl import problem_of
from headrace.spark_jobs.queries.described import Source, milliseconds, refuse_ours
from headrace.spark_jobs.queries.names import Schema, twice
from headrace.spark_jobs.queries.streams import Stream
from headrace.spark_jobs.queries.tables import Table
from headrace.spark_jobs.read.registry import RegistryAccess

CLEANED = ".cleaned"
Registry = str | Mapping[str, Any] | RegistryAccess
BY_NAME = "by the topic's name"
"""Names the pipeline whose cleaned topic would have the topic's name."""


def stream(
    topic: str,
    schema: Schema,
    *,
    pipeline: str | None = BY_NAME,
    registry: Registry | None = None,
) -> Stream:
    """Describe a topic of records that happen; `schema` is DDL or a model of pydantic's.

    By default the pipeline `x` writes `x.cleaned`, and its progress releases the records that wait.
    Name another `pipeline`, or None if no sidecar writes the topic. With a `registry`, its address
    or its options, values are Avro, JSON or Protobuf, and each names its schema by a number.
    """
    return Stream(source=_source("stream", topic, schema, pipeline, registry))


def table(
    topic: str,
    schema: Schema,
    *,
    retention: str | int | None = None,
    pipeline: str | None = BY_NAME,
    registry: Registry | None = None,
) -> Table:
    """Describe a topic whose records tell the new row of a key; one without a value deletes it.

    With a `retention` the table remembers so much of its past, before its newest record.
    """
    source = _source("table", topic, schema, pipeline, registry)
    if retention is None:
        return Table(source=source)
    retention_ms = milliseconds(retention, "retention", f"the table `{topic}`")
    return Table(source=replace(source, retention_ms=retention_ms))


def _source(
    kind: Any, topic: str, schema: Schema, pipeline: str | None, registry: Registry | None
) -> Source:
    if pipeline == BY_NAME:
        name = topic.removesuffix(CLEANED)
        pipeline = name if name not in {topic, ""} else None
    is_model = isinstance(schema, type) and issubclass(schema, BaseModel)
    if not isinstance(schema, str) and not is_model:
        message = (
            f"the schema of the {kind} {show(topic)} is a {type(schema).__name__}; write DDL, such"
            ' as "id STRING, cents BIGINT", or pass a model of pydantic\'s'
        )
        raise SchemaRefused(message)
    problem = problem_of(schema) if isinstance(schema, str) else None
    if problem is not None:
        message = f"the schema of the {kind} `{topic}`: {problem}"
        raise SchemaRefused(message)
    source = Source(kind, topic, schema, pipeline, registry=_registry_of(registry))
    if not source.columns:
        message = f"the schema of the {kind} `{topic}` has no columns; write such as `id STRING`"
        raise JobInvalid(message)
    for name in source.columns:
        refuse_ours(name, f"the schema of the {kind} `{topic}`")
    doubled = twice(source.columns)
    if doubled is not None:
        message = f"the schema of the {kind} `{topic}` has two columns `{doubled}`; keep one"
        raise JobInvalid(message)
    return source


def _registry_of(given: Registry | None) -> RegistryAccess | None:
    if given is None:
        return None
    named = {"url": given} if isinstance(given, str) else given
    return taken(RegistryAccess, named, "registry")


@dataclass(frozen=True)
class Sink:
    """The sink of a query's rows, as in a job's file."""

    kind: Literal["kafka", "delta", "iceberg", "parquet", "console"]
    options: Mapping[str, Any]


def kafka(
    topic: str,
    *,
    partitions: int = 4,
    value: Literal["json", "avro"] = "json",
    registry: Registry | None = None,
) -> Sink:
    """Write to a topic, which is created if it is missing.

    By `value="avro"` rows are Avro, each with the number of its schema in the `registry`, which
    gets the schema when the query starts.
    """
    options = {"topic": topic, "partitions": partitions, "value": value}
    return Sink("kafka", {**options, "registry": _registry_of(registry)})


def delta(
    folder: str | None = None,
    *,
    table: str | None = None,
    mode: Mode = "append",
) -> Sink:
    """Write to a Delta table; by `upsert` the last row of a key replaces all others.

    By `scd2` each row stays, with the times from when and until when it is valid.
    A table is a folder, or `database.table` in Spark's own catalog, or `catalog.database.table`.
    """
    return Sink("delta", {"table": table, "folder": folder, "mode": mode})


def iceberg(
    table: str | None = None,
    *,
    folder: str | None = None,
    mode: Mode = "append",
) -> Sink:
    """Write to an Iceberg table; by `upsert` the last row of a key replaces all others.

    By `scd2` each row stays, with the times from when and until when it is valid.
    A table is `catalog.database.table`, in a catalog that Spark's settings name, or a folder.
    """
    return Sink("iceberg", {"table": table, "folder": folder, "mode": mode})


def parquet(folder: str) -> Sink:
    """Write to a folder of Parquet files."""
    return Sink("parquet", {"folder": folder})


def console() -> Sink:
    """Write to the terminal, for a look."""
    return Sink("console", {})
