"""Read a job from YAML; what is wrong is one sentence a problem, with its place."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from contracts.errors import JobInvalid
from contracts.pipeline_text import problem_line, show
from contracts.yaml_text import Form, parse_yaml, read_text
from spark_jobs.jobs.config import JobConfig
from spark_jobs.jobs.run import Job, find_job

FORM = Form("a job", "job: orders-prices", JobInvalid)


def load_job(file: Path) -> tuple[Job, JobConfig]:
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
        problems = [
            problem_line(details["loc"], _sentence(details), str(file), places)
            for details in error.errors(include_url=False)
        ]
        raise JobInvalid("\n".join(problems)) from error
    return job, config


def _sentence(details: ErrorDetails) -> str:
    name = details["loc"][-1] if details["loc"] else ""
    match details["type"]:
        case "missing":
            return f"`{name}` is missing; add it"
        case "extra_forbidden":
            return f"`{name}` is not known here; remove it, or check its spelling"
        case "value_error":
            return str(details["ctx"]["error"])
        case _:
            reason = details["msg"].removeprefix("Input should be ")
            return f"{show(details['input'])} cannot stand here; it should be {reason}"
