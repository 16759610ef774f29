"""What one stage of an operator sends to the next, as the value of a row.

each part    length (i32, little-endian) | bytes; -1 is null, -2 the first part again, -3 the second

The last three parts are key, value and time of the record that caused it, as they stood in its
topic, so that a stage that fails on the message can put that record among the dead letters.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from contracts.record import Record

_i32 = Struct("<i")
_time = Struct("<q")
_NULL, _FIRST_AGAIN = -1, -2


class Message(NamedTuple):
    """What was sent, and why."""

    parts: list[bytes | None]
    origin: Record
    """The record that caused it, as it stood in its topic."""


def sent(origin: Record, *parts: bytes | None) -> bytes:
    """A message as the value of a row that has the headers and the place of its origin."""
    return pack(*parts, origin.key, origin.value, _time.pack(origin.timestamp_ms))


def received(row: Record) -> Message:
    """The message that a row is."""
    *parts, key, value, time = unpack(row.value or b"")
    assert time is not None
    (time_ms,) = _time.unpack(time)
    return Message(parts, row._replace(key=key, value=value, timestamp_ms=time_ms))


def pack(*parts: bytes | None) -> bytes:
    """Some bytes and nulls as one value."""
    packed: list[bytes] = []
    for place, part in enumerate(parts):
        if part is None:
            packed.append(_i32.pack(_NULL))
        elif (seen := parts.index(part)) < place:
            packed.append(_i32.pack(_FIRST_AGAIN - seen))
        else:
            packed += (_i32.pack(len(part)), part)
    return b"".join(packed)


def unpack(packed: bytes) -> list[bytes | None]:
    """The bytes and nulls of a value."""
    parts: list[bytes | None] = []
    place = 0
    while place < len(packed):
        (length,) = _i32.unpack_from(packed, place)
        start = place + _i32.size
        place = start + max(length, 0)
        if length >= 0:
            parts.append(packed[start:place])
        else:
            parts.append(None if length == _NULL else parts[_FIRST_AGAIN - length])
    return parts
