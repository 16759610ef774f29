"""JSON in and out of bytes, fast, and exact where a double would not be.

orjson turns whole numbers beyond 64 bits into the nearest double, so two different ids could
become one. Where that can have happened, the standard library reads the bytes again.

Eight bytes that begin with a zero byte are not JSON. Kafka's LongSerializer and our `count` write
a number that way, and it is read as that number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from math import isfinite

import orjson

from headrace.contracts.errors import RecordFailed, RecordUndecodable

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
ReadField = Callable[[bytes, tuple[str, ...]], Json]
"""Reads a value at a path of field names, whatever its format; see `decode_json_field`."""

KINDS = {
    type(None): "null",
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "an object",
}
"""The kinds of JSON values, as messages call them."""

_LONG_NUMBER = re.compile(rb"\d{19}")
"""The digits that every whole number beyond 64 bits has at least."""
_MAY_BE_ODD = re.compile(rb"null|NaN|Infinity")
"""Encoders write these for NaN and the infinite numbers; text may have these words, too."""
_LONG_BYTES = 8
_REGISTRY_MAGIC = b"\x00"
"""The first byte that a schema registry's serializers write, before the schema's number."""


def decode_json(data: bytes) -> Json:
    """Return the JSON value in the bytes."""
    return decode_json_field(data, ())


def decode_json_field(data: bytes, path: tuple[str, ...]) -> Json:
    """Return the JSON value at a path of field names; None where a field is missing or null."""
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if len(data) != _LONG_BYTES or data[0] != 0:
            message = f"the value is not JSON: {error.msg} (character {error.pos})"
            if data[:1] == _REGISTRY_MAGIC:
                message += (
                    "; it begins as a value with a registered schema does, which"
                    " `values: registry` in the source reads"
                )
            raise RecordUndecodable(message) from error
        document = int.from_bytes(data)
    found = walk(document, path)
    if type(found) in _MAY_BE_INEXACT and _LONG_NUMBER.search(data):
        return walk(_decode_exactly(data), path)
    return found


def encode_json(found: Json) -> bytes:
    """Write canonical JSON: keys sorted, no spaces, UTF-8.

    Raises RecordUndecodable where a number is NaN or infinite, as it may be in Avro and Protobuf.
    """
    try:
        # A copy: orjson's own bytes would keep four kilobytes for as long as they are held.
        data = b"%b" % orjson.dumps(found, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        # Only numbers beyond 64 bits and very deep nesting lead here.
        data = _encode_exactly(found)
    if _MAY_BE_ODD.search(data) and _has_odd_number(found):
        message = "it has a number that is NaN or infinite, which JSON has no word for"
        raise RecordUndecodable(message)
    return data


def _has_odd_number(found: Json) -> bool:
    """Return whether a number in a value is NaN or infinite."""
    left = [found]
    while left:
        one = left.pop()
        if type(one) is float and not isfinite(one):
            return True
        if isinstance(one, list):
            left += one
        elif isinstance(one, dict):
            left += one.values()
    return False


_MAY_BE_INEXACT = frozenset({float, list, dict})


def walk(found: Json, path: tuple[str, ...]) -> Json:
    """Return the value at a path; None where a field is missing or null.

    Raises RecordUndecodable where the path leads into something that is not an object.
    """
    for depth, name in enumerate(path):
        if found is None:
            return None
        if type(found) is not dict:
            place = ".".join(("value", *path[:depth]))
            message = f"`{place}` is {KINDS[type(found)]}, not an object, so it has no `{name}`"
            raise RecordUndecodable(message)
        found = found.get(name)
    return found


def _decode_exactly(data: bytes) -> Json:
    try:
        found: Json = json.loads(data)
    except RecursionError as error:
        message = "the value is nested too deeply"
        raise RecordUndecodable(message) from error
    return found


def _encode_exactly(found: Json) -> bytes:
    try:
        text = json.dumps(found, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        return text.encode()
    except TypeError as error:
        # Only a user's function can have returned it.
        message = f"JSON has no word for something in it ({error})"
        raise RecordFailed(message) from error
    except (ValueError, RecursionError) as error:
        message = "the value has a number that is too long, or is nested too deeply"
        raise RecordUndecodable(message) from error
