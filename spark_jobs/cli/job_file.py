"""Read a job from YAML; what is wrong is one sentence a problem, with its place."""

from __future__ import annotations

from pathlib import Path as File
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from contracts.errors import JobInvalid
from contracts.pipeline_text import Path, meant, problem_line, show, unknown
from contracts.yaml_text import Form, parse_yaml, read_text
from spark_jobs.jobs.config import JobConfig
from spark_jobs.jobs.run import Job, find_job

FORM = Form("a job", "job: orders-prices", JobInvalid)


def load_job(file: File) -> tuple[Job, JobConfig]:
    """The job in a file, and its options; JobInvalid says all that is wrong, a line each."""
    text = read_text(file.read_bytes, str(file), FORM)
    document, places = parse_yaml(text, str(file), FORM)
    name = document.get("job")
    if not isinstance(name, str):
        message = problem_line(
            ("job",) if name is not None else (),
            "`job` names no job; add it, such as `job: orders-prices`",
            str(file),
            places,
        )
        raise JobInvalid(message)
    try:
        job = find_job(name)
    except JobInvalid as error:
        message = problem_line(("job",), str(error), str(file), places)
        raise JobInvalid(message) from error
    try:
        config = job.Config.model_validate(document, by_alias=True, by_name=False)
    except ValidationError as error:
        found = error.errors(include_url=False)
        misspelt = [
            meant(details["loc"], _known(job.Config, details["loc"]))
            for details in found
            if details["type"] == "extra_forbidden"
        ]
        problems = [
            problem_line(details["loc"], _sentence(details, job.Config), str(file), places)
            for details in found
            if details["type"] != "missing" or details["loc"] not in misspelt
        ]
        raise JobInvalid("\n".join(problems)) from error
    return job, config


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
    name = details["loc"][-1] if details["loc"] else ""
    match details["type"]:
        case "missing":
            return f"`{name}` is missing; add it"
        case "extra_forbidden":
            return unknown(details["loc"], _known(config, details["loc"]))
        case "value_error":
            return str(details["ctx"]["error"])
        case _:
            reason = details["msg"].removeprefix("Input should be ")
            return f"{show(details['input'])} cannot stand here; it should be {reason}"
