"""Values whose schema stands in a registry: Confluent's wire format.

    1 byte    zero
    4 bytes   the schema's number, big-endian
    the rest  Avro or JSON; before Protobuf, which message of the schema's file it is

A program that may speak with a registry looks schemas up before operators run, and puts them here.
A number stands for the same schema for ever, so the meaning of a value never depends on when it is
read. Reading a value whose schema was not put yet raises SchemaAwaited. The same batch is tried
again once the schema is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import isfinite
from typing import NamedTuple

from headrace.contracts.errors import RecordUndecodable, SchemaAwaited
from headrace.contracts.raised import clause_of
from headrace.contracts.serde.avro import avro_reader
from headrace.contracts.serde.json import Json, decode_json, walk
from headrace.contracts.serde.protobuf import protobuf_reader

MAGIC = b"\x00"
FRAME_BYTES = 5
_NUMBER_MAX = (1 << 31) - 1
"""Registries count in Java's int. They take a larger number for an address that they lack."""
Read = Callable[[bytes], Json]


class Named(NamedTuple):
    """A schema that another one refers to, under the name that the other uses for it."""

    name: str
    text: str


class Schema(NamedTuple):
    """A schema as the registry returns it for a number."""

    kind: str
    """AVRO, JSON or PROTOBUF."""
    text: str
    """The schema's text; for Protobuf the file's descriptor in base64, which needs no parser."""
    references: tuple[Named, ...] = ()
    """The schemas that it refers to, each behind those that it refers to itself."""


class Schemas:
    """The schemas that are known by now, by number."""

    def __init__(self) -> None:
        """Begin with no schema."""
        self._readers: dict[int, Read] = {}

    def put(self, number: int, schema: Schema) -> None:
        """Add a schema that a registry returned; if it is unusable, its values are undecodable."""
        try:
            self._readers[number] = _reader(number, schema)
        except RecordUndecodable as unusable:
            self._readers[number] = _unreadable(str(unusable))

    def put_missing(self, number: int, why: str) -> None:
        """Note that no registry has this schema now; its values are undecodable."""
        self._readers[number] = _unreadable(why)

    def lacks(self, number: int) -> bool:
        """Return whether this schema was not put yet."""
        return number not in self._readers

    def read_field(self, data: bytes, path: tuple[str, ...]) -> Json:
        """Return the value at a path of field names; None where a field is missing or null.

        Raises SchemaAwaited where the schema was not put yet, and RecordUndecodable where the bytes
        are not of their schema.
        """
        if data[:1] != MAGIC or len(data) < FRAME_BYTES:
            message = "the value does not begin with a zero byte and the number of a schema"
            raise RecordUndecodable(message)
        number = int.from_bytes(data[1:FRAME_BYTES])
        read = self._readers.get(number)
        if read is None and number > _NUMBER_MAX:
            message = f"the value names the schema {number}, and no registry counts so far"
            raise RecordUndecodable(message)
        if read is None:
            raise SchemaAwaited(number)
        try:
            document = read(data[FRAME_BYTES:])
        except RecordUndecodable:
            raise
        except Exception as error:  # whatever a library finds wrong with the bytes
            message = f"the value is not of its schema {number} ({clause_of(error)})"
            raise RecordUndecodable(message) from error
        found = walk(document, path)
        if type(found) is float and not isfinite(found):
            message = f"`{'.'.join(('value', *path))}` is {found}, which is no number in JSON"
            raise RecordUndecodable(message)
        return found


def numbers_in(values: Iterable[bytes | None]) -> set[int]:
    """Return the numbers of the schemas that values name, as far as registries count."""
    frames = {value[1:FRAME_BYTES] for value in values if value and value[:1] == MAGIC}
    whole = (frame for frame in frames if len(frame) == FRAME_BYTES - len(MAGIC))
    return {number for number in map(int.from_bytes, whole) if number <= _NUMBER_MAX}


def _reader(number: int, schema: Schema) -> Read:
    try:
        return _compiled(schema)
    except Exception as error:  # whatever a library finds wrong with a schema
        message = f"schema {number} cannot be used ({clause_of(error)})"
        raise RecordUndecodable(message) from error


def _compiled(schema: Schema) -> Read:
    match schema.kind:
        case "AVRO":
            return avro_reader(schema.text, [one.text for one in schema.references])
        case "JSON":
            return decode_json
        case "PROTOBUF":
            return protobuf_reader(schema.text, dict(schema.references))
        case kind:
            message = f"`{kind}` is none of AVRO, JSON and PROTOBUF"
            raise ValueError(message)


def _unreadable(message: str) -> Read:
    def refuse(_body: bytes) -> Json:
        raise RecordUndecodable(message)

    return refuse
