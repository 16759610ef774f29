"""Selectors read values with a registered schema; the tables of the page are true."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import ParseDict
from google.protobuf.message_factory import GetMessageClass

from headrace.contracts.errors import RecordUndecodable, SchemaAwaited
from headrace.contracts.record import Record
from headrace.contracts.selectors import select, select_number, select_timestamp_ms
from headrace.contracts.serde.json import Json
from headrace.contracts.serde.registered import Named, Schema, Schemas, numbers_in
from tests.contracts.registered import (
    CLICK_AVRO,
    Field,
    avro,
    click_file,
    framed,
    message_of,
    protobuf,
    serialized,
)

PAGE = Path(__file__).parents[2] / "contracts" / "semantics" / "registry.md"


def schemas(*known: Schema) -> Schemas:
    """Numbered from 1."""
    found = Schemas()
    for number, schema in enumerate(known, start=1):
        found.put(number, schema)
    return found


def record(value: bytes | None) -> Record:
    return Record(None, value, 0, (), "t", 0, 0)


def rows(head: str) -> list[list[str]]:
    """The rows of the page's table with that head, without the marks of code."""
    lines = iter(PAGE.read_text("utf-8").splitlines())
    next(line for line in lines if line.startswith(head))
    next(lines)
    found = []
    for line in lines:
        if not line.startswith("|"):
            break
        found.append([cell.strip().strip("`") for cell in line.strip("|").split("|")])
    return found


def field_of_avro(schema: str, datum: Any) -> Json:
    whole = json.dumps(
        {"type": "record", "name": "R", "fields": [{"name": "x", "type": json.loads(schema)}]}
    )
    value = avro(1, whole, {"x": datum})
    return schemas(Schema("AVRO", whole)).read_field(value, ("x",))


@pytest.mark.parametrize(("schema", "written", "found"), rows("| Avro |"))
def test_the_table_of_avro(schema: str, written: str, found: str) -> None:
    datum = json.loads(written)
    if "decimal" in schema:
        datum = int(datum).to_bytes(2, "big", signed=True)
    elif schema == "bytes":
        datum = b64decode(datum)
    assert json.dumps(field_of_avro(_plain(schema), datum)) == found


def _plain(schema: str) -> str:
    return schema if schema[0] in "{[" else json.dumps(schema)


_TYPES = {
    "string": Field.TYPE_STRING,
    "int64": Field.TYPE_INT64,
    "uint64": Field.TYPE_UINT64,
    "bool": Field.TYPE_BOOL,
    "double": Field.TYPE_DOUBLE,
    "bytes": Field.TYPE_BYTES,
}


