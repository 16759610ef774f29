"""What one stage of an operator sends to the next, as the value of a row.

how many parts (u8) | time (i64) | a length of each part, and of key and value (i32) | their bytes

Numbers are little-endian. A length of -1 is null, and one of -2 or less the first, second, ... part
once more. Key, value and time are those of the record that caused the message, as they stood in its
topic, so that a stage that fails on the message can put that record among the dead letters.
"""

from __future__ import annotations

from functools import cache
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from headrace.contracts.record import Record

_NULL, _FIRST_AGAIN = -1, -2


class Message(NamedTuple):
    """What was sent, and why."""

    parts: list[bytes | None]
    origin: Record
    """The record that caused it, as it stood in its topic."""


def sent(origin: Record, *parts: bytes | None) -> bytes:
    """A message as the value of a row that has the headers and the place of its origin."""
    lengths = [_NULL if part is None else len(part) for part in parts]
    told = [part for part in parts if part is not None]
    key, value, time_ms = origin[:3]
    for part in (key, value):
        if part is None:
            lengths.append(_NULL)
        elif part in parts:
            lengths.append(_FIRST_AGAIN - parts.index(part))
        else:
            lengths.append(len(part))
            told.append(part)
    return b"".join((_head(len(parts)).pack(len(parts), time_ms, *lengths), *told))


def received(row: Record) -> Message:
    """The message that a row is."""
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
    """How a message of so many parts begins."""
    return Struct(f"<Bq{parts + 2}i")
