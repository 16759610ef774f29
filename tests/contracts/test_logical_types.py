"""Avro's logical types that are invalid, which readers ignore."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.contracts.serde.registered import Schema
from tests.contracts.registered import framed
from tests.contracts.test_registered import schemas


@pytest.mark.parametrize(
    "logical",
    [
        {"logicalType": "decimal"},
        {"logicalType": "decimal", "precision": 0},
        {"logicalType": "decimal", "precision": "4"},
        {"logicalType": "decimal", "precision": 4, "scale": 5},
        {"logicalType": "decimal", "precision": 4, "scale": -1},
        {"logicalType": "decimal", "precision": 4, "scale": None},
        {"logicalType": ["decimal"]},
        {"logicalType": {"name": "decimal"}},
        {"logicalType": 7},
        {"logicalType": "unknown"},
    ],
    ids=json.dumps,
)
def test_an_invalid_logical_type_is_ignored(logical: dict[str, Any]) -> None:
    whole = json.dumps({"type": "bytes"} | logical)
    assert schemas(Schema("AVRO", whole)).read_field(framed(1, b"\x04\x04\xd2"), ()) == "BNI="


@pytest.mark.parametrize(("precision", "found"), [(4, "12.34"), (5, "BNI=")])
def test_a_decimal_that_its_fixed_bytes_cannot_hold_is_read_as_bytes(
    precision: int, found: str
) -> None:
    fixed = {"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "scale": 2}
    whole = json.dumps(fixed | {"precision": precision})
    assert schemas(Schema("AVRO", whole)).read_field(framed(1, b"\x04\xd2"), ()) == found
