"""Pack messages from one stage of an operator to the next into the values of rows.

    message    how many parts (u8) | a length of each part (i32) | their bytes | origin
    origin     time (i64) | lengths of key and value (i32) | their bytes

Numbers are little-endian. A length of -1 is null; a part's length of -2 or -3 repeats the origin's
key or value. The origin is the record that caused the message, as it was in its topic, so that a
stage that fails on the message can make a dead letter of that record.

A batch is hundreds of thousands of messages, so they are packed and unpacked in columns.
"""

from __future__ import annotations

from functools import cache, cached_property
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from headrace.contracts.record import Record
    from headrace.spark_jobs.versioned.records import Integers, Objects, Records

_NULL, _KEY_AGAIN, _VALUE_AGAIN = -1, -2, -3
_BYTES = pa.large_binary()
_NO_BYTES = pa.scalar(b"", _BYTES)
_origin = Struct("<q2i")
_ORIGIN = np.dtype([("time_ms", "<i8"), ("lengths", "<i4", (2,))])


class Message(NamedTuple):
    """The parts of a message, and the record that caused it."""

    parts: list[bytes | None]
    origin: Record
    """The record that caused it, as it was in its topic."""


def origin_of(record: Record) -> bytes:
    """Pack the record that causes a message."""
    key, value, time_ms = record[:3]
    sizes = (_NULL if each is None else len(each) for each in (key, value))
    return b"".join((_origin.pack(time_ms, *sizes), key or b"", value or b""))


def received(row: Record) -> Message:
    """Unpack the message of a row."""
    packed = row.value or b""
    head = _head(packed[0])
    _, *lengths = head.unpack_from(packed)
    place = head.size + sum(length for length in lengths if length > 0)
    time_ms, *sizes = _origin.unpack_from(packed, place)
    place += _origin.size
    found: list[bytes | None] = []
    for size in sizes:
        found.append(None if size == _NULL else packed[place : place + size])
        place += max(size, 0)
    key, value = found
    again = {_NULL: None, _KEY_AGAIN: key, _VALUE_AGAIN: value}
    parts: list[bytes | None] = []
    end = head.size
    for length in lengths:
        start, end = end, end + max(length, 0)
        parts.append(again[length] if length < 0 else packed[start:end])
    return Message(parts, row._replace(key=key, value=value, timestamp_ms=time_ms))


def sent_all(origins: Records, *parts: Sequence[bytes | None] | Objects) -> Objects:
    """Pack messages into the values of rows, which have the headers and places of their origins.

    A part is given for all messages.
    """
    keys, values = pa.array(origins.keys, _BYTES), pa.array(origins.values, _BYTES)
    lengths: list[Integers] = []
    written: list[pa.Array] = []
    for part in parts:
        column = pa.array(part, _BYTES)
        of_part = _lengths(column)
        for number, again in ((_VALUE_AGAIN, values), (_KEY_AGAIN, keys)):
            of_part = np.where(_are_equal(column, again), number, of_part)
        lengths.append(of_part)
        written.append(pc.if_else(pa.array(of_part < _NULL), _NO_BYTES, column))
    heads = np.zeros(len(origins), _ORIGIN)
    heads["time_ms"] = origins.times_ms
    heads["lengths"] = np.stack([_lengths(keys), _lengths(values)], axis=1)
    return _joined(_heads(lengths), *written, _fixed(heads), keys, values)


def handed_on(
    origins: Sequence[bytes] | Objects, *parts: Sequence[bytes | None] | Objects
) -> Objects:
    """Pack messages of origins as another message had them."""
    columns = [pa.array(part, _BYTES) for part in parts]
    heads = _heads([*map(_lengths, columns)])
    return _joined(heads, *columns, pa.array(origins, _BYTES))


