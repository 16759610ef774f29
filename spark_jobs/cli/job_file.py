"""Read a job from YAML; each problem is one sentence with its place."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path as File
from typing import Any, cast

from pydantic import ValidationError

from headrace.contracts.errors import JobInvalid
from headrace.contracts.problem_text import (
    Path,
    Places,
    meant,
    place_of,
    problem_line,
    show,
    together,
    unknown,
)
from headrace.contracts.yaml_text import Form, parse_yaml, read_text
from headrace.spark_jobs.cli.query_job import described
from headrace.spark_jobs.cli.sentences import EXAMPLES, sentences
from headrace.spark_jobs.cli.variables import with_variables
from headrace.spark_jobs.jobs.config import JobConfig
from headrace.spark_jobs.jobs.fits import own_column_among, problems
from headrace.spark_jobs.jobs.hot_keys import hot_keys_problems
from headrace.spark_jobs.jobs.run import Job, find_job, no_history
from headrace.spark_jobs.queries.file import OF_THE_QUERY, QueryFile
from headrace.spark_jobs.queries.names import names_of
from headrace.spark_jobs.queries.public import Sink

FORM = Form("a job", EXAMPLES["job"], JobInvalid)
_KINDS = ("job", "query")
"""A file has one of them."""
_SQL = re.compile(r"\s*(SELECT|WITH)\s", re.IGNORECASE)


def load_job(file: File) -> tuple[Job, JobConfig]:
    """Load a job and its options from a file; JobInvalid lists every problem, a line each."""
    text = read_text(lambda: file.open("rb"), str(file), FORM)
    written, places = parse_yaml(text, str(file), FORM)
    document, missing = with_variables(written, os.environ)
    if missing:
        raise _invalid(missing, file, places)
    if _is_query(document):
        return _load_query(document, file, places)
    problem = _no_job(document)
    if problem is not None:
        raise _invalid([problem], file, places)
    try:
        job = find_job(document["job"])
    except JobInvalid as error:
        raise _invalid([(("job",), str(error))], file, places) from error
    try:
        config = job.Config.model_validate(document, by_alias=True, by_name=False)
    except ValidationError as error:
        raise _invalid(sentences(error, job.Config), file, places) from error
    found = [*problems(config), *hot_keys_problems(job, config)]
    taken = own_column_among(names_of(job.Row), config)
    if taken is not None:
        found.append((("job",), taken))
    without = no_history(job, config)
    if without is not None:
        kind = "iceberg" if config.sink.delta is None else "delta"
        found.append((("sink", kind, "mode"), without))
    if found:
        raise _invalid(found, file, places)
    return job, config


def _is_query(document: Mapping[str, Any]) -> bool:
    """Return whether a file is meant to be a job in SQL."""
    if "job" in document:
        return bool(document["job"] == "query")
    means_query = any(meant((key,), _KINDS) == ("query",) for key in document)
    return means_query or bool(document.keys() & {"streams", "tables"})


def _no_job(document: Mapping[str, Any]) -> tuple[Path, str] | None:
    """Return the problem of a file that names no job, with its place; None if it names one."""
    if "job" not in document:
        for key in document:
            if meant((key,), _KINDS):
                return (key,), unknown((key,), _KINDS)
        if "pipeline" in document:
            return (), "this is the file of a pipeline; run it by `headrace run`"
        job, query = EXAMPLES["job"], EXAMPLES["query"]
        return (), f"`job` and `query` are both missing; add one, such as `{job}` or `{query}`"
    name = document["job"]
    if not isinstance(name, str):
        return ("job",), f"`job` names no job; write such as `{EXAMPLES['job']}`"
    if _SQL.match(name):
        return ("job",), "this is SQL; write `query:` in place of `job:`"
    if "query" in document:
        return ("query",), f"`job` names the job {show(name)}, and `query` another; remove one"
    return None


def _load_query(document: dict[str, Any], file: File, places: Places) -> tuple[Job, JobConfig]:
    """Load a job that is SQL, with the streams and tables that it names."""
    try:
        said = QueryFile.model_validate(document, by_alias=True, by_name=False)
    except ValidationError as error:
        raise _invalid(sentences(error, QueryFile), file, places) from error
    try:
        query = said.described()
    except JobInvalid as error:
        raise _invalid([(("query",), str(error))], file, places) from error
    ((kind, sink),) = [(name, one) for name, one in said.sink if one is not None]
    # An option that the file leaves out may be in the checkpoint, as `tasks` is.
    names = said.model_fields_set - OF_THE_QUERY - {"sink"}
    options = {name: getattr(said, name) for name in names}
    try:
        job, config = described(query, to=Sink(cast("Any", kind), dict(sink)), **options)
    except JobInvalid as error:
        message = f"{file}: {error}"
        raise JobInvalid(message) from error
    return cast("Job", job), config


def _invalid(found: list[tuple[Path, str]], file: File, places: Places) -> JobInvalid:
    """Make the error with a line for each problem, in the order of the file."""
    in_order = sorted(found, key=lambda one: place_of(one[0], places))
    lines = [problem_line(path, sentence, str(file), places) for path, sentence in in_order]
    return JobInvalid(together(lines))
