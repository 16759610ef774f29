"""The bytes around the columns of a row: its format, its kind, and a checksum.

    row               format (u8) | kind (u8) | columns | CRC-32 of all before it (u32)
    row of format 2   format (u8) | kind (u8) | size of the columns (u32)
                      | the columns as a block of LZ4 | CRC-32 of all before it (u32)
    integer column    count (u32) | count x i64
    bytes column      count (u32) | count x i32 length, -1 is null | the bytes, end to end

All numbers are little-endian. Rows of versions, of held records and of subscriptions are
compressed, but for short ones. Numbers and slices never are.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.contracts.errors import StateCorrupt, StateLayoutNewer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

FORMAT, FORMAT_COMPRESSED = 1, 2
"""The formats of plain rows, and of compressed ones."""
FORMAT_OF_TABLES, FORMAT_OF_RUNS = 2, 3
"""The formats of numbers that note tables (`table_rows`), and runs of these (`runs`)."""
COMPRESSED_MIN_BYTES = 256
_CODEC = pa.Codec("lz4_raw")
_CUT_SHORT = "it is not cut short"
_start = Struct("<BB")
_u32 = Struct("<I")
_i32 = Struct("<i")


class Kind(IntEnum):
    """The kinds of rows."""

    VERSIONS = 1
    HELD = 2
    SUBSCRIPTIONS = 3
    NUMBERS = 4
    SLICES = 5


_NEWEST = {Kind.SLICES: FORMAT, Kind.NUMBERS: FORMAT_OF_RUNS}
_COMPRESSED = frozenset({Kind.VERSIONS, Kind.HELD, Kind.SUBSCRIPTIONS})


class RowReader:
    """Reads one row from front to back, and refuses one that is not whole."""

    def __init__(self, row: bytes, kind: Kind) -> None:
        self._kind = kind
        self._columns = _columns_of(row, kind)
        self._place = 0

    def expect(self, holds: object, what: str) -> None:
        """Refuse the row unless this holds."""
        if not holds:
            raise damaged(self._kind, what)

    def integers(self) -> list[int]:
        """Read the next column, of integers."""
        numbers: list[int] = self.numbers().tolist()
        return numbers

    def numbers(self) -> NDArray[np.int64]:
        """Read the next column, of integers, as an array."""
        return self._numbers("<i8").astype(np.int64, copy=False)

    def stored_numbers(self) -> bytes:
        """Read the next column, of integers, as it is stored, without its count."""
        return self._stored(8)

    def stored_bytes(self) -> tuple[bytes, bytes]:
        """Read the lengths of the next column, of bytes or nulls, and its bytes, end to end."""
        lengths = self._stored(_i32.size)
        size = np.maximum(np.frombuffer(lengths, "<i4"), 0).sum(dtype=np.int64)
        return lengths, self._take(int(size))

    def packed(self) -> pa.LargeBinaryArray:
        """Read the next column, of bytes or nulls, as an array that shares the row's memory."""
        return bytes_column(*self.stored_bytes())

    def objects(self) -> NDArray[np.object_]:
        """Read the next column, of bytes or nulls, as objects."""
        column: NDArray[np.object_] = self.packed().to_numpy(zero_copy_only=False)
        return column

    def strings(self) -> list[bytes | None]:
        """Read the next column, of bytes or nulls."""
        column: list[bytes | None] = self.objects().tolist()
        return column

    def present(self) -> list[bytes]:
        """Read the next column, of bytes that are never null."""
        column = self.packed()
        self.expect(not column.null_count, "nothing is null")
        present: list[bytes] = column.to_numpy(zero_copy_only=False).tolist()
        return present

    def finish(self) -> None:
        """Refuse bytes behind the last column."""
        self.expect(self._place == len(self._columns), "nothing is left over")

    def _numbers(self, dtype: str) -> NDArray[np.signedinteger]:
        return np.frombuffer(self._stored(np.dtype(dtype).itemsize), dtype)

    def _stored(self, width: int) -> bytes:
        (count,) = _u32.unpack(self._take(_u32.size))
        return self._take(count * width)

    def _take(self, size: int) -> bytes:
        start, self._place = self._place, self._place + size
        if self._place > len(self._columns):
            raise damaged(self._kind, _CUT_SHORT)
        return self._columns[start : self._place]


def _columns_of(row: bytes, kind: Kind) -> bytes:
    """Return the columns of a row as they are before compression."""
    end = len(row) - _u32.size
    if end < _start.size:
        raise damaged(kind, _CUT_SHORT)
    written, found = _start.unpack_from(row)
    newest = _NEWEST.get(kind, FORMAT_COMPRESSED)
    if written > newest:
        message = (
            f"this state has format {written}, and this headrace knows {newest} at most;"
            " upgrade headrace, or start the query from a new checkpoint"
        )
        raise StateLayoutNewer(message)
    if written < FORMAT:
        raise damaged(kind, f"format {written} was ever written")
    if crc32(memoryview(row)[:end]) != _u32.unpack_from(row, end)[0]:
        raise damaged(kind, "its checksum holds")
    if found != kind:
        raise damaged(kind, f"it is of kind {kind.value} and not {found}")
    if written != FORMAT_COMPRESSED or kind not in _COMPRESSED:
        return row[_start.size : end]
    block = _start.size + _u32.size
    if end < block:
        raise damaged(kind, _CUT_SHORT)
    (size,) = _u32.unpack_from(row, _start.size)
    try:
        columns: bytes = _CODEC.decompress(row[block:end], size, asbytes=True)
    except OSError as error:
        raise damaged(kind, "it is a block of LZ4") from error
    return columns


def damaged(kind: Kind, what: str) -> StateCorrupt:
    """Make the error of a row of which this does not hold."""
    message = (
        f"a row of {kind.name.lower()} is damaged: it cannot be that {what}; start the query from"
        " an older or a new checkpoint"
    )
    return StateCorrupt(message)


def bytes_column(lengths: bytes, data: bytes) -> pa.LargeBinaryArray:
    """Return a column of bytes or nulls that shares the memory of what is stored."""
    sizes = np.frombuffer(lengths, "<i4")
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(np.maximum(sizes, 0), out=offsets[1:])
    present = np.packbits(sizes >= 0, bitorder="little")
    buffers = [*map(pa.py_buffer, (present, offsets, data))]
    return pa.Array.from_buffers(pa.large_binary(), len(sizes), buffers)


def stored_parts(column: pa.LargeBinaryArray) -> tuple[memoryview, NDArray[np.int64], memoryview]:
    """Return the stored lengths of a column, where its values end, and the bytes they are among."""
    lengths = pc.fill_null(pc.binary_length(column), -1).to_numpy().astype("<i4")
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    return memoryview(lengths.tobytes()), ends, memoryview(data or b"")


def row_of(kind: Kind, columns: Iterable[bytes], written: int = FORMAT) -> bytes:
    """Make a row of its columns."""
    plain = b"".join(columns)
    if kind in _COMPRESSED:
        return sealed(kind, plain)
    return _with_checksum(_start.pack(written, kind) + plain)


def sealed(kind: Kind, plain: bytes) -> bytes:
    """Make a row of a kind that is compressed."""
    if len(plain) < COMPRESSED_MIN_BYTES:
        return _with_checksum(_start.pack(FORMAT, kind) + plain)
    head = _start.pack(FORMAT_COMPRESSED, kind) + _u32.pack(len(plain))
    return _with_checksum(head + _CODEC.compress(plain, asbytes=True))


def _with_checksum(body: bytes) -> bytes:
    return body + _u32.pack(crc32(body))
