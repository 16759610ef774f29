"""The bytes of calls to a map of Spark's state, and of the rows in its answers.

PySpark makes three objects for each call, and reads each row by the machine that reads any pickle.

    request     version (i32, 0) | size (i32) | StateRequest, big-endian
                StateRequest {stateVariableRequest {mapStateCall {stateName, CALL {its fields}}}}
    field       number << 3 | 2 | size | content, both numbers in groups of seven bits

These are Protocol Buffers, and PySpark's own descriptors say the numbers. A row in an answer was
pickled by Java, as a text with a character for each byte:

    row         functions and schema | size of the text (u32, little-endian) | the text in UTF-8
                | its encoding

Rows of any other form are read by the machine.
"""

from __future__ import annotations

import pickle  # noqa: TID251 (the messages are PySpark's, and nothing of them is kept)
from functools import lru_cache
from io import BytesIO
from struct import Struct
from typing import Any

from headrace.spark_jobs.seams import ROW_FUNCTIONS
from headrace.spark_jobs.seams import state_messages as messages

_REQUEST, _TEXT_SIZE = Struct("!ii"), Struct("<I")
_VERSION = 0
_HAS_SIZE = 2
_SEVEN_BITS = 0x7F
_FUNCTIONS = (
    b"\x80\x02cpyspark.sql.types\n_create_row_inbound_converter\nq\x00"
    b'cpyspark.sql.types\n_parse_datatype_json_string\nXY\x00\x00\x00{"type":"struct","fields":['
    b'{"name":"row","type":"binary","nullable":true,"metadata":{}}]}q\x01\x85Rq\x02\x85R('
)
_TEXT = b"c__builtin__\nbytearray\nX"
_ENCODING = b"q\x03X\x07\x00\x00\x00latin-1q\x04\x86Rq\x05"
_AROUND = (
    (_FUNCTIONS + _TEXT, _ENCODING + b"tRq\x06."),
    # Spark 4.1 makes bytes of them.
    (_FUNCTIONS + b"cbuiltins\nbytes\n" + _TEXT, _ENCODING + b"\x85Rq\x06tRq\x07."),
)
"""The bytes before the size of the text, and those behind the text."""


@lru_cache(4096)
def _varint(number: int) -> bytes:
    """Encode a number in groups of seven bits, the lowest first."""
    groups = bytearray()
    while number > _SEVEN_BITS:
        groups.append(number & _SEVEN_BITS | _SEVEN_BITS + 1)
        number >>= 7
    groups.append(number)
    return bytes(groups)


def _tag(field: Any) -> bytes:
    return _varint(field.number << 3 | _HAS_SIZE)


def _tags(message: Any) -> dict[str, bytes]:
    return {field.name: _tag(field) for field in message.fields}


_TO_STATE = _tags(messages.StateRequest.DESCRIPTOR)["stateVariableRequest"]
_TO_MAP = _tags(messages.StateVariableRequest.DESCRIPTOR)["mapStateCall"]
_CALLS = {
    field.name: (_tag(field), _tags(field.message_type))
    for field in messages.MapStateCall.DESCRIPTOR.fields
    if field.message_type is not None
}
"""For each call its tag, and those of its fields."""
_NAME = _tags(messages.MapStateCall.DESCRIPTOR)["stateName"]


class RowCalls:
    """Makes the calls to one map of state."""

    def __init__(self, state_name: str) -> None:
        name = state_name.encode()
        self._name = _NAME + _varint(len(name)) + name

    def request(self, call: str, **fields: bytes) -> bytes:
        """Return the request of a call, which PySpark's messages name."""
        tag, tags = _CALLS[call]
        content = b"".join(
            [tags[name] + _varint(len(field)) + field for name, field in fields.items()]
        )
        in_map = self._name + tag + _varint(len(content))
        size = len(in_map) + len(content)
        in_state = _TO_MAP + _varint(size)
        size += len(in_state)
        in_request = _TO_STATE + _varint(size)
        size += len(in_request)
        return b"".join((_REQUEST.pack(_VERSION, size), in_request, in_state, in_map, content))


def packed(field: str | bytes) -> bytes:
    """Encode a row of one field as PySpark does."""
    return pickle.dumps((field,), pickle.HIGHEST_PROTOCOL)


def unpacked(row: bytes) -> bytes | None:
    """Return the bytes of a row that Java pickled, None for no row."""
    if not row:
        return None
    for before, behind in _AROUND:
        if row.startswith(before) and row.endswith(behind):
            text = row[len(before) + _TEXT_SIZE.size : -len(behind)]
            if _TEXT_SIZE.unpack_from(row, len(before)) == (len(text),):
                return text.decode().encode("latin-1")
    (field,) = _Reader(BytesIO(row)).load()
    return bytes(field)


class _Reader(pickle.Unpickler):
    """Reads a row of Spark's as its fields; PySpark would parse the schema beside each row."""

    def find_class(self, module: str, name: str) -> Any:
        return ROW_FUNCTIONS.get(name) or super().find_class(module, name)
