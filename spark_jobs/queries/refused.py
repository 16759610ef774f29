"""Refuse queries that no job can compute, before anything is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.contracts.errors import JobInvalid
from headrace.spark_jobs.queries.described import Filter
from headrace.spark_jobs.queries.mentioned import columns_in
from headrace.spark_jobs.queries.streams import JoinedStream, Stream

if TYPE_CHECKING:
    from headrace.spark_jobs.queries.described import Query


def refuse_alone(query: Query) -> None:
    """Refuse a stream that meets nothing."""
    if isinstance(query, Stream):
        message = (
            f"{query.title} alone needs no job: nothing is looked up; join it as of a table, group"
            " it by window, or filter it in its pipeline"
        )
        raise JobInvalid(message)


def refuse_history(query: Query) -> None:
    """Refuse a history of values that only workers can read, and steps by what it does not keep."""
    if not isinstance(query, JoinedStream) or not query.history:
        return
    if query.table.source.registry:
        message = (
            f"{query.title} keeps a history in `{query.history}`, and the values of"
            f" `{query.table.source.topic}` need a registry; give the table a longer `retention`"
        )
        raise JobInvalid(message)
    for step in query.table.steps:
        given = (step.condition,) if isinstance(step, Filter) else step.expressions
        if any("headers" in map(str.lower, columns_in(each.text)) for each in given):
            message = (
                f"{query.title} keeps a history in `{query.history}`, which has no headers, and"
                f" `{step}` names them; leave them out, or give the table a longer `retention`"
            )
            raise JobInvalid(message)
