"""Read JSON in Python as Spark reads it, and check it against the columns of a value."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

UNREADABLE = "the value cannot be read as the schema says"
_SPACE = " \t\n\r"
"""White space, as JSON has it around a value."""
ALIKE = frozenset((str, int, bool, type(None)))
"""The types that orjson reads and writes as Python's own json does. It reads a whole number of more
than 64 bits as a float, so json has the last word on floats, and on what may have some inside."""
_DEPTH_MAX = 500
"""So many objects and arrays may stand in each other: Python's own json calls itself for each."""
_BITS: Mapping[type[DataType], int] = {ShortType: 16, IntegerType: 32, LongType: 64}
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
"""A text, or what begins as one: a pattern that can fail would try each quote in it anew."""
_OPENING, _BRACKET = b"[{", re.compile(rb"[\[\]{}]")
_Fits = Callable[[Any], bool]
"""Whether a field that is not null is one of its column's."""


def read_json(value: bytes | None) -> dict[str, Any] | None:
    """Return the fields of a value, None for a tombstone or a value that is no JSON object."""
    if value is None:
        return None
    try:
        quick = orjson.loads(value)
    except ValueError:
        return _read_slowly(value)
    if type(quick) is dict and ALIKE.issuperset(map(type, quick.values())):
        return quick
    return _read_slowly(value)


def text_of(field: Any) -> str | None:
    """Return a field as the text that Spark reads, None if it is null."""
    if field is None or isinstance(field, str):
        return field
    return json.dumps(field, ensure_ascii=False, separators=(",", ":"))


def read_quickly(value: bytes) -> dict[str, Any]:
    """Return the fields of a value that has been checked.

    Texts, whole numbers of 64 bits, true, false and null are exact; `read_json` has the last word
    on other fields.
    """
    try:
        fields: dict[str, Any] = orjson.loads(value)
    except ValueError:
        return _read_slowly(value) or {}
    return fields


def fields_of(value: bytes | None) -> dict[str, Any]:
    """Return the fields of any value, none for a tombstone or a value that is no JSON object.

    Those of a type in `ALIKE` are exact; `read_json` has the last word on other fields.
    """
    if value is None:
        return {}
    try:
        quick = orjson.loads(value)
    except ValueError:
        return _read_slowly(value) or {}
    return quick if type(quick) is dict else {}


def read_written(rows: Iterable[bytes | None]) -> list[dict[str, Any]]:
    """Return the fields of rows that a job wrote, each of them an object; a deleted one has none.

    Those of a type in `ALIKE` are exact; `read_json` has the last word on other fields.
    """
    objects = [row or b"{}" for row in rows]
    try:
        # To read one row takes about as long as to begin.
        fields: list[dict[str, Any]] = orjson.loads(b"[%b]" % b",".join(objects))
    except ValueError:
        return [*map(fields_of, objects)]
    return fields


def _read_slowly(value: bytes) -> dict[str, Any] | None:
    # Spark puts the same sign in the place of bytes that are no text.
    text = value.decode(errors="replace").strip(_SPACE)
    try:
        found, end = _DECODER.raw_decode(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) and end == len(text) else None


def _refuse(word: str) -> None:
    message = f"{word} is no JSON"
    raise ValueError(message)


_DECODER = json.JSONDecoder(parse_constant=_refuse)


