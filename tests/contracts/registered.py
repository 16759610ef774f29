"""Values with a registered schema, written by hand from the protocol's description."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from io import BytesIO
from typing import Any

from fastavro import parse_schema, schemaless_writer
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

Field = descriptor_pb2.FieldDescriptorProto
CLICK_AVRO = json.dumps(
    {
        "type": "record",
        "name": "Click",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        ],
    }
)
CLICK_JSON = '{"type": "object"}'


def framed(number: int, body: bytes) -> bytes:
    """A zero byte, the schema's number, and the value."""
    return b"\x00" + number.to_bytes(4, "big") + body


def avro(number: int, schema: str, datum: Any) -> bytes:
    """A value in Avro."""
    stream = BytesIO()
    schemaless_writer(stream, parse_schema(json.loads(schema)), datum)
    return framed(number, stream.getvalue())


def click_file() -> descriptor_pb2.FileDescriptorProto:
    """The file of a click, which is the second message of it, with a page inside."""
    file = descriptor_pb2.FileDescriptorProto(name="click.proto", package="web", syntax="proto3")
    file.message_type.add(name="Other").field.add(
        name="id", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL
    )
    click = file.message_type.add(name="Click")
    click.field.add(name="id", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    click.field.add(name="at", number=2, type=Field.TYPE_INT64, label=Field.LABEL_OPTIONAL)
    page = click.nested_type.add(name="Page")
    page.field.add(name="path", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    return file


def serialized(file: descriptor_pb2.FileDescriptorProto) -> str:
    """A file as a registry shows it when its descriptor is asked for."""
    return b64encode(file.SerializeToString()).decode()


def message_of(file: descriptor_pb2.FileDescriptorProto, name: str) -> Any:
    """The class of a message of a file."""
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(name))


def protobuf(number: int, indexes: Sequence[int], message: Any) -> bytes:
    """A value in Protobuf: which message it is stands before it, a single zero if the first."""
    which = (
        b"\x00"
        if list(indexes) == [0]
        else bytes([2 * len(indexes), *(2 * one for one in indexes)])
    )
    return framed(number, which + message.SerializeToString())
