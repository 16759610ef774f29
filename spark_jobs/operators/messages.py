"""What one stage of an operator sends to the next, as the value of a row.

each part    length (i32, little-endian, -1 is null) | bytes
"""

from __future__ import annotations

from struct import Struct

_i32 = Struct("<i")


def pack(*parts: bytes | None) -> bytes:
    """Some bytes and nulls as one value."""
    packed: list[bytes] = []
    for part in parts:
        packed += (_i32.pack(-1 if part is None else len(part)), part or b"")
    return b"".join(packed)


def unpack(packed: bytes) -> list[bytes | None]:
    """The bytes and nulls of a value."""
    parts: list[bytes | None] = []
    place = 0
    while place < len(packed):
        (length,) = _i32.unpack_from(packed, place)
        start = place + _i32.size
        place = start + max(length, 0)
        parts.append(None if length < 0 else packed[start:place])
    return parts
