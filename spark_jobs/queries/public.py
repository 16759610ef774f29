"""What a query is begun with, and where its rows go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from headrace.contracts.errors import JobInvalid
from headrace.spark_jobs.queries.described import Source, milliseconds
from headrace.spark_jobs.queries.names import Schema, twice
from headrace.spark_jobs.queries.streams import Stream
from headrace.spark_jobs.queries.tables import Table

CLEANED = ".cleaned"
BY_NAME = "by the topic's name"
"""Which pipeline writes a topic that is called as that pipeline's cleaned topic would be."""


def stream(topic: str, schema: Schema, *, pipeline: str | None = BY_NAME) -> Stream:
    """A topic of records that happen; `schema` is DDL or a model of pydantic's.

    `x.cleaned` is taken to be written by the pipeline `x`, whose promises release what waits; name
    another `pipeline`, or None where no sidecar writes the topic.
    """
    return Stream(source=_source("stream", topic, schema, pipeline))


def table(
    topic: str,
    schema: Schema,
    *,
    retention: str | int | None = None,
    pipeline: str | None = BY_NAME,
) -> Table:
    """A topic whose records say how the row of a key now stands; without a value it is deleted.

    With a `retention` the table remembers so much of its past, before its newest record.
    """
    source = _source("table", topic, schema, pipeline)
    if retention is None:
        return Table(source=source)
    retention_ms = milliseconds(retention, "retention", f"the table `{topic}`")
    return Table(source=replace(source, retention_ms=retention_ms))


def _source(kind: Any, topic: str, schema: Schema, pipeline: str | None) -> Source:
    if pipeline == BY_NAME:
        name = topic.removesuffix(CLEANED)
        pipeline = name if name not in {topic, ""} else None
    source = Source(kind, topic, schema, pipeline)
    if not source.columns:
        message = f"the schema of the {kind} `{topic}` has no columns; write such as `id STRING`"
        raise JobInvalid(message)
    doubled = twice(source.columns)
    if doubled is not None:
        message = f"the schema of the {kind} `{topic}` has two columns `{doubled}`; keep one"
        raise JobInvalid(message)
    return source


@dataclass(frozen=True)
class Sink:
    """Where rows go, as a job's file says it."""

    kind: Literal["kafka", "delta", "parquet", "console"]
    options: Mapping[str, Any]


def kafka(topic: str, *, partitions: int = 4) -> Sink:
    """A topic, made where it is missing."""
    return Sink("kafka", {"topic": topic, "partitions": partitions})


def delta(folder: str, *, mode: Literal["append", "upsert"] = "append") -> Sink:
    """A Delta table; by `upsert` the last row of a key takes the place of all others."""
    return Sink("delta", {"folder": folder, "mode": mode})


def parquet(folder: str) -> Sink:
    """A folder of Parquet files."""
    return Sink("parquet", {"folder": folder})


def console() -> Sink:
    """The terminal, for a look."""
    return Sink("console", {})
