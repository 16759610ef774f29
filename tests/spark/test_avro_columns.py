"""Values of plain schemas, which are read many at once, are those that are read one by one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from headrace.contracts.serde.registered import FRAME_BYTES
from headrace.spark_jobs.operators.arriving import RegisteredCheck
from headrace.spark_jobs.read.avro_columns import PlainRecord, schemas_of
from headrace.spark_jobs.read.json_text import JsonCheck
from headrace.spark_jobs.read.registry import Asked, as_json
from tests.contracts.registered import avro, framed
from tests.runtime.registry_server import RegistryServer, registry_server

INTEGERS = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-200, 200)
OF_KIND: dict[str, st.SearchStrategy[Any]] = {
    "string": st.text() | st.just("é" * 70),
    "int": st.integers(-(1 << 31), (1 << 31) - 1),
    "long": INTEGERS,
    "boolean": st.booleans(),
}
NAMES = st.sampled_from(["id", "price_cents", "since", "isPaid"])
TYPES: tuple[DataType, ...] = (
    StringType(),
    ShortType(),
    IntegerType(),
    LongType(),
    BooleanType(),
    DoubleType(),
    StructType().add("id", "long"),
)


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryServer]:
    """Serve schemas to all examples."""
    with registry_server() as server:
        yield server


@st.composite
def fields_of(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw the fields of a schema, few of them in no column."""
    fields = []
    for name in draw(st.lists(NAMES, min_size=1, unique=True)):
        kind: Any = draw(st.sampled_from([*OF_KIND]))
        if kind == "long" and draw(st.booleans()):
            kind = {"type": "long", "logicalType": "timestamp-millis"}
        unions = [[kind, "null"], ["null", kind], [kind]]
        fields.append({"name": name, "type": draw(st.sampled_from([kind, *unions]))})
    return fields


def schema_of(fields: list[dict[str, Any]]) -> str:
    """Return the schema of a record with these fields."""
    return json.dumps({"type": "record", "name": "row", "fields": fields})


@st.composite
def bodies_of(draw: st.DrawFn, fields: list[dict[str, Any]]) -> bytes:
    """Draw the bytes of a row, or such as are none."""
    row = {}
    for field in fields:
        kinds = field["type"] if isinstance(field["type"], list) else [field["type"]]
        kind = draw(st.sampled_from(kinds))
        name = kind["type"] if isinstance(kind, dict) else kind
        row[field["name"]] = None if name == "null" else draw(OF_KIND[name])
    body = bytearray(avro(0, schema_of(fields), row)[FRAME_BYTES:])
    match draw(st.sampled_from(["whole"] * 6 + ["cut", "longer", "other", "any"])):
        case "cut":
            del body[draw(st.integers(0, len(body))) :]
        case "longer":
            body += draw(st.binary(min_size=1, max_size=3))
        case "other" if body:
            body[draw(st.integers(0, len(body) - 1))] = draw(st.integers(0, 255))
        case "any":
            return draw(st.binary(max_size=12))
        case _:
            pass
    return bytes(body)


@st.composite
def columns_of(draw: st.DrawFn) -> StructType:
    """Draw the columns that a job wants of values."""
    names = draw(st.lists(NAMES, min_size=1, unique=True))
    drawn = [(name, draw(st.sampled_from(TYPES)), draw(st.booleans())) for name in names]
    return StructType([StructField(*each) for each in drawn])


def one_by_one(
    values: list[bytes | None], check: JsonCheck, asked: Asked
) -> tuple[list[bytes | None], dict[int, str]]:
    """Return what values are as JSON, or as they are, and their problems."""
    read = [as_json(value, asked) for value in values]
    problems = check.problems([each.json for each in read])
    problems |= {at: each.problem for at, each in enumerate(read) if each.problem is not None}
    made = [value if at in problems else read[at].json for at, value in enumerate(values)]
    return made, problems


