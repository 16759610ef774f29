"""Protobuf as JSON: what a selector finds in a message that a registered file describes.

Fields have the names of the file. Whole numbers are numbers, also those of 64 bits. An enum becomes
the name of its value, or the number where it has none. Bytes become base64 text. A field of the
type `google.protobuf.Timestamp` becomes ISO 8601 text, and a wrapper becomes the value that it
wraps. An unset field without presence has its default, as in the language; an unset field with
presence is null.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence
from typing import Any

from google.protobuf import (
    any_pb2,
    api_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    source_context_pb2,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from headrace.contracts.serde.json import Json

_WELL_KNOWN = (
    any_pb2,
    source_context_pb2,
    type_pb2,
    api_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
"""Any program has these files, so no schema refers to them; each stands behind its imports."""
_TEXT, _BYTES, _DOUBLE, _INT32, _INT64, _UINT32 = (
    getattr(descriptor_pb2.FieldDescriptorProto, f"TYPE_{kind}")
    for kind in ("STRING", "BYTES", "DOUBLE", "INT32", "INT64", "UINT32")
)
_UNREFERRED = {
    "confluent/type/decimal.proto": (
        "confluent.type.Decimal",
        {"value": _BYTES, "precision": _UINT32, "scale": _INT32},
    ),
    "google/type/date.proto": (
        "google.type.Date",
        {"year": _INT32, "month": _INT32, "day": _INT32},
    ),
    "google/type/decimal.proto": ("google.type.Decimal", {"value": _TEXT}),
    "google/type/latlng.proto": (
        "google.type.LatLng",
        {"latitude": _DOUBLE, "longitude": _DOUBLE},
    ),
    "google/type/money.proto": (
        "google.type.Money",
        {"currency_code": _TEXT, "units": _INT64, "nanos": _INT32},
    ),
    "google/type/timeofday.proto": (
        "google.type.TimeOfDay",
        {"hours": _INT32, "minutes": _INT32, "seconds": _INT32, "nanos": _INT32},
    ),
}
"""Confluent's serializers refer to no file of confluent/ and google/type/; these are in use."""
_TIMESTAMP = "google.protobuf.Timestamp"
_WRAPPED = frozenset(wrappers_pb2.DESCRIPTOR.message_types_by_name)
_PACKAGE = "google.protobuf"
_CONTINUES, _SEVEN_BITS = 0x80, 0x7F
_NUMBER_BITS = 64


def protobuf_reader(text: str, referred: Mapping[str, str]) -> Callable[[bytes], Json]:
    """Return a function that reads messages of a file, given as its descriptor, and its imports."""
    pool = DescriptorPool()
    for module in _WELL_KNOWN:
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    known = {module.DESCRIPTOR.name for module in _WELL_KNOWN}
    files = [_file(one, name) for name, one in referred.items() if name not in known]
    file = _file(text, "headrace.registered.proto")
    known |= {one.name for one in files}
    imported = {name for one in (*files, file) for name in one.dependency}
    for name in sorted(imported - known):
        pool.Add(_unreferred(name))
    for one in (*files, file):
        pool.Add(one)
    messages = pool.FindFileByName(file.name).message_types_by_name
    top = [messages[one.name] for one in file.message_type]
    classes: dict[tuple[int, ...], Any] = {}

    def read(body: bytes) -> Json:
        indexes, start = _message_indexes(body)
        if indexes not in classes:
            classes[indexes] = GetMessageClass(_chosen(top, indexes))
        return _json(classes[indexes].FromString(body[start:]))

    return read


def _file(text: str, name: str) -> Any:
    # A registry calls the file "default"; an import calls it by the name of the reference.
    file = descriptor_pb2.FileDescriptorProto.FromString(b64decode(text, validate=True))
    file.name = name
    return file


def _unreferred(name: str) -> Any:
    """Return an imported file that no schema refers to.

    It is empty unless it is known: options are not read, so a file that only they need may be.
    """
    file = descriptor_pb2.FileDescriptorProto(name=name, syntax="proto3")
    if name in _UNREFERRED:
        full_name, fields = _UNREFERRED[name]
        file.package, _, short = full_name.rpartition(".")
        message = file.message_type.add(name=short)
        for number, (field, kind) in enumerate(fields.items(), start=1):
            message.field.add(
                name=field,
                number=number,
                type=kind,
                label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL,
            )
    return file


def _message_indexes(body: bytes) -> tuple[tuple[int, ...], int]:
    """Return which message it is, from the outermost inwards, and where its bytes begin."""
    count, place = _zigzag(body, 0)
    indexes = []
    for _ in range(count):
        index, place = _zigzag(body, place)
        indexes.append(index)
    return tuple(indexes) or (0,), place


def _zigzag(body: bytes, place: int) -> tuple[int, int]:
    """Read a number as Avro and Kafka's clients write it; return it and the place behind it."""
    number = shift = 0
    while shift < _NUMBER_BITS:
        byte = body[place]
        place += 1
        number |= (byte & _SEVEN_BITS) << shift
        if not byte & _CONTINUES:
            return (number >> 1) ^ -(number & 1), place
        shift += 7
    message = "the number of its message is too long"
    raise ValueError(message)


def _chosen(top: list[Any], indexes: tuple[int, ...]) -> Any:
    descriptor, messages = None, top
    for index in indexes:
        if not 0 <= index < len(messages):
            message = f"its file has no message {'.'.join(map(str, indexes))}"
            raise ValueError(message)
        descriptor = messages[index]
        # The indexes count in the order of the file; the mapping by name has another order.
        messages = list(descriptor.nested_types)
    return descriptor


def _json(message: Any) -> Json:
    descriptor = message.DESCRIPTOR
    if descriptor.full_name == _TIMESTAMP:
        text: str = message.ToJsonString()
        return text
    if descriptor.name in _WRAPPED and descriptor.file.package == _PACKAGE:
        return _one(descriptor.fields_by_name["value"], message.value)
    return {field.name: _field(message, field) for field in descriptor.fields}


def _field(message: Any, field: Any) -> Json:
    if field.has_presence and not message.HasField(field.name):
        return None
    found = getattr(message, field.name)
    if isinstance(found, MutableMapping):
        value = field.message_type.fields_by_name["value"]
        return {_name(key): _one(value, found[key]) for key in found}
    if isinstance(found, MutableSequence):
        return [_one(field, one) for one in found]
    return _one(field, found)


def _name(key: Any) -> str:
    """Return a key of a map as Protobuf's JSON has it."""
    return str(key).lower() if isinstance(key, bool) else str(key)


def _one(field: Any, found: Any) -> Json:
    if field.message_type is not None:
        return _json(found)
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(found)
        return int(found) if named is None else str(named.name)
    if isinstance(found, bytes):
        return b64encode(found).decode()
    plain: Json = found
    return plain
