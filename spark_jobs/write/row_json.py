"""The JSON of rows in columns, as `orjson` writes the fields of each."""

from __future__ import annotations

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

_QUOTE, _BACKSLASH, _FIRST_PRINTED = 0x22, 0x5C, 0x20
"""The bytes that JSON escapes in a text, and all below the last one."""


def json_of(rows: pa.StructArray) -> pa.BinaryArray:
    """Return the JSON of each row: its fields in their order, and nulls too.

    There is a field or more, and they are texts, whole numbers and booleans.
    """
    parts: list[pa.Array | pa.Scalar] = []
    before = "{"
    for field, column in zip(rows.type, rows.flatten(), strict=True):
        name = orjson.dumps(field.name).decode()
        parts += [pa.scalar(f"{before}{name}:"), pc.fill_null(_written(column), "null")]
        before = ","
    return pc.binary_join_element_wise(*parts, "}", "").view(pa.binary())


def _written(column: pa.Array) -> pa.StringArray:
    """Return the JSON of each field of a column, null for null."""
    if column.type != pa.string():
        return column.cast(pa.string())
    if _has_escapes(column):
        texts = column.to_pylist()
        written = [None if text is None else orjson.dumps(text).decode() for text in texts]
        return pa.array(written, pa.string())
    return pc.binary_join_element_wise('"', column, '"', "")


def _has_escapes(texts: pa.StringArray) -> bool:
    """Return whether any text has a character that JSON writes otherwise."""
    _, offsets, data = texts.buffers()
    if data is None or not len(texts):
        return False
    start, end = np.frombuffer(offsets, np.int32)[[texts.offset, texts.offset + len(texts)]]
    written = np.frombuffer(data, np.uint8)[start:end]
    escaped = (written < _FIRST_PRINTED) | (written == _QUOTE) | (written == _BACKSLASH)
    return bool(escaped.any())
