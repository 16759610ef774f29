"""Check options that Python gives as a mapping, by the model of a file's options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from headrace.contracts.errors import JobInvalid
from headrace.contracts.problem_text import sentence_of

Model = TypeVar("Model", bound=BaseModel)


def taken(model: type[Model], given: Mapping[str, Any] | Model, option: str) -> Model:
    """Return the options as their model; JobInvalid says in a sentence what is wrong."""
    try:
        return model.model_validate(given)
    except ValidationError as error:
        details = error.errors(include_url=False)[0]
        known = [field.alias or name for name, field in model.model_fields.items()]
        said = sentence_of(details, known, {}) or details["msg"]
        name = "".join(f".{step}" for step in details["loc"])
        message = f"`{option}{name}`: {said}"
        raise JobInvalid(message) from error
