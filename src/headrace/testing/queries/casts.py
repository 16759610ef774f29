"""Cast values to other types as Spark does in its ANSI mode: exactly, or without an answer."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal, InvalidOperation
from math import isfinite, isnan
from typing import Any

from pyspark.sql import types as spark

from headrace.contracts.errors import SparkNeeded
from headrace.testing.queries.kinds import BIGINT, WHOLE, is_whole

EXACT = Context(prec=400)
"""Digits enough for every sum, product and cast of two decimals, and for every double."""
_MICROS = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*")
_INTEGER = re.compile(r"\s*[+-]?\d+\s*")
_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?"
    r"(Z|[+-](?:0\d|1[0-7]):[0-5]\d|[+-]18:00)?",
    re.ASCII,
)
_DAY = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_PLAIN_FROM, _PLAIN_TO = 1e-3, 1e7
Cast = Callable[[Any], Any]


class NoAnswer(Exception):
    """An expression has no answer for a row. **Do:** change it, or begin its function with try_."""


def fitting_decimal(number: Decimal, kind: spark.DecimalType) -> Decimal:
    """Round a number to the scale of a type; NoAnswer if it has too many digits then."""
    fits = not number or number.adjusted() < kind.precision - kind.scale
    if fits:
        rounded = number.quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP, EXACT)
        fits = not rounded or len(rounded.as_tuple().digits) <= kind.precision
    if not fits:
        message = f"{number} does not fit a {kind.simpleString().upper()}"
        raise NoAnswer(message)
    # Spark has no zero with a sign.
    return rounded or abs(rounded)


def fitting_whole(number: int, kind: spark.DataType) -> int:
    """Return a whole number of a type; NoAnswer if it is too large."""
    bits, _ = WHOLE[type(kind)]
    if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
        message = f"{number} does not fit a {kind.simpleString().upper()}"
        raise NoAnswer(message)
    return number


def cast_of(source: spark.DataType, target: spark.DataType) -> Cast | None:
    """Return a function that casts values, None for a cast that only Spark knows."""
    if source == target or isinstance(source, spark.NullType):
        return lambda value: value
    if is_whole(target) or isinstance(target, (spark.DecimalType, spark.DoubleType)):
        return _to_number(source, target)
    if isinstance(target, spark.StringType):
        return _TO_TEXT.get(type(source))
    if isinstance(source, spark.StringType):
        if isinstance(target, spark.TimestampType):
            return micros_of
        return day_of if isinstance(target, spark.DateType) else None
    if isinstance(source, spark.TimestampType) and isinstance(target, spark.DateType):
        return _day_at
    return None


def _day_at(micros: int) -> date:
    try:
        return (_EPOCH + timedelta(microseconds=micros)).date()
    except OverflowError as error:
        message = f"only Spark knows on which day {micros} microseconds after 1970 are"
        raise SparkNeeded(message) from error


def _to_number(source: spark.DataType, target: spark.DataType) -> Cast | None:
    if isinstance(target, spark.DecimalType):
        return _to_decimal(source, target)
    return _to_whole(source, target) if is_whole(target) else _to_double(source)


def _to_whole(source: spark.DataType, target: spark.DataType) -> Cast | None:
    if is_whole(source):
        return lambda number: fitting_whole(number, target)
    if isinstance(source, spark.DecimalType):
        return lambda number: fitting_whole(int(number.to_integral_value(ROUND_DOWN)), target)
    if isinstance(source, spark.DoubleType):
        return lambda number: fitting_whole(_truncated(number), target)
    if isinstance(source, spark.StringType):
        return lambda text: fitting_whole(_parsed(text, _INTEGER, int), target)
    if isinstance(source, spark.BooleanType):
        return int
    return None


def _to_decimal(source: spark.DataType, target: spark.DecimalType) -> Cast | None:
    if is_whole(source) or isinstance(source, spark.DecimalType):
        return lambda number: fitting_decimal(Decimal(number), target)
    if isinstance(source, spark.StringType):
        return lambda text: fitting_decimal(_parsed(text, _NUMBER, Decimal), target)
    if isinstance(source, spark.DoubleType):
        return lambda number: fitting_decimal(_written(number), target)
    return None


def _written(number: float) -> Decimal:
    if not isfinite(number):
        message = f"only Spark knows which decimal {double_text(number)} is"
        raise SparkNeeded(message)
    return Decimal(repr(number))


def _to_double(source: spark.DataType) -> Cast | None:
    if is_whole(source) or isinstance(source, spark.DecimalType):
        return float
    if isinstance(source, spark.StringType):
        return lambda text: _parsed(text, _NUMBER, float)
    return None


def _truncated(number: float) -> int:
    if not isfinite(number):
        message = f"{double_text(number)} does not fit a {BIGINT.simpleString().upper()}"
        raise NoAnswer(message)
    whole = int(number)
    # As a double, the largest BIGINT is one more, and Java takes that for the largest.
    return whole - 1 if whole == _BEHIND_BIGINT else whole


_BEHIND_BIGINT = 1 << 63


def _parsed(text: str, form: re.Pattern[str], parse: Callable[[str], Any]) -> Any:
    """Parse a number; one in a form that is not certain to be none for Spark is refused."""
    if form.fullmatch(text) and text.isascii():
        try:
            return parse(text.strip())
        except InvalidOperation as error:
            message = f"{text!r} has too large an exponent"
            raise NoAnswer(message) from error
    if text.strip() and not _NUMBER.fullmatch(text):
        word = text.strip().lower().lstrip("+-")
        if word in {"nan", "inf", "infinity"} or word[-1:] in {"d", "f"} or not text.isascii():
            message = f"only Spark knows which number {text!r} is; write it in digits"
            raise SparkNeeded(message)
    message = f"{text!r} is no number of that type"
    raise NoAnswer(message)


def micros_of(text: str) -> int:
    """Parse a time; SparkNeeded for one in another form, which Spark may read all the same."""
    found = _TIME.fullmatch(text)
    if found is None:
        message = f"only Spark knows which time {text!r} is; write 2026-01-31T12:00:00Z"
        raise SparkNeeded(message)
    *parts, fraction, zone = found.groups()
    try:
        at = datetime(*(int(part) for part in parts), tzinfo=UTC)  # type: ignore[arg-type, misc]
    except ValueError as error:
        raise NoAnswer(str(error)) from error
    micros = (at - _EPOCH) // timedelta(microseconds=1) + int((fraction or "0").ljust(6, "0"))
    if zone in {None, "Z"}:
        return micros
    minutes = int(zone[1:3]) * 60 + int(zone[4:])
    return micros - (minutes if zone[0] == "+" else -minutes) * 60 * _MICROS


def day_of(text: str) -> date:
    """Parse a day; SparkNeeded for one in another form."""
    found = _DAY.fullmatch(text)
    if found is None:
        message = f"only Spark knows which day {text!r} is; write 2026-01-31"
        raise SparkNeeded(message)
    try:
        return date(*(int(part) for part in found.groups()))
    except ValueError as error:
        raise NoAnswer(str(error)) from error


def time_text(micros: int) -> str:
    """Write a time as Spark writes it into JSON."""
    try:
        at = _EPOCH + timedelta(microseconds=micros)
    except OverflowError as error:
        message = (
            f"only Spark writes the time {micros} microseconds after 1970; a number in a TIMESTAMP"
            " is of seconds: read milliseconds as a BIGINT"
        )
        raise SparkNeeded(message) from error
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond:06}Z".rjust(27, "0")


def double_text(number: float) -> str:
    """Write a double as Java does."""
    if not isfinite(number):
        return "NaN" if isnan(number) else "Infinity" if number > 0 else "-Infinity"
    shortest = Decimal(repr(number))
    if number == 0 or _PLAIN_FROM <= abs(number) < _PLAIN_TO:
        return format(shortest, "f") if "." in format(shortest, "f") else f"{shortest:f}.0"
    sign, digits, _ = shortest.as_tuple()
    text = "".join(map(str, digits)).rstrip("0") or "0"
    return f"{'-' * sign}{text[0]}.{text[1:] or '0'}E{shortest.adjusted()}"


_TO_TEXT: dict[type[spark.DataType], Cast] = {
    **dict.fromkeys(WHOLE, str),
    spark.BooleanType: lambda truth: "true" if truth else "false",
    spark.DecimalType: lambda number: format(number, "f"),
    spark.DoubleType: double_text,
    spark.DateType: str,
}
