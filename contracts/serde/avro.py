"""Avro as JSON: what a selector finds in a value that an Avro schema describes.

Whole numbers, texts, lists, maps and records stay as they are. An enum becomes its symbol, a union
the chosen branch, and bytes become base64 text. Times in milliseconds are whole numbers. Finer
times, and dates, are ISO 8601 text. A decimal is text, since it may be more than a double holds.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from io import BytesIO
from math import floor, log10
from typing import Any

from fastavro import parse_schema, schemaless_reader
from fastavro._read_py import read_data
from fastavro._read_py import schemaless_reader as careful_reader
from fastavro.io.binary_decoder import BinaryDecoder

from headrace.contracts.serde.avro_logical import our_name
from headrace.contracts.serde.json import Json

_PLAIN = frozenset({type(None), bool, int, float, str})
_ReadFrom = Callable[[BytesIO, Any], Any]
_EMPTY_ITEMS_MAX = 10_000
"""A value may have so many items that take no bytes; a few bytes may claim billions of them."""
_FIELD = "value"
_AS_WRITTEN = frozenset({"timestamp-millis", "uuid"})
"""Logical types that are read as the plain number or text beneath them."""


def avro_reader(text: str, referred: Sequence[str] = ()) -> Callable[[bytes], Json]:
    """Return a function that reads values of a schema, which may use types of `referred`."""
    named: dict[str, Any] = {}
    for one in referred:
        parse_schema(_plainer(json.loads(one)), named_schemas=named)
    schema = parse_schema(_field_of(_plainer(json.loads(text))), named_schemas=named)
    # The fast reader puts records in one another on the stack of the process, which ends if there
    # are thousands of them. The other one raises RecursionError.
    read_from: _ReadFrom
    read_from = careful_reader if _is_recursive(schema, named) else schemaless_reader
    if any(_is_empty(items, named) for items in _items([schema, *named.values()])):
        read_from = _counting_reader(named)

    def read(body: bytes) -> Json:
        stream = BytesIO(body)
        try:
            found: Any = read_from(stream, schema)
        except EOFError as error:
            # Its own words have an address, which is another one each time.
            message = "it ends within a field"
            raise ValueError(message) from error
        left = len(body) - stream.tell()
        if left:
            message = f"{left} bytes are left behind it"
            raise ValueError(message)
        return _json(found[_FIELD])

    return read


def _field_of(schema: Any) -> dict[str, Any]:
    """Return the record of a schema's value alone, which has the same bytes as the value.

    The reader finds referred types from a record, and from no union, array, map or name.
    """
    field = {"name": _FIELD, "type": schema}
    return {"type": "record", "name": "headrace_value", "fields": [field]}


def _is_recursive(schema: Any, named: Mapping[str, Any]) -> bool:
    """Return whether a parsed schema has a record within itself."""
    done: set[str] = set()

    def recurs(found: Any, around: tuple[str, ...]) -> bool:
        if isinstance(found, list):
            return any(recurs(one, around) for one in found)
        if isinstance(found, str):
            return found in around or (found in named and recurs(named[found], around))
        if "fields" not in found:
            inner = [found[part] for part in ("items", "values", "type") if part in found]
            return any(recurs(one, around) for one in inner)
        name = found["name"]
        if name in around or name in done:
            return name in around
        done.add(name)
        return any(recurs(field["type"], (*around, name)) for field in found["fields"])

    return recurs(schema, ())


def _items(found: Any) -> Iterator[Any]:
    """Yield the schemas of the items of all arrays in parsed schemas."""
    if isinstance(found, list):
        for one in found:
            yield from _items(one)
    elif isinstance(found, dict):
        if "items" in found:
            yield found["items"]
        for part in ("items", "values", "type", "fields"):
            yield from _items(found.get(part))


def _is_empty(found: Any, named: Mapping[str, Any], around: tuple[str, ...] = ()) -> bool:
    """Return whether the values of a parsed schema take no bytes."""
    match found:
        case str() if found in named:
            return found not in around and _is_empty(named[found], named, (*around, found))
        case {"fields": fields}:
            return all(_is_empty(field["type"], named, around) for field in fields)
        case {"type": "fixed"}:
            return bool(found["size"] == 0)
        case {"type": inner}:
            return _is_empty(inner, named, around)
        case _:
            return bool(found == "null")


class _Counting(BinaryDecoder):
    """Refuses a value that claims more items than its bytes can be."""

    def __init__(self, stream: BytesIO) -> None:
        super().__init__(stream)  # type: ignore[no-untyped-call]
        self._left = len(stream.getbuffer()) + _EMPTY_ITEMS_MAX

    def iter_array(self) -> Iterator[None]:
        for _ in super().iter_array():  # type: ignore[no-untyped-call]
            self._left -= 1
            if self._left < 0:
                message = f"it claims more than {_EMPTY_ITEMS_MAX} items that take no bytes"
                raise ValueError(message)
            yield


def _counting_reader(named: Mapping[str, Any]) -> _ReadFrom:
    names = {"writer": named, "reader": {}}
    read: Callable[..., Any] = read_data
    return lambda stream, schema: read(_Counting(stream), schema, names)


def _plainer(schema: Any) -> Any:
    """Return the schema with our readers of logical types, and without those that do not count."""
    if isinstance(schema, dict):
        kept = {
            key: one if key == "default" else _plainer(one)
            for key, one in schema.items()
            if key != "logicalType"
        }
        if _is_logical(schema):
            kept["logicalType"] = our_name(schema["logicalType"])
        return kept
    return [_plainer(one) for one in schema] if isinstance(schema, list) else schema


def _is_logical(schema: Mapping[str, Any]) -> bool:
    """Return whether the logical type counts.

    Avro has readers ignore those that are invalid; others are read as what they are in.
    """
    logical = schema.get("logicalType")
    if logical != "decimal":
        return isinstance(logical, str) and logical not in _AS_WRITTEN
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if type(precision) is not int or type(scale) is not int:
        return False
    size = schema.get("size") if schema.get("type") == "fixed" else None
    most = precision if size is None else floor(log10(2) * (8 * size - 1))
    return 0 <= scale <= precision <= most and precision > 0


def _json(found: Any) -> Json:
    if type(found) in _PLAIN:
        plain: Json = found
        return plain
    match found:
        case dict():
            return {str(name): _json(one) for name, one in found.items()}
        case list() | tuple():
            return [_json(one) for one in found]
        case bytes():
            return b64encode(found).decode()
        case Decimal():
            return str(found)
        case _:
            message = f"{type(found).__name__} has no word in JSON"
            raise TypeError(message)
