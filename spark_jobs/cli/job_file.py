"""Read a job from YAML; what is wrong is one sentence a problem, with its place."""

from __future__ import annotations

from pathlib import Path as File
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from contracts.errors import JobInvalid
from contracts.problem_text import (
    Path,
    Places,
    meant,
    place_of,
    problem_line,
    sentence_of,
    show,
    together,
)
from contracts.yaml_text import Form, parse_yaml, read_text
from spark_jobs.jobs.config import JobConfig
from spark_jobs.jobs.fits import problems
from spark_jobs.jobs.run import Job, find_job

FORM = Form("a job", "job: orders-prices", JobInvalid)
_EXAMPLES = {
    "job": "job: orders-prices",
    "name": "name: orders-priced",
    "servers": "servers: localhost:9092",
    "checkpoint": "checkpoint: state/orders-priced",
    "retention": "retention: 30d",
    "topic": "topic: orders.cleaned",
    "folder": "folder: tables/orders",
    "sink": "sink: {kafka: {topic: orders.priced}}",
    "kafka": "kafka: {topic: orders.priced}",
    "delta": "delta: {folder: tables/orders}",
    "parquet": "parquet: {folder: tables/orders}",
    "console": "console: {}",
    "late": "late: {topic: orders.late}",
    "cold-history": "cold-history: {folder: tables/prices}",
    "reader": "reader: {kafka.security.protocol: SSL}",
    "writer": "writer: {security.protocol: SSL}",
    "spark": "spark: {spark.driver.memory: 2g}",
}
"""For options of every job that cannot be left out or are mappings; a job's own have none."""


def load_job(file: File) -> tuple[Job, JobConfig]:
    """The job in a file, and its options; JobInvalid says all that is wrong, a line each."""
    text = read_text(lambda: file.open("rb"), str(file), FORM)
    document, places = parse_yaml(text, str(file), FORM)
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
        raise _invalid(_sentences(error, job.Config), file, places) from error
    found = list(problems(config))
    if found:
        raise _invalid(found, file, places)
    return job, config


def _invalid(found: list[tuple[Path, str]], file: File, places: Places) -> JobInvalid:
    """A line for each, in the order of the file."""
    in_order = sorted(found, key=lambda one: place_of(one[0], places))
    lines = [problem_line(path, sentence, str(file), places) for path, sentence in in_order]
    return JobInvalid(together(lines))


def _sentences(error: ValidationError, config: type[BaseModel]) -> list[tuple[Path, str]]:
    found = error.errors(include_url=False)
    misspelt = [
        meant(details["loc"], _known(config, details["loc"]))
        for details in found
        if details["type"] == "extra_forbidden"
    ]
    return [
        (details["loc"], _sentence(details, config))
        for details in found
        if details["type"] != "missing" or details["loc"] not in misspelt
    ]


def _known(config: type[BaseModel], path: Path) -> list[str]:
    """The names of all options where the last of a path stands.

    A job of one's own may hold lists and mappings of options; of those none is named.
    """
    options = _options(config)
    for step in path[:-1]:
        inner = options.get(step)
        choices = (inner, *get_args(inner))
        models = [one for one in choices if isinstance(one, type) and issubclass(one, BaseModel)]
        options = _options(models[0]) if models else {}
    return [str(name) for name in options]


def _options(model: type[BaseModel]) -> dict[int | str, Any]:
    """What each option may hold, by its name in a file."""
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def _sentence(details: ErrorDetails, config: type[BaseModel]) -> str:
    known = _known(config, details["loc"]) if details["loc"] else []
    sentence = sentence_of(details, known, _EXAMPLES)
    if sentence is None:
        # A job of one's own may say anything that pydantic knows.
        reason = details["msg"].removeprefix("Input should be ")
        sentence = f"{show(details['input'])} cannot stand here; it should be {reason}"
    return sentence