class Received:
    """Unpacks messages that have equally many parts."""

    def __init__(self, rows: Records, parts: int) -> None:
        self._rows = rows
        column = pa.array(rows.values, _BYTES)
        _, offsets, data = column.buffers()
        self._data: bytes = b"" if data is None else data.to_pybytes()
        bounds = np.frombuffer(offsets, np.int64, len(column) + 1)
        self._ends = bounds[1:]
        heads = self._at(bounds[:-1], _type_of(parts))
        self._lengths = heads["lengths"]
        behind = bounds[:-1] + heads.dtype.itemsize
        self._starts = behind[:, None] + np.cumsum(np.maximum(self._lengths, 0), axis=1)
        self._starts = np.concatenate([behind[:, None], self._starts], axis=1)

    def parts(self) -> list[list[bytes | None]]:
        """Return the first part of all messages, the second, and so on."""
        return [*map(self._part, range(self._lengths.shape[1]))]

    def origins(self) -> list[bytes]:
        """Return the origin of each message, packed."""
        return self._cut(self._starts[:, -1], self._ends - self._starts[:, -1])

    def records(self) -> Records:
        """Return the records that caused the messages."""
        times_ms, *places = self._of_origins
        keys, values = (np.fromiter(self._cut(*each), object, len(self._ends)) for each in places)
        columns = self._rows.columns()
        columns = columns._replace(keys=keys, values=values, times_ms=times_ms)
        return type(self._rows)(columns, np.arange(len(keys)))

    def _part(self, number: int) -> list[bytes | None]:
        starts, lengths = self._starts[:, number], self._lengths[:, number]
        if (lengths < _NULL).any():
            of_origins = self._of_origins
            for again, (own_starts, own_lengths) in zip(
                (_KEY_AGAIN, _VALUE_AGAIN), of_origins[1:], strict=True
            ):
                is_again = lengths == again
                starts = np.where(is_again, own_starts, starts)
                lengths = np.where(is_again, own_lengths, lengths)
        return self._cut(starts, lengths)

    @cached_property
    def _of_origins(self) -> tuple[Any, Any, Any]:
        """Return the times of the origins, and starts and lengths of their keys and values."""
        starts = self._starts[:, -1]
        heads = self._at(starts, _ORIGIN)
        keys, values = heads["lengths"].T
        of_keys = starts + _ORIGIN.itemsize
        of_values = of_keys + np.maximum(keys, 0)
        return heads["time_ms"].astype(np.int64), (of_keys, keys), (of_values, values)

    def _at(self, places: Integers, what: np.dtype[Any]) -> NDArray[Any]:
        data = np.frombuffer(self._data, np.uint8)
        taken = data[places[:, None] + np.arange(what.itemsize)]
        return np.ascontiguousarray(taken).view(what).ravel()

    def _cut(self, starts: Integers, lengths: Integers) -> list[Any]:
        data = self._data
        ends = starts + lengths
        found: list[Any] = [
            data[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        ]
        for place in np.flatnonzero(lengths == _NULL).tolist():
            found[place] = None
        return found


def _joined(*columns: pa.Array) -> Objects:
    """Return the bytes of each row end to end; a null has none."""
    present = [column.fill_null(_NO_BYTES) for column in columns]
    joined: Objects = pc.binary_join_element_wise(*present, _NO_BYTES).to_numpy(
        zero_copy_only=False
    )
    return joined


def _heads(lengths: Sequence[Integers]) -> pa.Array:
    parts = len(lengths)
    heads = np.zeros(len(lengths[0]), _type_of(parts))
    heads["parts"] = parts
    heads["lengths"] = np.stack(lengths, axis=1)
    return _fixed(heads)


def _fixed(rows: NDArray[Any]) -> pa.Array:
    """Return rows of equally many bytes as a column of bytes."""
    size = rows.dtype.itemsize
    column = pa.Array.from_buffers(pa.binary(size), len(rows), [None, pa.py_buffer(rows.tobytes())])
    return column.cast(_BYTES)


def _lengths(column: pa.Array) -> Integers:
    lengths: Integers = pc.fill_null(pc.binary_length(column), _NULL).to_numpy()
    return lengths


def _are_equal(column: pa.Array, other: pa.Array) -> NDArray[np.bool_]:
    equal = pc.fill_null(pc.equal(column, other), pa.scalar(value=False))
    found: NDArray[np.bool_] = equal.to_numpy(zero_copy_only=False)
    return found


@cache
def _head(parts: int) -> Struct:
    """Return the layout of a message's beginning, for so many parts."""
    return Struct(f"<B{parts}i")


@cache
def _type_of(parts: int) -> np.dtype[Any]:
    """Return the same layout for columns."""
    return np.dtype([("parts", "u1"), ("lengths", "<i4", (parts,))])
