"""Protobuf schemas with imports to which the registry has no reference."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from headrace.contracts.errors import RecordUndecodable
from headrace.contracts.serde.registered import Named, Schema
from tests.contracts.registered import Field, framed, serialized
from tests.contracts.test_registered import schemas


def importing(name: str, kind: str = "") -> Schema:
    """A schema with a field `id`, and one of an imported type, if there is one."""
    visit = descriptor_pb2.FileDescriptorProto(name="default", syntax="proto3")
    visit.dependency.append(name)
    message = visit.message_type.add(name="Visit")
    message.field.add(name="id", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    if kind:
        message.field.add(
            name="more",
            number=2,
            type=Field.TYPE_MESSAGE,
            type_name=f".{kind}",
            label=Field.LABEL_OPTIONAL,
        )
    return Schema("PROTOBUF", serialized(visit))


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("any", "Any"),
        ("api", "Api"),
        ("descriptor", "FieldOptions"),
        ("duration", "Duration"),
        ("empty", "Empty"),
        ("field_mask", "FieldMask"),
        ("source_context", "SourceContext"),
        ("struct", "Struct"),
        ("type", "Type"),
    ],
)
def test_a_message_may_have_what_every_program_knows(file: str, kind: str) -> None:
    known = schemas(importing(f"google/protobuf/{file}.proto", f"google.protobuf.{kind}"))
    assert known.read_field(framed(1, b"\x00\x0a\x017"), ("id",)) == "7"


def test_an_import_for_options_alone_needs_no_reference() -> None:
    known = schemas(importing("confluent/meta.proto"))
    assert known.read_field(framed(1, b"\x00\x0a\x017"), ("id",)) == "7"


def test_an_import_of_an_import_for_options_alone_needs_no_reference() -> None:
    inner = descriptor_pb2.FileDescriptorProto(name="default", syntax="proto3")
    inner.dependency.append("confluent/meta.proto")
    outer = importing("other.proto")._replace(references=(Named("other.proto", serialized(inner)),))
    assert schemas(outer).read_field(framed(1, b"\x00\x0a\x017"), ("id",)) == "7"


@pytest.mark.parametrize(
    ("file", "kind", "body", "found"),
    [
        (
            "confluent/type/decimal.proto",
            "confluent.type.Decimal",
            b"\x0a\x02\x04\xd2\x10\x04\x18\x02",
            {"value": "BNI=", "precision": 4, "scale": 2},
        ),
        (
            "google/type/date.proto",
            "google.type.Date",
            b"\x08\x02\x10\x03\x18\x04",
            {"year": 2, "month": 3, "day": 4},
        ),
        ("google/type/decimal.proto", "google.type.Decimal", b"\x0a\x011", {"value": "1"}),
        (
            "google/type/latlng.proto",
            "google.type.LatLng",
            b"\x11" + bytes(6) + b"\xf0\x3f",
            {"latitude": 0.0, "longitude": 1.0},
        ),
        (
            "google/type/money.proto",
            "google.type.Money",
            b"\x0a\x03EUR\x10\x05",
            {"currency_code": "EUR", "units": 5, "nanos": 0},
        ),
        (
            "google/type/timeofday.proto",
            "google.type.TimeOfDay",
            b"\x08\x01\x20\x02",
            {"hours": 1, "minutes": 0, "seconds": 0, "nanos": 2},
        ),
    ],
)
def test_a_message_may_have_what_serializers_refer_to_nowhere(
    file: str, kind: str, body: bytes, found: Any
) -> None:
    known = schemas(importing(file, kind))
    value = framed(1, b"\x00\x12" + bytes([len(body)]) + body)
    assert known.read_field(value, ("more",)) == found


def test_a_type_that_no_reference_declares_is_named() -> None:
    known = schemas(importing("a/b.proto", "a.B"))
    with pytest.raises(RecordUndecodable, match=r"schema 1 cannot be used.*a\.B"):
        known.read_field(framed(1, b"\x00"), ())
