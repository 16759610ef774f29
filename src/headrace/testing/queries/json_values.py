"""Read and write JSON as Spark does, column by column.

A value that Spark cannot read as the schema says is `Unreadable`, as in production. SparkNeeded
names a value of which that is not certain.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import Any

from pyspark.sql import types as spark

from headrace.contracts.errors import SparkNeeded
from headrace.testing.queries.casts import (
    NoAnswer,
    cast_of,
    day_of,
    double_text,
    fitting_decimal,
    fitting_whole,
    micros_of,
    time_text,
)
from headrace.testing.queries.kinds import BIGINT, STRING, is_whole

_SECOND = 1_000_000
_MINUS_ZERO = "-0"
_DIGITS_MAX = 20
"""The digits of a whole number of 64 bits, and its sign."""
_NO_WORDS = ("NaN", "Infinity", "-Infinity")
Parse = Callable[[Any, Any], Any]
Parsers = Mapping[type[spark.DataType], Parse]


class Unreadable(Exception):
    """Bytes are no value of a schema. **Do:** look for them among the dead records."""


class Whole(str):
    """A whole number, as its text."""

    __slots__ = ()


class Fraction(str):
    """A number with a point or an exponent, as its text."""

    __slots__ = ()


def read(value: bytes, schema: spark.StructType) -> dict[str, Any]:
    """Read a value's columns; Unreadable if it is none of that schema."""
    return _read(value, schema, _PARSERS)


def read_ours(value: bytes, schema: spark.StructType) -> dict[str, Any]:
    """Read the columns of a value that `write` wrote, or that `read` can read."""
    return _read(value, schema, _OF_OURS)


def _read(value: bytes, schema: spark.StructType, parsers: Parsers) -> dict[str, Any]:
    text = value.decode(errors="replace").strip(" \t\r\n")
    try:
        found, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError) as error:
        raise Unreadable from error
    if not isinstance(found, dict) or end < len(text):
        raise Unreadable
    return _struct(found, schema, parsers)


def _struct(found: Any, schema: spark.StructType, parsers: Parsers) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise Unreadable
    return {
        field.name: _item(found.get(field.name), field.dataType, parsers) for field in schema.fields
    }


def _item(found: Any, kind: spark.DataType, parsers: Parsers) -> Any:
    if found is None:
        return None
    if isinstance(kind, spark.StructType):
        return _struct(found, kind, parsers)
    if isinstance(kind, spark.ArrayType):
        if not isinstance(found, list):
            raise Unreadable
        return [_item(each, kind.elementType, parsers) for each in found]
    try:
        return parsers[type(kind)](found, kind)
    except NoAnswer as error:
        raise Unreadable from error


def _boolean(found: Any, _kind: spark.DataType) -> bool:
    if not isinstance(found, bool):
        raise Unreadable
    return found


def _whole(found: Any, kind: spark.DataType) -> int:
    if not isinstance(found, Whole):
        raise Unreadable
    return fitting_whole(_whole_of(found), kind)


def _whole_of(found: str) -> int:
    """Return a whole number of 64 bits at most; Python reads none of thousands of digits."""
    if len(found) > _DIGITS_MAX:
        message = f"{found[:_DIGITS_MAX]}... has too many digits"
        raise NoAnswer(message)
    return fitting_whole(int(found), BIGINT)


def _double(found: Any, _kind: spark.DataType) -> float:
    if isinstance(found, (Whole, Fraction)):
        return float(found)
    raise Unreadable


def _our_double(found: Any, kind: spark.DataType) -> float:
    """Read a double, or the text of one that JSON has no word for."""
    return float(found) if found in _NO_WORDS else _double(found, kind)


def _decimal(found: Any, kind: spark.DecimalType) -> Decimal:
    if isinstance(found, (Whole, Fraction)):
        try:
            return fitting_decimal(Decimal(found), kind)
        except InvalidOperation as error:
            message = f"only Spark knows which number {found} is; write one with a smaller exponent"
            raise SparkNeeded(message) from error
    if isinstance(found, str):
        message = f"only Spark knows which number the text {found!r} is; write it without quotes"
        raise SparkNeeded(message)
    raise Unreadable


