"""The options of a query, as a job's file would have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from headrace.spark_jobs.jobs.config import JobConfig, TableFolder, TablesConfig
from headrace.spark_jobs.queries.windows import MadeStream

if TYPE_CHECKING:
    from headrace.spark_jobs.queries.described import Query


class QueryConfig(JobConfig):
    """The options that any query has.

    The expressions of a query are no option in the checkpoint. If they were, a user who mends an
    expression that has no answer for a row would have to finish that micro-batch with the broken
    one.
    """

    release: Literal["stream-time", "progress"] | None = None
    corrections: bool = False
    cold_history: TableFolder | None = None


class TableQueryConfig(QueryConfig, TablesConfig):
    """The options of a query whose rows are those of a table."""


def options_of(query: Query) -> type[QueryConfig]:
    """Return the options that a query has."""
    return QueryConfig if isinstance(query, MadeStream) else TableQueryConfig
