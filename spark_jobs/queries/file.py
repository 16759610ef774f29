"""Read a query's file: SQL, the streams and tables that it names, and its sink."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from headrace.contracts.policies import Name
from headrace.contracts.time import DurationMs
from headrace.spark_jobs.jobs.config import Input, JobConfig, TableFolder
from headrace.spark_jobs.queries.ddl import problem_of
from headrace.spark_jobs.queries.described import Query
from headrace.spark_jobs.queries.public import BY_NAME, stream, table
from headrace.spark_jobs.queries.sql import selected
from headrace.spark_jobs.read.registry import RegistryAccess
from headrace.spark_jobs.versioned.changes import Updates

Word = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class StreamInput(Input):
    """A topic of records that happen."""

    pipeline: Name | None = BY_NAME
    """The pipeline that writes it; `x` for a topic `x.cleaned` if not said, null for none."""
    columns: str = Field(alias="schema")
    """The columns of its values, as DDL: `order_id STRING, quantity BIGINT`."""

    registry: RegistryAccess | None = None
    """The registry with the schemas of its values, if each names its own by a number."""

    @field_validator("columns")
    @classmethod
    def _readable(cls, ddl: str) -> str:
        problem = problem_of(ddl)
        if problem is not None:
            raise ValueError(problem)
        return ddl


class TableInput(StreamInput):
    """A topic whose records tell the new row of a key."""

    retention_ms: DurationMs | None = None
    """How much of its past a table remembers, for a stream to look up there."""


class QueryFile(JobConfig):
    """A job without Python."""

    job: str = "query"
    query: str
    """One SELECT over the streams and tables below."""
    streams: dict[Word, StreamInput] = Field(default_factory=dict)
    """Topics of records that happen, each a StreamInput by its name in the query."""
    tables: dict[Word, TableInput] = Field(default_factory=dict)
    """Topics of rows that change, each a TableInput by its name in the query."""
    grace_ms: DurationMs | None = None
    """How long a record waits by its stream's own time; without it, until both have passed it.

    Of two streams within a window, how far behind the highest time of its stream one is on time.
    """
    corrections: bool = False
    """Whether a record is sent again when a row of the table comes late."""
    cold_history: TableFolder | None = None
    """A Delta table of all rows there ever were, in which older records look up."""

    updates: Updates = "last"
    """Which updates of a row of a table leave a micro-batch: the last one alone, or each.

    A table with a history (`mode: scd2`) gets each.
    """

    @field_validator("tables")
    @classmethod
    def _named_once(
        cls, tables: dict[str, TableInput], info: ValidationInfo
    ) -> dict[str, TableInput]:
        both = sorted(tables.keys() & info.data.get("streams", {}).keys())
        if both:
            message = f"`{both[0]}` is a stream and a table; give one of them another name"
            raise ValueError(message)
        return tables

    def described(self) -> Query:
        """Return the query as Python would describe it."""
        sources: dict[str, Query] = {
            name: stream(one.topic, one.columns, pipeline=one.pipeline, registry=one.registry)
            for name, one in self.streams.items()
        }
        for name, one in self.tables.items():
            sources[name] = table(
                one.topic,
                one.columns,
                retention=one.retention_ms,
                pipeline=one.pipeline,
                registry=one.registry,
            )
        said = {
            "grace": self.grace_ms,
            "corrections": self.corrections or None,
            "history": None if self.cold_history is None else self.cold_history.folder,
        }
        return selected(self.query, sources, said)


OF_THE_QUERY = {"job", "query", "streams", "tables", "grace_ms", "corrections", "cold_history"}
"""The options that the description decides; the others belong to any job."""


def query_schema() -> str:
    """Return the JSON Schema of such files, for editors."""
    schema = QueryFile.model_json_schema(by_alias=True)
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    print(query_schema(), end="")  # noqa: T201 - `make schema` keeps it beside the pipelines'
