"""Every byte of a partition's database that is not an operator's own row.

One database holds the whole state of one partition of one pipeline, so that one write batch can
move all of it. Integers are big-endian.

key                                 value
0x00 'layout'                       the layout's version (4)
0x00 'pipeline'                     the pipeline's name, UTF-8
0x00 'changelog'                    the id of the changelog's topic, ASCII; missing where it was
                                    unknown
0x00 'store' 0x00 name              number of that store (2), given when it is first opened,
                                    never given again
0x00 'position' 0x00 name           a position (8, signed): the offset up to which something is
                                    part of this state; its writer chooses the name. While there is
                                    one of the name 'restoring', the rows are no state yet
0x01 number (2) key                 a row of that store, in the format of its operator

Version 1 is the first. A program reads its own version and older ones, and refuses newer ones.
"""

from __future__ import annotations

from struct import Struct

from headrace.contracts.errors import StateCorrupt

LAYOUT_VERSION = 1
OPERATORS_VERSION = 3
"""The newest version of the operators' rows, as in a stamp. In 3, rows may stand in segments of
former lengths, where an older program would not look for them. Since 2, windows may have no rows of
their own, where a suppress holds their results. An older program would begin those windows anew."""
ONE_LENGTH_VERSION = 2
"""The version of rows without such segments, which the program before 3 can still read."""
LAYOUT_KEY = b"\x00layout"
PIPELINE_KEY = b"\x00pipeline"
CHANGELOG_KEY = b"\x00changelog"
STORE_KEY = b"\x00store\x00"
POSITION_KEY = b"\x00position\x00"
_ROW_SPACE = b"\x01"
_version = Struct(">I")
_number = Struct(">H")
_position = Struct(">q")
STORES_MAX = 1 << 16


def row_prefix(number: int) -> bytes:
    """Return the prefix of every row key of a store."""
    return _ROW_SPACE + _number.pack(number)


def end_of(prefix: bytes) -> bytes:
    """Return the first key behind all with this prefix; the prefix must not end in 0xff."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def pack_version(version: int) -> bytes:
    """Pack a layout's version."""
    return _version.pack(version)


def unpack_version(row: bytes) -> int:
    """Unpack a layout's version."""
    return int.from_bytes(_of_length(row, _version.size), "big")


def pack_number(number: int) -> bytes:
    """Pack a store's number."""
    return _number.pack(number)


def unpack_number(row: bytes) -> int:
    """Unpack a store's number."""
    return int.from_bytes(_of_length(row, _number.size), "big")


def pack_position(position: int) -> bytes:
    """Pack a position."""
    return _position.pack(position)


def unpack_position(row: bytes) -> int:
    """Unpack a position."""
    return int.from_bytes(_of_length(row, _position.size), "big", signed=True)


def _of_length(row: bytes, length: int) -> bytes:
    if len(row) != length:
        message = f"a row of the state's directory has {len(row)} bytes, not {length}"
        raise StateCorrupt(message)
    return row
