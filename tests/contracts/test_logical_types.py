"""Avro's logical types: the invalid ones are ignored, and no value of a valid one is lost."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import pytest
from fastavro import schemaless_writer

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


@pytest.mark.parametrize(("size", "bytes_before"), [(None, b"\x06"), (3, b"")])
def test_a_decimal_of_more_digits_than_its_schema_says_keeps_them_all(
    size: int | None, bytes_before: bytes
) -> None:
    kind: dict[str, Any] = {"type": "bytes"}
    if size is not None:
        kind = {"type": "fixed", "name": "F", "size": size}
    whole = json.dumps(kind | {"logicalType": "decimal", "precision": 4, "scale": 2})
    read = schemas(Schema("AVRO", whole)).read_field
    one, other = (
        read(framed(1, bytes_before + number.to_bytes(3, "big", signed=True)), ())
        for number in (-1_234_567, -1_234_568)
    )
    assert (one, other) == ("-12345.67", "-12345.68")


@pytest.mark.parametrize(
    ("kind", "logical", "written", "found"),
    [
        ("int", "date", 19_000, "2022-01-08"),
        ("int", "date", -719_162, "0001-01-01"),
        ("int", "date", -719_163, "+0000-12-31"),
        ("int", "date", -719_529, "-0001-12-31"),
        ("int", "date", 2_932_896, "9999-12-31"),
        ("int", "date", 2_932_897, "+10000-01-01"),
        ("int", "time-millis", 1_500, "00:00:01.500000"),
        ("int", "time-millis", 86_400_000, "24:00:00.000000"),
        ("int", "time-millis", -1, "-00:00:00.001000"),
        ("long", "time-micros", 90_061_000_001, "25:01:01.000001"),
        ("long", "timestamp-micros", 1_500_000, "1970-01-01T00:00:01.500000+00:00"),
        ("long", "timestamp-micros", (1 << 63) - 1, "+294247-01-10T04:00:54.775807+00:00"),
        ("long", "local-timestamp-millis", 1_500, "1970-01-01T00:00:01.500000"),
        ("long", "local-timestamp-millis", -(1 << 63), "-292275055-05-16T16:47:04.192000"),
        ("long", "local-timestamp-micros", (1 << 63) - 1, "+294247-01-10T04:00:54.775807"),
    ],
)
def test_a_time_is_text_also_in_a_year_that_python_does_not_know(
    kind: str, logical: str, written: int, found: str
) -> None:
    fields = [{"name": "at", "type": {"type": kind, "logicalType": logical}}]
    whole = {"type": "record", "name": "Click", "fields": [*fields, {"name": "id", "type": "int"}]}
    body = BytesIO()
    schemaless_writer(body, _without_logical(whole), {"at": written, "id": 7})
    read = schemas(Schema("AVRO", json.dumps(whole))).read_field
    value = framed(1, body.getvalue())
    assert (read(value, ("at",)), read(value, ("id",))) == (found, 7)


def _without_logical(whole: dict[str, Any]) -> dict[str, Any]:
    fields = [field | {"type": _plain(field["type"])} for field in whole["fields"]]
    return whole | {"fields": fields}


def _plain(kind: Any) -> Any:
    return kind["type"] if isinstance(kind, dict) else kind
