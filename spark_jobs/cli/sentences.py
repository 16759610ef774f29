"""Describe the problems of a job's options as sentences with their places."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from headrace.contracts.problem_text import Path, meant, sentence_of, show

EXAMPLES = {
    "job": "job: orders-prices",
    "query": "query: SELECT key, amount FROM orders",
    "streams": "streams: {orders: {topic: orders.cleaned, schema: order_id STRING}}",
    "tables": "tables: {prices: {topic: prices.cleaned, schema: price_cents BIGINT}}",
    "inputs": "inputs: {orders: {topic: orders.cleaned}}",
    "schema": "schema: order_id STRING, quantity BIGINT",
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
    "iceberg": "iceberg: {folder: tables/orders}",
    "table": "table: lake.sales.orders",
    "parquet": "parquet: {folder: tables/orders}",
    "console": "console: {}",
    "late": "late: {topic: orders.late}",
    "hot-keys": "hot-keys: [product-1]",
    "cold-history": "cold-history: {folder: tables/prices}",
    "reader": 'reader: {kafka.request.timeout.ms: "15000"}',
    "writer": "writer: {compression.type: zstd}",
    "spark": "spark: {spark.driver.memory: 2g}",
}
"""For options of every job that are required or are mappings; a job's own options have none."""
_ACCESS = {"kafka": "kafka: {security-protocol: SSL}"}
_SECRETS = (("sasl-password",), ("ssl-key-password",))
_ANY_NAME = "NAME"
"""Stands in a place for a name that the user chooses."""


def sentences(error: ValidationError, config: type[BaseModel]) -> list[tuple[Path, str]]:
    """Describe each problem of a job's options, with its place."""
    found = error.errors(include_url=False)
    misspelt = [
        meant(details["loc"], _known(config, details["loc"]), _elsewhere(config, details["loc"]))
        for details in found
        if details["type"] == "extra_forbidden"
    ]
    return [
        (details["loc"], _sentence(details, config))
        for details in found
        if details["type"] != "missing" or details["loc"] not in misspelt
        # An option that goes by another one has no value where something else is wrong.
        if details["type"] != "default_factory_not_called"
    ]


def _known(config: type[BaseModel], path: Path) -> list[str]:
    """Return the names of all options that may stand where the last of a path does.

    A job of one's own may have lists and mappings of options; their names are unknown.
    """
    kind: Any = config
    for step in path[:-1]:
        model = _model_of(kind)
        if get_origin(kind) is dict:
            kind = get_args(kind)[1]
        else:
            kind = None if model is None else _options(model).get(step)
    model = None if get_origin(kind) is dict else _model_of(kind)
    return [] if model is None else list(map(str, _options(model)))


def _elsewhere(config: type[BaseModel], path: Path) -> list[str]:
    """Return the mappings that have the option at the end of a path; those inside its own first."""
    *parents, name = path
    owners = [place for option, place in _places(config, (), ()) if option == name]
    inside = [place for place in owners if parents and place[: len(parents)] == tuple(parents)]
    return [_named(place) for place in inside or owners]


def _named(place: Path) -> str:
    return f"`{'.'.join(map(str, place))}`" if place else "the job itself"


def _places(kind: Any, place: Path, within: tuple[Any, ...]) -> Iterator[tuple[str, Path]]:
    """Yield every option that a kind of value has, however deep, with its place."""
    if get_origin(kind) is dict:
        yield from _places(get_args(kind)[1], (*place, _ANY_NAME), within)
        return
    model = _model_of(kind)
    if model is None or model in within:
        return
    for option, inner in _options(model).items():
        yield str(option), place
        yield from _places(inner, (*place, option), (*within, model))


def _model_of(kind: Any) -> type[BaseModel] | None:
    """Return the first model that a value of a kind may be."""
    choices = (kind, *get_args(kind))
    models = [one for one in choices if isinstance(one, type) and issubclass(one, BaseModel)]
    return models[0] if models else None


def _options(model: type[BaseModel]) -> dict[int | str, Any]:
    """Return the type of each option by its name in a file."""
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def _sentence(details: ErrorDetails, config: type[BaseModel]) -> str:
    known = _known(config, details["loc"]) if details["loc"] else []
    if details["loc"][-1:] in _SECRETS and details["type"] == "string_type":
        return "this secret is not text; write it in quotes"
    is_access = details["loc"] == ("kafka",)
    elsewhere = _elsewhere(config, details["loc"]) if details["loc"] else []
    examples = EXAMPLES | _example_of_input(details["loc"]) | (_ACCESS if is_access else {})
    sentence = sentence_of(details, known, examples, elsewhere)
    if sentence is None:
        # A job of one's own may declare any type that pydantic knows.
        reason = details["msg"].removeprefix("Input should be ")
        sentence = f"{show(details['input'])} cannot stand here; it should be {reason}"
    return sentence


def _example_of_input(path: Path) -> dict[str, str]:
    """Return the example for a stream or a table, whose name the user has chosen."""
    if path[-2:-1] in {("streams",), ("tables",)}:
        return {str(path[-1]): f"{path[-1]}: {{topic: orders.cleaned, schema: order_id STRING}}"}
    return {}
