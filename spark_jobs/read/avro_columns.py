"""Read many values in Avro at once: the first field of all, then the second, and so on.

Python would take some microseconds for each value by itself.

    value       0 (u8) | the number of its schema (u32, big-endian) | its fields in their order
    field       of a union first the number of its branch; null has nothing behind that
    number      in zigzag, seven bits a byte from the lowest on; each byte but the last has its high
                bit set
    text        its bytes behind their number
    boolean     0 or 1 (u8)

The caller reads unfit values one by one, and finds out what is wrong with them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import pyarrow as pa

from headrace.contracts.serde.registered import FRAME_BYTES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.spark_jobs.versioned.records import Integers

    Mask = NDArray[np.bool_]

_TYPES = {"string": pa.string(), "int": pa.int64(), "long": pa.int64(), "boolean": pa.bool_()}
_AS_WRITTEN = frozenset({"timestamp-millis", "uuid"})
"""Logical types whose values are the number or the text beneath them."""
_NULL = "null"
_NO_NUMBER = -1
_BYTES_MAX = 9
"""A number of more bytes may have more than 64 bits."""
_MORE, _SEVEN_BITS = 0x80, 0x7F


class PlainField(NamedTuple):
    """A field that is a text, a whole number or a boolean, or null instead."""

    name: str
    kind: pa.DataType
    branches: tuple[bool, ...] | None
    """Of a union, for each branch whether a value stands behind its number."""


class PlainRecord(NamedTuple):
    """A schema of plain fields."""

    fields: tuple[PlainField, ...]

    @classmethod
    def of(cls, schema: str) -> Self | None:
        """Take a schema in JSON; return None for one that has other fields, or none."""
        found = json.loads(schema)
        if not isinstance(found, dict) or found.get("type") != "record" or not found["fields"]:
            return None
        fields = [_plain(each) for each in found["fields"]]
        names = {each.name for each in fields if each is not None}
        return cls(tuple(filter(None, fields))) if len(names) == len(fields) else None

    def read(self, values: pa.BinaryArray, places: Integers) -> tuple[pa.StructArray, Mask]:
        """Return the fields of the values at these places, and which of them are of this schema.

        A value that is not has any fields.
        """
        reader = _Reader(values, places)
        columns = [reader.column(each) for each in self.fields]
        names = [each.name for each in self.fields]
        return pa.StructArray.from_arrays(columns, names), reader.are_whole()


def schemas_of(values: pa.BinaryArray) -> Integers:
    """Return the number of the schema that each value names, a negative one for none."""
    data, bounds = _bytes_of(values)
    starts, lengths = bounds[:-1], np.diff(bounds)
    is_framed = values.is_valid().to_numpy(zero_copy_only=False) & (lengths >= FRAME_BYTES)
    numbers = np.full(len(values), _NO_NUMBER)
    at = starts[is_framed]
    frames = np.stack([data[at + place] for place in range(FRAME_BYTES)], axis=1)
    found = frames[:, 1:].copy().view(">u4")[:, 0].astype(np.int64)
    numbers[is_framed] = np.where(frames[:, 0] == 0, found, _NO_NUMBER)
    return numbers


def _plain(field: Any) -> PlainField | None:
    kinds = field["type"]
    branches = None
    if isinstance(kinds, list):
        branches = tuple(kind != _NULL for kind in kinds)
        kinds = [kind for kind in kinds if kind != _NULL]
        if len(kinds) != 1:
            return None
        (kinds,) = kinds
    if isinstance(kinds, dict):
        logical = kinds.get("logicalType")
        kinds = None if isinstance(logical, str) and logical not in _AS_WRITTEN else kinds["type"]
    if not isinstance(kinds, str) or kinds not in _TYPES:
        return None
    return PlainField(field["name"], _TYPES[kinds], branches)


def _bytes_of(values: pa.BinaryArray) -> tuple[NDArray[np.uint8], Integers]:
    """Return the bytes of all values, and where each of them begins and the last one ends."""
    _, offsets, data = values.buffers()
    bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    held = b"" if data is None else data
    return np.frombuffer(held, np.uint8), bounds.astype(np.int64)


class _Reader:
    """Reads fields of many values, each from where the one before it ended.

    Invariant: `_at` of a value is between its bounds, and moves no more once it is found unfit.
    """

    def __init__(self, values: pa.BinaryArray, places: Integers) -> None:
        """Begin behind the frames of the values at these places, each of which has one."""
        self._buffer = values.buffers()[2]
        self._data, bounds = _bytes_of(values)
        self._at = bounds[places] + FRAME_BYTES
        self._ends = bounds[places + 1]
        self._fits = np.ones(len(places), np.bool_)

    def are_whole(self) -> Mask:
        """Return which values were read to their ends."""
        whole: Mask = self._fits & (self._at == self._ends)
        return whole

    def column(self, field: PlainField) -> pa.Array:
        """Return the next field of all values."""
        is_there = np.ones(len(self._at), np.bool_)
        if field.branches is not None:
            branches = self._numbers(is_there)
            self._expect((branches >= 0) & (branches < len(field.branches)))
            is_there = np.array(field.branches)[np.where(self._fits, branches, 0)]
        if field.kind == pa.string():
            return self._texts(is_there)
        if field.kind == pa.bool_():
            return pa.array(self._booleans(is_there), mask=~is_there)
        return pa.array(self._numbers(is_there), mask=~is_there)

    def _numbers(self, is_there: Mask) -> Integers:
        """Return a number of each value in which it is there, anything for others."""
        # A number may reach into the next value; that one is found unfit where it goes on.
        first = self._bytes(self._at)
        found = (first & _SEVEN_BITS).astype(np.uint64)
        sizes = np.ones(len(first), np.int64)
        longer = np.flatnonzero(first & _MORE)
        for place in range(1, _BYTES_MAX):
            if not len(longer):
                break
            further = self._bytes(self._at[longer] + place)
            bits = (further & _SEVEN_BITS).astype(np.uint64)
            found[longer] |= bits << np.uint64(7 * place)
            sizes[longer] += 1
            longer = longer[(further & _MORE) != 0]
        ends_in_time = np.ones(len(first), np.bool_)
        ends_in_time[longer] = False
        self._expect(ends_in_time | ~is_there)
        self._move(sizes, is_there)
        numbers: Integers = (found >> np.uint64(1)).view(np.int64) ^ -(found & 1).view(np.int64)
        return numbers

    def _booleans(self, is_there: Mask) -> Mask:
        found = self._bytes(self._at)
        self._expect((found <= 1) | ~is_there)
        self._move(np.ones(len(found), np.int64), is_there)
        booleans: Mask = found == 1
        return booleans

    def _texts(self, is_there: Mask) -> pa.StringArray:
        lengths = np.where(is_there, self._numbers(is_there), 0)
        self._expect(lengths >= 0)
        starts = self._at
        self._move(lengths, is_there)
        # Values stand one behind the other, so these bounds ascend. Each second piece is a text.
        bounds = np.stack([starts, self._at], axis=1).astype(np.int32)
        buffers = [None, pa.py_buffer(bounds.tobytes()), self._buffer]
        pieces = pa.BinaryArray.from_buffers(pa.binary(), max(2 * len(starts) - 1, 0), buffers)
        every_second = pa.array(np.arange(0, 2 * len(starts), 2), mask=~is_there)
        texts = pieces.take(every_second).view(pa.string())
        try:
            texts.validate(full=True)
        except pa.ArrowInvalid:
            # A text is no UTF-8. It is found, and told, where values are read one by one.
            self._expect(np.zeros(len(starts), np.bool_))
            return pa.nulls(len(starts), pa.string())
        return texts

    def _bytes(self, places: Integers) -> NDArray[np.uint8]:
        return self._data[np.minimum(places, len(self._data) - 1)]

    def _move(self, sizes: Integers, is_there: Mask) -> None:
        self._expect((sizes <= self._ends - self._at) | ~is_there)
        self._at = self._at + np.where(self._fits & is_there, sizes, 0)

    def _expect(self, holds: Mask) -> None:
        self._fits = self._fits & holds