@given(st.data())
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_many_values_are_read_as_each_of_them(
    registry: RegistryServer, data: st.DataObject
) -> None:
    asked = Asked(registry.url, "", "")
    values: list[bytes | None] = []
    for _ in range(data.draw(st.integers(1, 2))):
        fields = data.draw(fields_of())
        number = registry.register("rows-value", schema_of(fields))
        bodies = data.draw(st.lists(bodies_of(fields), max_size=6))
        values += [framed(number, body) for body in bodies]
    others = [None, b"", b"\x00\x00", b"{}", framed(1 << 31, b""), framed(9_999, b"")]
    values = data.draw(st.permutations(values + data.draw(st.lists(st.sampled_from(others)))))
    check = JsonCheck(data.draw(columns_of()))
    column = pa.array([b"before", *values], pa.binary())[1:]
    made, problems = RegisteredCheck(check, asked).read(column)
    assert (made.to_pylist(), problems) == one_by_one(values, check, asked)


ORDER: list[dict[str, Any]] = [
    {"name": "id", "type": "string"},
    {"name": "price_cents", "type": ["null", "long"]},
    {"name": "isPaid", "type": "boolean"},
]
"""Fields of each kind, and one that may be null."""


def test_plain_values_are_read_together() -> None:
    rows: list[dict[str, Any]] = [
        {"id": 'a"é', "price_cents": -300, "isPaid": True},
        {"id": "", "price_cents": None, "isPaid": False},
        {"id": "b" * 300, "price_cents": 1 << 61, "isPaid": True},
    ]
    values = [avro(7, schema_of(ORDER), row) for row in rows]
    broken = [values[0][:-1], framed(7, b"\x02a\x00\x02"), framed(7, b"\x02\xff\x00\x01")]
    column = pa.array([None, *values, *broken, b"{}"], pa.binary())
    numbers = schemas_of(column)
    assert numbers.tolist() == [-1, 7, 7, 7, 7, 7, 7, -1]
    plain = PlainRecord.of(schema_of(ORDER))
    assert plain is not None
    fields, are_whole = plain.read(column.slice(0, 6), (numbers == 7).nonzero()[0][:5])
    assert are_whole.tolist() == [True, True, True, False, False]
    assert fields.filter(pa.array(are_whole)).to_pylist() == rows
    # If a text is no UTF-8, all values are read one by one.
    assert not plain.read(column, (numbers == 7).nonzero()[0])[1].any()


def test_columns_have_the_problems_of_their_values() -> None:
    schema = StructType().add("id", "string", nullable=False).add("isPaid", "boolean")
    schema = schema.add("since", "string", nullable=False).add("price_cents", "short")
    check = JsonCheck(schema)
    rows: list[dict[str, Any]] = [
        {"id": "a", "price_cents": 1, "isPaid": True},
        {"id": None, "price_cents": 40_000, "isPaid": None},
        {"id": None, "price_cents": None, "isPaid": None},
        {"id": "b", "price_cents": -32_769, "isPaid": False},
    ]
    problems = check.problems_in(pa.array(rows))
    assert problems == check.problems([json.dumps(row).encode() for row in rows])
    assert problems[2] == "the field `id` is missing, null, or of another type"
    rows = [{**row, "isPaid": "true"} for row in rows]
    problems = check.problems_in(pa.array(rows))
    assert problems == check.problems([json.dumps(row).encode() for row in rows])


@pytest.mark.parametrize(
    "schema",
    [
        "string",
        {"type": "record", "name": "row", "fields": []},
        {"type": "record", "name": "row", "fields": [{"name": "a", "type": "double"}]},
        {"type": "record", "name": "row", "fields": [{"name": "a", "type": ["int", "string"]}]},
        {"type": "record", "name": "row", "fields": [{"name": "a", "type": ["null"]}]},
        {
            "type": "record",
            "name": "row",
            "fields": [{"name": "a", "type": {"type": "int", "logicalType": "date"}}],
        },
        {
            "type": "record",
            "name": "row",
            "fields": [{"name": "a", "type": {"type": "array", "items": "int"}}],
        },
    ],
)
def test_other_schemas_are_read_one_by_one(schema: Any) -> None:
    assert PlainRecord.of(json.dumps(schema)) is None