class JsonCheck:
    """Checks values in JSON, of columns whose types Python can check."""

    def __init__(self, schema: StructType) -> None:
        """Take the columns; `is_for` must hold for them."""
        self._schema = schema
        self._columns = [
            (each.name, fits_of(each.dataType), None if each.nullable else missing(each.name))
            for each in schema.fields
        ]

    def __reduce__(self) -> tuple[type[JsonCheck], tuple[StructType]]:
        """Travel to a worker as the columns alone: functions would be sent as their code."""
        return JsonCheck, (self._schema,)

    @staticmethod
    def is_for(kind: DataType) -> bool:
        """Return whether Python can check this type.

        Spark alone knows times, decimals and maps, and it reads 255 as a byte.
        """
        if isinstance(kind, StructType):
            return all(JsonCheck.is_for(each.dataType) for each in kind.fields)
        if isinstance(kind, ArrayType):
            return JsonCheck.is_for(kind.elementType)
        # A subclass of text has a length.
        return type(kind) in {*_BITS, StringType, BooleanType, FloatType, DoubleType}

    def problems(self, values: Iterable[bytes | None]) -> dict[int, str]:
        """Return, by the index of each value that is not readable, its problem in words."""
        found: dict[int, str] = {}
        for index, value in enumerate(values):
            if value is None:
                continue
            try:
                fields = orjson.loads(value)
            except ValueError:
                # Spark reads bytes that are no text, and halves of a pair of characters.
                fields = None if _is_deep(value) else _read_slowly(value)
            problem = self._problem(value, fields)
            if problem is not None:
                found[index] = problem
        return found

    def problems_in(self, fields: pa.StructArray) -> dict[int, str]:
        """Do as `problems` with values in columns: texts, whole numbers and booleans."""
        columns = dict(zip(fields.type.names, fields.flatten(), strict=True))
        absent: dict[int, str] = {}
        found: dict[int, str] = {}
        for name, fits, problem in self._columns:
            column = columns.get(name, pa.nulls(len(fields)))
            if problem is not None and column.null_count:
                for index in np.flatnonzero(column.is_null()).tolist():
                    absent.setdefault(index, problem)
            if fits is not None and not _all_fit(column, fits):
                misfits = (
                    index
                    for index, field in enumerate(column.to_pylist())
                    if field is not None and not fits(field)
                )
                found |= dict.fromkeys(misfits, UNREADABLE)
        return absent | found

    def _problem(self, value: bytes, fields: Any) -> str | None:
        if type(fields) is not dict or _is_deep(value):
            return UNREADABLE
        absent = None
        for name, fits, problem in self._columns:
            field = fields.get(name)
            if field is None:
                absent = absent or problem
            elif fits is not None and not fits(field):
                return UNREADABLE
        return absent


def _all_fit(column: pa.Array, fits: _Fits) -> bool:
    """Return whether all fields of a column certainly fit; null does."""
    present = column.drop_null()
    if not len(present):
        return True
    # Whole numbers between two that fit do so as well. Of texts and booleans the type decides.
    some = pc.min_max(present).values() if pa.types.is_integer(column.type) else present[:1]
    return all(fits(each.as_py()) for each in some)


def missing(name: str) -> str:
    """Describe the problem of a value without a field that it must have."""
    return f"the field `{name}` is missing, null, or of another type"


def _is_deep(value: bytes) -> bool:
    """Return whether more objects and arrays stand in each other than we read."""
    if len(value) <= _DEPTH_MAX or sum(map(value.count, (b"[", b"{"))) <= _DEPTH_MAX:
        return False
    depth = deepest = 0
    for bracket in _BRACKET.findall(_TEXT.sub(b"", value)):
        depth += 1 if bracket in _OPENING else -1
        deepest = max(deepest, depth)
    return deepest > _DEPTH_MAX


def fits_of(kind: DataType) -> _Fits | None:
    """Return what says whether a field fits, None if any field does: text takes all as written."""
    if isinstance(kind, StringType):
        return None
    if isinstance(kind, StructType):
        return _fits_struct(kind)
    if isinstance(kind, ArrayType):
        return _fits_array(kind)
    bits = _BITS.get(type(kind))
    if bits is not None:
        top = 1 << (bits - 1)
        return lambda field: type(field) is int and -top <= field < top
    if isinstance(kind, BooleanType):
        return lambda field: type(field) is bool
    return lambda field: type(field) in {int, float}


def _fits_struct(kind: StructType) -> _Fits:
    columns = [(each.name, fits_of(each.dataType)) for each in kind.fields]
    checked = [(name, fits) for name, fits in columns if fits is not None]

    def fits_struct(field: Any) -> bool:
        return type(field) is dict and all(
            fits(inner) for name, fits in checked if (inner := field.get(name)) is not None
        )

    return fits_struct


def _fits_array(kind: ArrayType) -> _Fits:
    fits = fits_of(kind.elementType)

    def fits_array(field: Any) -> bool:
        if type(field) is not list:
            return False
        return fits is None or all(fits(item) for item in field if item is not None)

    return fits_array
