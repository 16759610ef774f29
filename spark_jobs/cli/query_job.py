"""Make a job of a query and its options, for Python and for YAML files."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from headrace.contracts.errors import JobInvalid
from headrace.contracts.problem_text import Path, together
from headrace.spark_jobs.cli.sentences import sentences
from headrace.spark_jobs.jobs.config import JobConfig, TablesConfig
from headrace.spark_jobs.jobs.fits import own_column_among, problems
from headrace.spark_jobs.jobs.hot_keys import hot_keys_problems
from headrace.spark_jobs.queries.compiled import QueryJob
from headrace.spark_jobs.queries.described import Query
from headrace.spark_jobs.queries.options import QueryConfig
from headrace.spark_jobs.queries.public import Sink

_DECIDED = {"job", "inputs", *(QueryConfig.model_fields.keys() - JobConfig.model_fields.keys())}
"""Options of a job that a query's description decides."""


def described(query: Query, *, to: Sink, **said: Any) -> tuple[QueryJob, JobConfig]:
    """Make a job and its options of a query; JobInvalid lists every problem."""
    if not isinstance(query, Query):
        message = f"`run` takes a stream or a table, not {query!r}"
        raise JobInvalid(message)
    if not isinstance(to, Sink):
        message = f'`to` takes where rows go, such as `hr.kafka("orders.priced")`, not {to!r}'
        raise JobInvalid(message)
    decided = sorted(_DECIDED & {name.replace("-", "_") for name in said})
    if decided:
        message = (
            f"`{decided[0]}` is no option of `run`: the query says it, such as"
            " `join_as_of(prices, corrections=True)`; remove it"
        )
        raise JobInvalid(message)
    job = QueryJob(query)
    if "updates" in said and not issubclass(job.Config, TablesConfig):
        message = (
            "`updates` says which updates of a table's rows leave, and the rows of this query are"
            " those of a stream; remove it"
        )
        raise JobInvalid(message)
    document = {**job.described(), "sink": {to.kind: dict(to.options)}, **said}
    try:
        config = job.Config.model_validate(document)
    except ValidationError as error:
        raise _invalid(sentences(error, job.Config)) from error
    found = [*problems(config), *hot_keys_problems(job, config)]
    if found:
        raise _invalid(found)
    # Where only Spark knows the columns, the job looks once it has a session.
    problem = own_column_among(query.columns or (), config)
    if problem is not None:
        raise JobInvalid(problem)
    return job, config


def _invalid(found: list[tuple[Path, str]]) -> JobInvalid:
    lines = [f"`{'.'.join(str(step) for step in path)}`: {said}" for path, said in found]
    return JobInvalid(together(lines))
