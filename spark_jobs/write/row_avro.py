"""The Avro of rows in columns, as Spark's `to_avro` writes the fields of each by `avro.avro_of`.

A field is 00 for null, or 02 and the value, for it is a union of null and its type. A number is
written in zigzag, seven bits a byte from the lowest on; each byte but the last has its high bit
set. A text is its bytes behind their number, and a boolean 00 or 01.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from headrace.spark_jobs.versioned.records import Integers

_NULL, _THERE = b"\x00", b"\x02"
_BYTES_MAX = 10
"""So many bytes has a number of 64 bits."""
_SHIFTS = np.arange(0, 7 * _BYTES_MAX, 7, dtype=np.uint64)


def avro_of_rows(rows: pa.StructArray, frame: bytes) -> pa.BinaryArray:
    """Return the Avro of each row behind a frame: its fields in their order.

    There is a field or more, and they are texts, whole numbers and booleans.
    """
    parts = [_union(column) for column in rows.flatten()]
    return pc.binary_join_element_wise(pa.scalar(frame, pa.binary()), *parts, b"")


def _union(column: pa.Array) -> pa.BinaryArray:
    written = pc.binary_join_element_wise(_THERE, _written(column), b"")
    return pc.fill_null(written, _NULL)


def _written(column: pa.Array) -> pa.BinaryArray:
    """Return the bytes of each field of a column, null for null."""
    if pa.types.is_string(column.type):
        texts = column.cast(pa.binary())
        lengths = pc.fill_null(pc.binary_length(column), 0).to_numpy()
        return pc.binary_join_element_wise(_numbers(lengths.astype(np.int64)), texts, b"")
    if pa.types.is_boolean(column.type):
        return pc.if_else(column, b"\x01", b"\x00")
    numbers = pc.fill_null(column.cast(pa.int64()), 0).to_numpy()
    return pc.if_else(column.is_valid(), _numbers(numbers), None)


def _numbers(numbers: Integers) -> pa.BinaryArray:
    zigzag = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    # A byte is written if bits are left for it; the lowest is always.
    groups = zigzag[:, None] >> _SHIFTS
    is_written = groups != 0
    is_written[:, 0] = True
    goes_on = np.zeros_like(is_written)
    goes_on[:, :-1] = is_written[:, 1:]
    written = (groups & 0x7F | goes_on * np.uint64(0x80)).astype(np.uint8)[is_written]
    offsets = np.concatenate([[0], np.cumsum(is_written.sum(axis=1))]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(written)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(numbers), buffers)