def typed(declared: str) -> descriptor_pb2.FileDescriptorProto:
    """A file with one message, whose field `x` is declared so."""
    file = descriptor_pb2.FileDescriptorProto(name="x.proto", syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    message = file.message_type.add(name="R")
    words = declared.split()
    label = Field.LABEL_REPEATED if words[0] == "repeated" else Field.LABEL_OPTIONAL
    field = message.field.add(name="x", number=1, label=label)
    if words[0] == "optional":
        message.oneof_decl.add(name="_x")
        field.oneof_index, field.proto3_optional = 0, True
    kind = words[-1]
    if kind in _TYPES:
        field.type = _TYPES[kind]
    elif kind == "Colour":
        colours = file.enum_type.add(name="Colour")
        colours.value.add(name="RED", number=0)
        colours.value.add(name="BLUE", number=1)
        field.type, field.type_name = Field.TYPE_ENUM, ".Colour"
    elif kind.startswith("map<"):
        entry = message.nested_type.add(name="XEntry")
        entry.options.map_entry = True
        of_key = _TYPES[kind.removeprefix("map<").partition(",")[0]]
        entry.field.add(name="key", number=1, type=of_key, label=Field.LABEL_OPTIONAL)
        entry.field.add(name="value", number=2, type=Field.TYPE_INT64, label=Field.LABEL_OPTIONAL)
        field.label = Field.LABEL_REPEATED
        field.type, field.type_name = Field.TYPE_MESSAGE, ".R.XEntry"
    else:
        field.type, field.type_name = Field.TYPE_MESSAGE, f".{kind}"
    return file


def body_of(file: descriptor_pb2.FileDescriptorProto, written: str) -> bytes:
    """A message of the file as bytes, from what the page says was set."""
    pool = DescriptorPool()
    for module in (timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    message = GetMessageClass(pool.FindMessageTypeByName("R"))()
    if written != "not set":
        ParseDict({"x": json.loads(written)}, message)
    return bytes(message.SerializeToString())


@pytest.mark.parametrize(("declared", "written", "found"), rows("| Protobuf |"))
def test_the_table_of_protobuf(declared: str, written: str, found: str) -> None:
    file = typed(declared)
    value = framed(1, b"\x00" + body_of(file, written))
    read = schemas(Schema("PROTOBUF", serialized(file))).read_field(value, ("x",))
    assert json.dumps(read) == found


def test_ids_numbers_and_times_are_selected() -> None:
    known = schemas(Schema("AVRO", CLICK_AVRO))
    click = record(avro(1, CLICK_AVRO, {"id": "a", "at": 5_000}))
    read = known.read_field
    assert select("value.id", read)(click) == b"a"
    assert select("value.at", read)(click) == b"5000"
    assert select_number("value.at", read)(click) == 5_000
    assert select_timestamp_ms("value.at", read)(click) == 5_000
    assert select("value.id", read)(record(None)) is None
    assert select("value.missing", read)(click) is None
    # The whole value is bytes, its number included.
    assert select("value", read)(click) == click.value


def test_an_id_is_the_same_in_any_format() -> None:
    file = click_file()
    known = schemas(
        Schema("AVRO", CLICK_AVRO), Schema("JSON", "{}"), Schema("PROTOBUF", serialized(file))
    )
    values = [
        avro(1, CLICK_AVRO, {"id": "7", "at": 0}),
        framed(2, b'{"id": 7}'),
        protobuf(3, [1], message_of(file, "web.Click")(id="7")),
        protobuf(3, [0], message_of(file, "web.Other")(id="7")),
    ]
    assert {select("value.id", known.read_field)(record(value)) for value in values} == {b"7"}


def test_a_message_inside_a_message_is_found_by_its_indexes() -> None:
    file = click_file()
    page = message_of(file, "web.Click.Page")(path="/")
    known = schemas(Schema("PROTOBUF", serialized(file)))
    assert known.read_field(protobuf(1, [1, 0], page), ("path",)) == "/"
    with pytest.raises(RecordUndecodable, match=r"has no message 1\.3"):
        known.read_field(protobuf(1, [1, 3], page), ("path",))


def test_schemas_may_refer_to_others() -> None:
    user = '{"type": "record", "name": "User", "fields": [{"name": "id", "type": "string"}]}'
    order = '{"type": "record", "name": "Order", "fields": [{"name": "by", "type": "User"}]}'
    known = schemas(Schema("AVRO", order, (Named("User", user),)))
    assert known.read_field(framed(1, b"\x06bob"), ("by", "id")) == "bob"

    file = click_file()
    visit = descriptor_pb2.FileDescriptorProto(name="default", syntax="proto3")
    visit.dependency.append("other/name.proto")
    message = visit.message_type.add(name="Visit")
    message.field.add(
        name="first",
        number=1,
        type=Field.TYPE_MESSAGE,
        type_name=".web.Click",
        label=Field.LABEL_OPTIONAL,
    )
    inner = message_of(file, "web.Click")(id="7").SerializeToString()
    value = framed(1, b"\x00\x0a" + bytes([len(inner)]) + inner)
    reference = Named("other/name.proto", serialized(file))
    known = schemas(Schema("PROTOBUF", serialized(visit), (reference,)))
    assert known.read_field(value, ("first", "id")) == "7"


USER = {"type": "record", "name": "User", "namespace": "a", "fields": [
    {"name": "id", "type": "string"}]}  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "body", "found"),
    [
        (["null", "a.User"], b"\x02\x06bob", {"id": "bob"}),
        ("a.User", b"\x06bob", {"id": "bob"}),
        ({"type": "array", "items": "a.User"}, b"\x02\x06bob\0", [{"id": "bob"}]),
        ({"type": "map", "values": "a.User"}, b"\x02\x02k\x06bob\0", {"k": {"id": "bob"}}),
    ],
    ids=["union", "name", "array", "map"],
)
def test_a_schema_of_references_alone_is_read(schema: Any, body: bytes, found: Any) -> None:
    reference = Named("a.User", json.dumps(USER))
    known = schemas(Schema("AVRO", json.dumps(schema), (reference,)))
    assert known.read_field(framed(1, body), ()) == found


def test_a_number_without_an_end_is_not_read_to_the_end_of_the_value() -> None:
    known = schemas(Schema("PROTOBUF", serialized(click_file())))
    with pytest.raises(RecordUndecodable, match="the number of its message is too long"):
        known.read_field(framed(1, b"\xff" * 50_000), ())


