"""Reads the tables of the semantics pages and runs them like conformance vectors.

Lines are taken record by record with a restart in between, in threes, and as one batch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml

from headrace.contracts.time import parse_duration_ms
from headrace.spark_jobs.versioned.history import REJECTED
from tests.conformance.versioned import VALID_TO_OF_LATEST, run_vector

BATCH_SIZES = (1, 3, 1000)
_BLOCK = re.compile(r"```scenario\n(.*?)```", re.DOTALL)
_OUTPUT = re.compile(r"(\w+)@(-?\w+)=(\S+)")
_RESULT = re.compile(r"(?P<value>\S+) from (?P<start>\w+)(?: until (?P<end>\w+))?")
_STEPS = {"filter": ("filter", "keep_prefix"), "map": ("map_values", "suffix")}
OPERATORS = {
    "store": "versioned_store",
    "stream-table": "stream_table_join",
    "table-table": "table_table_join",
    "foreign-key": "fk_join",
    "table": "table_ops",
    "aggregate": "table_aggregate",
}
"""The vectors' name for a scenario's first word."""


def scenarios(page: Path) -> Iterator[tuple[str, str]]:
    """The scenarios of a page, each with the line it begins at."""
    text = page.read_text("utf-8")
    for block in _BLOCK.finditer(text):
        line = text.count("\n", 0, block.start(1)) + 1
        yield f"{page.name}:{line}", block[1]


def disagreements(scenario: str) -> list[str]:
    """Where what leaves is not what the table says."""
    vector = _vector(scenario)
    return [
        f"in batches of {size}: {found}"
        for size in BATCH_SIZES
        for found in run_vector(vector, size)
    ]


def _vector(scenario: str) -> dict[str, Any]:
    head, *lines = scenario.splitlines()
    ((kind, options),) = yaml.safe_load(head).items()
    inputs: list[dict[str, Any]] = []
    outputs: list[dict[str, Any]] = []
    for line in lines:
        if line.startswith("#"):
            continue
        given, _, told = line.partition("->")
        number = len(inputs)
        words = given.split()
        if kind == "store":
            inputs.append(_call(*words))
            outputs.append({"after_input": number, "result": _result(words[0], told)})
        else:
            inputs.append(_record(number, *words))
            outputs += _outputs(number, told)
    return {
        "operator": OPERATORS[kind],
        "config": _config(kind, options),
        "input": inputs,
        "output": outputs,
    }


def _config(kind: str, options: dict[str, Any]) -> dict[str, Any]:
    config = dict(options)
    for side in {"table", "left", "right"} & options.keys():
        config[side] = _table(options[side])
    steps = [
        {"op": operation, argument: options[step]}
        for step, (operation, argument) in _STEPS.items()
        if step in options
    ]
    match kind:
        case "store":
            return {"history_retention_ms": _time_ms(options["retention"])}
        case "stream-table":
            grace_ms = _time_ms(options["grace"]) if "grace" in options else None
            return config | {"grace_ms": grace_ms, "table_ops": steps}
        case "table":
            return config | {"ops": steps}
        case "aggregate":
            group = options["by"].replace("-", "_")
            return config | {"group_by": group, "agg": options["function"]}
        case _:
            return config


def _table(described: str) -> dict[str, Any]:
    if described == "plain":
        return {"versioned": False}
    return {"versioned": True, "history_retention_ms": _time_ms(described)}


def _record(offset: int, side: str, key: str, time: str, value: str) -> dict[str, Any]:
    if side == "progress":
        return {"progress": _time_ms(time)}
    return {
        "topic": side,
        "key": _text(key),
        "value": _text(value),
        "ts": _time_ms(time),
        "offset": offset,
    }


def _outputs(number: int, told: str) -> list[dict[str, Any]]:
    found = takewhile(bool, map(_OUTPUT.fullmatch, told.split()))
    return [
        {
            "after_input": number,
            "key": _text(output[1]),
            "ts": _time_ms(output[2]),
            "value": _text(output[3]),
        }
        for output in found
        if output
    ]


def _call(call: str, key: str, time: str, value: str) -> dict[str, Any]:
    operation = {"op": call.replace("as-of", "get_as_of"), "key": key, "value": _text(value)}
    return operation if time == "-" else operation | {"ts": _time_ms(time)}


def _result(call: str, told: str) -> dict[str, Any] | None:
    result = re.split(r"\s{2,}", told.strip())[0]
    if result == "null":
        return None
    if result == "latest":
        return {"outcome": "latest", "valid_to": VALID_TO_OF_LATEST}
    if result == "refused":
        return {"outcome": "rejected", "valid_to": REJECTED}
    if result.startswith("until "):
        return {"outcome": "superseded", "valid_to": _time_ms(result.removeprefix("until "))}
    version = _RESULT.fullmatch(result)
    assert version, f"`{result}` is no result"
    answer = {"value": version["value"], "valid_from": _time_ms(version["start"])}
    end_ms = _time_ms(version["end"]) if version["end"] else None
    return answer | {"valid_to": end_ms} if call == "as-of" else answer


def _text(word: str) -> str | None:
    return None if word == "null" else word


def _time_ms(text: str | int) -> int:
    if isinstance(text, str) and text.startswith("-"):
        return -parse_duration_ms(text[1:])
    return parse_duration_ms(text)
