"""Find the query of a test: in a job's file, in a module, or in the scenario itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from headrace.contracts.errors import JobInvalid
from headrace.contracts.problem_text import show
from headrace.contracts.selectors import load_object
from headrace.spark_jobs.cli.job_file import load_job
from headrace.spark_jobs.cli.python_job import PYTHON, queries_in
from headrace.spark_jobs.cli.sentences import sentences
from headrace.spark_jobs.queries.compiled import QueryJob
from headrace.spark_jobs.queries.described import Query
from headrace.spark_jobs.queries.file import QueryFile

_FILES = (".yaml", ".yml")
_OF_A_JOB = {
    "name": "scenario",
    "servers": "127.0.0.1:9092",
    "checkpoint": "none",
    "sink": {"console": {}},
}
"""Options of a job's file that a test does not need."""


def load_query(name: str | Path, folder: Path = Path()) -> Query:
    """Load the query of a job's file in YAML or Python, or `module:name` of one in Python."""
    path = Path(name)
    if path.suffix in _FILES:
        job, _ = load_job(folder / path)
        if not isinstance(job, QueryJob):
            message = f"{path} is a job of functions; only queries run in tests without Spark"
            raise JobInvalid(message)
        return job.query
    if path.suffix == PYTHON:
        return _only_one(queries_in(folder / path), path)
    found = load_object(str(name))
    if not isinstance(found, Query):
        message = f"{show(str(name))} is no query; name a joined stream, or a table"
        raise JobInvalid(message)
    return found


def _only_one(found: list[Query], path: Path) -> Query:
    if len(found) != 1:
        message = (
            f"{path} runs {len(found)} queries; a test is of one, so put them into modules and name"
            " one by `module:name`"
        )
        raise JobInvalid(message)
    return found[0]


def query_in(written: Mapping[str, Any]) -> Query:
    """Return the query of a job's file whose other options may be missing."""
    try:
        said = QueryFile.model_validate({**_OF_A_JOB, **written}, by_alias=True, by_name=False)
    except ValidationError as error:
        found = sentences(error, QueryFile)
        lines = (f"{'.'.join(map(str, path))}: {sentence}" for path, sentence in found)
        raise JobInvalid("; ".join(lines)) from error
    return said.described()
