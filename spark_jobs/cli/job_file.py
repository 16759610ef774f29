"""Read a job from YAML; each problem is one sentence with its place."""

from __future__ import annotations

import os
from pathlib import Path as File
from typing import Any, cast

from pydantic import ValidationError

from headrace.contracts.errors import JobInvalid
from headrace.contracts.problem_text import Path, Places, place_of, problem_line, together
from headrace.contracts.yaml_text import Form, parse_yaml, read_text
from headrace.spark_jobs.cli.query_job import described
from headrace.spark_jobs.cli.sentences import sentences
from headrace.spark_jobs.cli.variables import with_variables
from headrace.spark_jobs.jobs.config import JobConfig
from headrace.spark_jobs.jobs.fits import problems
from headrace.spark_jobs.jobs.run import Job, find_job
from headrace.spark_jobs.queries.file import OF_THE_QUERY, QueryFile
from headrace.spark_jobs.queries.public import Sink

FORM = Form("a job", "job: orders-prices", JobInvalid)


def load_job(file: File) -> tuple[Job, JobConfig]:
    """Load a job and its options from a file; JobInvalid lists every problem, a line each."""
    text = read_text(lambda: file.open("rb"), str(file), FORM)
    written, places = parse_yaml(text, str(file), FORM)
    document, missing = with_variables(written, os.environ)
    if missing:
        raise _invalid(missing, file, places)
    if "job" not in document and "query" in document:
        return _load_query(document, file, places)
    name = document.get("job")
    if not isinstance(name, str):
        path: Path = ("job",) if name is not None else ()
        sentence = "`job` names no job; add it, such as `job: orders-prices`"
        raise _invalid([(path, sentence)], file, places)
    try:
        job = find_job(name)
    except JobInvalid as error:
        raise _invalid([(("job",), str(error))], file, places) from error
    try:
        config = job.Config.model_validate(document, by_alias=True, by_name=False)
    except ValidationError as error:
        raise _invalid(sentences(error, job.Config), file, places) from error
    found = list(problems(config))
    if found:
        raise _invalid(found, file, places)
    return job, config


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
    sink = said.sink.model_dump(exclude_none=True)
    (kind,) = sink
    options = said.model_dump(exclude={*OF_THE_QUERY, "sink"})
    try:
        job, config = described(query, to=Sink(cast("Any", kind), sink[kind]), **options)
    except JobInvalid as error:
        message = f"{file}: {error}"
        raise JobInvalid(message) from error
    return cast("Job", job), config


def _invalid(found: list[tuple[Path, str]], file: File, places: Places) -> JobInvalid:
    """Make the error with a line for each problem, in the order of the file."""
    in_order = sorted(found, key=lambda one: place_of(one[0], places))
    lines = [problem_line(path, sentence, str(file), places) for path, sentence in in_order]
    return JobInvalid(together(lines))