def _text(found: Any, _kind: spark.DataType) -> str:
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, Fraction) or not isinstance(found, str) or _is_minus_zero(found):
        message = f"only Spark knows the text of {json.dumps(found)}; write it in quotes"
        raise SparkNeeded(message)
    # Half of a character that takes two is a question mark in Spark's texts.
    return str(found).encode(errors="replace").decode()


def _is_minus_zero(found: str) -> bool:
    return isinstance(found, Whole) and found == _MINUS_ZERO


def _time(found: Any, _kind: spark.DataType) -> int:
    if isinstance(found, Whole):
        return _whole_of(found) * _SECOND
    if isinstance(found, str) and not isinstance(found, Fraction):
        return micros_of(found)
    raise Unreadable


def _day(found: Any, _kind: spark.DataType) -> date:
    if isinstance(found, str) and not isinstance(found, (Whole, Fraction)):
        return day_of(found)
    message = f"only Spark knows which day {json.dumps(found)} is; write 2026-01-31 in quotes"
    raise SparkNeeded(message)


_PARSERS: Parsers = {
    spark.BooleanType: _boolean,
    spark.ByteType: _whole,
    spark.ShortType: _whole,
    spark.IntegerType: _whole,
    spark.LongType: _whole,
    spark.DoubleType: _double,
    spark.DecimalType: _decimal,
    spark.StringType: _text,
    spark.TimestampType: _time,
    spark.DateType: _day,
}
_OF_OURS: Parsers = {**_PARSERS, spark.DoubleType: _our_double}


def kept_text(text: str | None, kind: spark.DataType) -> Any:
    """Read a text that a group keeps as its type; None if it does not fit."""
    if text is None:
        return None
    if isinstance(kind, spark.ArrayType):
        return [kept_text(each, kind.elementType) for each in json.loads(text)]
    cast = cast_of(STRING, kind)
    if isinstance(kind, spark.BooleanType):
        return text == "true"
    if isinstance(kind, spark.DoubleType):
        return float(text)
    assert cast is not None
    try:
        return cast(text)
    except NoAnswer:
        return None


def write(columns: Mapping[str, tuple[Any, spark.DataType]]) -> bytes:
    """Write columns as a value, nulls too."""
    return _object(columns).encode()


def _object(columns: Mapping[str, tuple[Any, spark.DataType]]) -> str:
    members = (f"{_quoted(name)}:{_written(*one)}" for name, one in columns.items())
    return f"{{{','.join(members)}}}"


def _written(value: Any, kind: spark.DataType) -> str:
    if value is None:
        return "null"
    if isinstance(kind, spark.StructType):
        return _object({field.name: (value[field.name], field.dataType) for field in kind.fields})
    if isinstance(kind, spark.ArrayType):
        return f"[{','.join(_written(each, kind.elementType) for each in value)}]"
    if isinstance(kind, spark.BooleanType):
        return "true" if value else "false"
    if is_whole(kind) or isinstance(kind, spark.DecimalType):
        return str(value)
    if isinstance(kind, spark.DoubleType):
        return double_text(value) if isfinite(value) else f'"{double_text(value)}"'
    if isinstance(kind, spark.TimestampType):
        return f'"{time_text(value)}"'
    return _quoted(str(value))


def _quoted(text: str) -> str:
    """Quote a text; Spark writes the digits of control characters in capitals."""
    written = json.dumps(text, ensure_ascii=False)
    for sign in {each for each in text if each < " "} - set("\b\t\n\f\r"):
        written = written.replace(f"\\u{ord(sign):04x}", f"\\u{ord(sign):04X}")
    return written


def _refuse(word: str) -> None:
    message = f"{word} is no JSON"
    raise ValueError(message)


_DECODER = json.JSONDecoder(parse_float=Fraction, parse_int=Whole, parse_constant=_refuse)
