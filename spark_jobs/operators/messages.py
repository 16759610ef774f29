"""Pack the message from one stage of an operator to the next into the value of a row.

how many parts (u8) | time (i64) | a length of each part, and of key and value (i32) | their bytes

Numbers are little-endian. A length of -1 is null; a length of -2 or less repeats the first, second,
... part. Key, value and time are those of the record that caused the message, as it was in its
topic, so that a stage that fails on the message can make a dead letter of that record.
"""

from __future__ import annotations

from functools import cache
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from headrace.contracts.record import Record

_NULL, _FIRST_AGAIN = -1, -2


class Message(NamedTuple):
    """The parts of a message, and the record that caused it."""

    parts: list[bytes | None]
    origin: Record
    """The record that caused it, as it was in its topic."""


def sent(origin: Record, *parts: bytes | None) -> bytes:
    """Pack a message into the value of a row; the row has the headers and place of its origin."""
    lengths = [_NULL if part is None else len(part) for part in parts]
    written = [part for part in parts if part is not None]
    key, value, time_ms = origin[:3]
    for part in (key, value):
        if part is None:
            lengths.append(_NULL)
        elif part in parts:
            lengths.append(_FIRST_AGAIN - parts.index(part))
        else:
            lengths.append(len(part))
            written.append(part)
    return b"".join((_head(len(parts)).pack(len(parts), time_ms, *lengths), *written))


def received(row: Record) -> Message:
    """Unpack the message of a row."""
    packed = row.value or b""
    head = _head(packed[0])
    _, time_ms, *lengths = head.unpack_from(packed)
    parts: list[bytes | None] = []
    end = head.size
    for length in lengths:
        if length >= 0:
            start, end = end, end + length
            parts.append(packed[start:end])
        else:
            parts.append(None if length == _NULL else parts[_FIRST_AGAIN - length])
    *parts, key, value = parts
    return Message(parts, row._replace(key=key, value=value, timestamp_ms=time_ms))


@cache
def _head(parts: int) -> Struct:
    """Return the layout of a message's beginning, for so many parts."""
    return Struct(f"<Bq{parts + 2}i")