@pytest.mark.parametrize(
    ("schema", "value", "sentence"),
    [
        (Schema("AVRO", CLICK_AVRO), b"", "does not begin with a zero byte"),
        (Schema("AVRO", CLICK_AVRO), b"\x00\x00\x00\x01", "does not begin with a zero byte"),
        (Schema("AVRO", CLICK_AVRO), b"\x01\x00\x00\x00\x01", "does not begin with a zero byte"),
        (
            Schema("AVRO", CLICK_AVRO),
            framed(1, b""),
            "the value is not of its schema 1 (ValueError: it ends within a field)",
        ),
        (Schema("AVRO", CLICK_AVRO), framed(1, b"\x02a\x00\x00"), "1 bytes are left behind"),
        (Schema("AVRO", "{"), framed(1, b""), "schema 1 cannot be used"),
        (Schema("AVRO", '"Unknown"'), framed(1, b""), "schema 1 cannot be used"),
        (Schema("JSON", "{}"), framed(1, b"{"), "the value is not JSON"),
        (Schema("PROTOBUF", "syntax"), framed(1, b"\x00"), "schema 1 cannot be used"),
        (Schema("PROTOBUF", serialized(click_file())), framed(1, b""), "is not of its schema 1"),
        (
            Schema("PROTOBUF", serialized(click_file())),
            framed(1, b"\x00\xff"),
            "is not of its schema 1",
        ),
        (Schema("THRIFT", ""), framed(1, b""), "`THRIFT` is none of AVRO, JSON and PROTOBUF"),
        (Schema("AVRO", '"double"'), framed(1, b"\x00" * 6 + b"\xf0\x7f"), "no number in JSON"),
    ],
)
def test_an_unreadable_value_says_why(schema: Schema, value: bytes, sentence: str) -> None:
    with pytest.raises(RecordUndecodable, match=re.escape(sentence)):
        schemas(schema).read_field(value, ())


def test_a_schema_that_nobody_looked_up_is_awaited_and_not_guessed() -> None:
    known = Schemas()
    with pytest.raises(SchemaAwaited) as awaited:
        known.read_field(framed(7, b"{}"), ())
    assert awaited.value.number == 7
    known.put_missing(7, "there is no schema 7")
    with pytest.raises(RecordUndecodable, match="there is no schema 7"):
        known.read_field(framed(7, b"{}"), ())
    known.put(7, Schema("JSON", "{}"))
    assert known.read_field(framed(7, b"{}"), ()) == {}


def test_the_numbers_that_values_name() -> None:
    values = [None, b"", b"{}", b"\x00\x00", framed(3, b"x"), framed(3, b""), framed(258, b"")]
    assert numbers_in(values) == {3, 258}


def test_a_number_that_registries_cannot_count_to_names_no_schema_and_is_not_asked_for() -> None:
    """They count in Java's int, and refuse a larger one as an address that they do not have."""
    largest, larger = framed((1 << 31) - 1, b""), framed(1 << 31, b"")
    assert numbers_in([largest, larger]) == {(1 << 31) - 1}
    with pytest.raises(SchemaAwaited):
        Schemas().read_field(largest, ())
    with pytest.raises(RecordUndecodable, match="2147483648, and no registry counts so far"):
        Schemas().read_field(larger, ())


TREE = {"type": "record", "name": "Tree", "namespace": "wood", "fields": []}
LEAVES = [{"name": "leaves", "type": {"type": "array", "items": ["null", "Tree"]}}]
AGAIN = [{"name": "next", "type": ["null", {"type": "map", "values": "wood.Tree"}]}]
ALWAYS = [{"name": "itself", "type": {"type": "record", "name": "In", "fields": [
    {"name": "out", "type": "Tree"}]}}]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "level"), [(LEAVES, b"\x02\x02"), (AGAIN, b"\x02\x02\0"), (ALWAYS, b"")]
)
def test_records_in_one_another_end_no_process(fields: Any, level: bytes) -> None:
    known = schemas(Schema("AVRO", json.dumps(TREE | {"fields": fields})))
    if level:
        assert known.read_field(framed(1, level + b"\0\0"), ())
    with pytest.raises(RecordUndecodable, match="RecursionError"):
        known.read_field(framed(1, level * 20_000), ())


EMPTY = {"type": "record", "name": "Empty", "fields": [{"name": "none", "type": "null"}]}


@pytest.mark.parametrize(
    ("items", "item"),
    [("null", None), (EMPTY, {"none": None}), ({"type": "fixed", "name": "F", "size": 0}, "")],
)
@pytest.mark.parametrize(
    "counted", [b"\xfe\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x0f\0"], ids=["count", "with size"]
)
def test_a_few_bytes_do_not_claim_billions_of_items(items: Any, item: Any, counted: bytes) -> None:
    field = {"name": "many", "type": {"type": "array", "items": items}}
    known = schemas(Schema("AVRO", json.dumps(TREE | {"fields": [field]})))
    assert known.read_field(framed(1, b"\x04\0"), ("many",)) == [item, item]
    with pytest.raises(RecordUndecodable, match="claims more than 10000 items"):
        known.read_field(framed(1, counted + b"\0"), ())
