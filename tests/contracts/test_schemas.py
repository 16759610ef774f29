"""The schema that editors use is the one that we validate with."""

from __future__ import annotations

import json
from importlib.resources import files

from headrace.contracts.policies import OPERATOR_KINDS, WINDOW_KINDS
from headrace.contracts.schemas import SCHEMA_FILE, pipeline_schema


def test_the_schema_that_is_checked_in_is_the_newest() -> None:
    checked_in = (files("headrace.contracts.schemas") / SCHEMA_FILE).read_text()
    command = f"python -m headrace.contracts.schemas > contracts/schemas/{SCHEMA_FILE}"
    assert checked_in == pipeline_schema(), f"run: {command}"


def test_an_operator_is_its_kind_and_its_options() -> None:
    schema = json.loads(pipeline_schema())
    kinds = [
        next(iter(item["properties"]))
        for item in schema["properties"]["operators"]["items"]["oneOf"]
    ]
    assert kinds == list(OPERATOR_KINDS)
    for policy in OPERATOR_KINDS.values():
        assert "kind" not in schema["$defs"][policy.__name__]["properties"]
    for window in WINDOW_KINDS.values():
        assert "kind" in schema["$defs"][window.__name__]["required"]


def test_optional_fields_are_not_required() -> None:
    schema = json.loads(pipeline_schema())
    assert schema["required"] == ["pipeline", "source", "operators", "sink"]
    assert schema["$defs"]["ReorderPolicy"]["required"] == ["grace"]
