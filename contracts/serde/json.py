"""JSON in and out of bytes, fast, and exact where a double would not be.

orjson turns whole numbers beyond 64 bits into the nearest double, so two different ids could
become one. Where that can have happened, the bytes are read again by the standard library.

Eight bytes that begin with a zero byte are no JSON; they are what Kafka's LongSerializer and our
`count` write, and are read as that number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import orjson

from headrace.contracts.errors import RecordFailed, RecordUndecodable

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
ReadField = Callable[[bytes, tuple[str, ...]], Json]
"""What a value says at a path of field names, whatever it is written in; as `decode_json_field`."""

KINDS = {
    type(None): "null",
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "an object",
}
"""What people call what is found."""

_LONG_NUMBER = re.compile(rb"\d{19}")
"""What a whole number beyond 64 bits has at least."""
_LONG_BYTES = 8
_REGISTRY_MAGIC = b"\x00"
"""What a schema registry's serializers begin with, before the schema's number."""


def decode_json(data: bytes) -> Json:
    """What the bytes say."""
    return decode_json_field(data, ())


def decode_json_field(data: bytes, path: tuple[str, ...]) -> Json:
    """What the bytes say at a path of field names; None where a field is missing or null."""
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
    """The one way to write it: keys sorted, no spaces, UTF-8."""
    try:
        return orjson.dumps(found, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        # Only numbers beyond 64 bits and very deep nesting lead here.
        return _encode_exactly(found)


_MAY_BE_INEXACT = frozenset({float, list, dict})


def walk(found: Json, path: tuple[str, ...]) -> Json:
    """What stands at a path; None where a field is missing or null."""
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
        # Only a user's function can have brought it.
        message = f"JSON has no word for something in it ({error})"
        raise RecordFailed(message) from error
    except (ValueError, RecursionError) as error:
        message = "the value has a number that is too long, or is nested too deeply"
        raise RecordUndecodable(message) from error
