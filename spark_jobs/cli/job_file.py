"""Read a job from YAML; what is wrong is one sentence a problem, with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from contracts.errors import JobInvalid
from contracts.pipeline_text import Path as KeyPath
from contracts.pipeline_text import Places, problem_line, show
from spark_jobs.jobs.config import JobConfig
from spark_jobs.jobs.run import Job, find_job


def load_job(file: Path) -> tuple[Job, JobConfig]:
    """The job in a file, and its options; JobInvalid says all that is wrong, a line each."""
    document, places = _parse(_read(file), str(file))
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


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8-sig")
    except FileNotFoundError as error:
        message = f"{file}: there is no such file; check the name and the folder"
        raise JobInvalid(message) from error
    except OSError as error:
        message = f"{file}: cannot be read ({error.strerror}); name a file that can be"
        raise JobInvalid(message) from error
    except UnicodeDecodeError as error:
        message = f"{file}: the file is not UTF-8; save it as UTF-8"
        raise JobInvalid(message) from error


def _parse(text: str, file: str) -> tuple[dict[str, Any], Places]:
    try:
        node = yaml.compose(text, yaml.SafeLoader)
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = file if mark is None else f"{file}:{mark.line + 1}:{mark.column + 1}"
        message = f"{place}: this is not YAML; check quotes, brackets and indentation just above"
        raise JobInvalid(message) from error
    if not isinstance(document, dict):
        message = f"{file}: a job is a mapping; begin it with `job: orders-prices`"
        raise JobInvalid(message)
    places: dict[KeyPath, tuple[int, int]] = {}
    _note_places(node, (), places)
    return document, places


def _note_places(
    node: yaml.Node | None, path: KeyPath, places: dict[KeyPath, tuple[int, int]]
) -> None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = (*path, str(key.value))
            places[inner] = (key.start_mark.line + 1, key.start_mark.column + 1)
            _note_places(value, inner, places)


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
