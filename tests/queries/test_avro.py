"""An Avro schema gives the columns that its values have in a registry's JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.contracts.errors import SchemaRefused


def record(*fields: tuple[str, Any]) -> str:
    """Write a schema of these fields."""
    named = [{"name": name, "type": kind} for name, kind in fields]
    return json.dumps({"type": "record", "name": "Order", "fields": named})


def logical(kind: str, name: str, **more: object) -> dict[str, object]:
    """Write a logical type."""
    return {"type": kind, "logicalType": name, **more}


INNER = json.loads(record(("a", "int"), ("b", "bytes"))) | {"name": "Inner"}


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("string", "STRING"),
        (["null", "long"], "BIGINT"),
        ({"type": "int"}, "INT"),
        ({"type": {"type": "long"}}, "BIGINT"),
        (logical("long", "timestamp-millis"), "BIGINT"),
        (["null", logical("long", "timestamp-micros")], "TIMESTAMP"),
        (logical("int", "date"), "DATE"),
        (logical("string", "uuid"), "STRING"),
        (logical("bytes", "decimal", precision=9, scale=2), "DECIMAL(9, 2)"),
        ({"type": "enum", "name": "Colour", "symbols": ["RED"]}, "STRING"),
        ({"type": "array", "items": ["null", "double"]}, "ARRAY<DOUBLE>"),
        ({"type": "map", "values": "boolean"}, "MAP<STRING, BOOLEAN>"),
        (INNER, "STRUCT<a: INT, b: BINARY>"),
    ],
)  # fmt: skip
def test_each_type_is_that_of_a_column(kind: Any, column: str) -> None:
    ddl = hr.avro(record(("x", kind), ("order", "string")))
    assert ddl == f"x {column}, order STRING"
    assert hr.stream("orders", ddl).columns == ("x", "order")


def test_a_schema_is_a_file_too_and_names_its_types_again(tmp_path: Path) -> None:
    colour = {"type": "enum", "name": "Colour", "symbols": ["RED"]}
    file = tmp_path / "order.avsc"
    file.write_text(record(("first", colour), ("other", ["null", "Colour"])))
    assert hr.avro(str(file)) == "first STRING, other STRING"


def test_a_type_is_named_again_by_its_full_name() -> None:
    colour = {"type": "enum", "name": "Colour", "namespace": "shop.paint", "symbols": ["RED"]}
    home = {"type": "record", "name": "Home", "fields": [{"name": "wall", "type": "Size"}]}
    size = {"type": "fixed", "name": "Size", "size": 2}
    fields = (("a", colour), ("b", "shop.paint.Colour"), ("c", size), ("d", home), ("e", "Home"))
    named = json.loads(record(*fields)) | {"namespace": "shop"}
    home_columns = "STRUCT<wall: BINARY>"
    wanted = f"a STRING, b STRING, c BINARY, d {home_columns}, e {home_columns}"
    assert hr.avro(json.dumps(named)) == wanted
    with pytest.raises(SchemaRefused, match=r"the field `x` is a `shop\.Order` inside of"):
        hr.avro(json.dumps(json.loads(record(("x", "shop.Order"))) | {"namespace": "shop"}))


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (record(("x", ["int", "string"])), "the field `x` may be of several types"),
        (record(("x", ["null", "Order"])), "the field `x` is a `Order` inside of a `Order`"),
        (record(("x", "Unknown")), "the field `x` is of type `Unknown`"),
        ('{"type": "string"}', "columns are those of a record"),
        ("{", "is not an Avro schema"),
        ('{"type": "record", "fields": [{"name": "x"}]}', "is not an Avro schema: "),
        ('{"type": "record", "fields": [3]}', "is not an Avro schema: "),
        ("no.avsc", "the file `no.avsc` cannot be read"),
    ],
)
def test_a_schema_without_columns_is_a_sentence(schema: str, said: str) -> None:
    with pytest.raises(SchemaRefused) as refused:
        hr.avro(schema)
    assert said in str(refused.value)
