"""Describe the problems of a job's options as sentences with their places."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from headrace.contracts.problem_text import Path, meant, sentence_of, show

_EXAMPLES = {
    "job": "job: orders-prices",
    "name": "name: orders-priced",
    "servers": "servers: localhost:9092",
    "checkpoint": "checkpoint: state/orders-priced",
    "retention": "retention: 30d",
    "topic": "topic: orders.cleaned",
    "folder": "folder: tables/orders",
    "sink": "sink: {kafka: {topic: orders.priced}}",
    "registry": "registry: {url: http://127.0.0.1:8081}",
    "url": "url: http://127.0.0.1:8081",
    "kafka": "kafka: {topic: orders.priced}",
    "delta": "delta: {folder: tables/orders}",
    "parquet": "parquet: {folder: tables/orders}",
    "console": "console: {}",
    "late": "late: {topic: orders.late}",
    "cold-history": "cold-history: {folder: tables/prices}",
    "reader": 'reader: {kafka.request.timeout.ms: "15000"}',
    "writer": "writer: {compression.type: zstd}",
    "spark": "spark: {spark.driver.memory: 2g}",
}
_ACCESS = {"kafka": "kafka: {security-protocol: SSL}"}
_SECRETS = (("sasl-password",), ("ssl-key-password",))
"""For options of every job that are required or are mappings; a job's own options have none."""


def sentences(error: ValidationError, config: type[BaseModel]) -> list[tuple[Path, str]]:
    """Describe each problem of a job's options, with its place."""
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
    """Return the names of all options that may stand where the last of a path does.

    A job of one's own may have lists and mappings of options; their names are unknown.
    """
    options = _options(config)
    for step in path[:-1]:
        inner = options.get(step)
        choices = (inner, *get_args(inner))
        models = [one for one in choices if isinstance(one, type) and issubclass(one, BaseModel)]
        options = _options(models[0]) if models else {}
    return [str(name) for name in options]


def _options(model: type[BaseModel]) -> dict[int | str, Any]:
    """Return the type of each option by its name in a file."""
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def _sentence(details: ErrorDetails, config: type[BaseModel]) -> str:
    known = _known(config, details["loc"]) if details["loc"] else []
    if details["loc"][-1:] in _SECRETS and details["type"] == "string_type":
        return "this secret is not text; write it in quotes"
    is_access = details["loc"] == ("kafka",)
    sentence = sentence_of(details, known, _EXAMPLES | (_ACCESS if is_access else {}))
    if sentence is None:
        # A job of one's own may declare any type that pydantic knows.
        reason = details["msg"].removeprefix("Input should be ")
        sentence = f"{show(details['input'])} cannot stand here; it should be {reason}"
    return sentence
