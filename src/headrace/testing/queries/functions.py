"""The functions of SQL that give Spark's answers in Python too."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from math import isfinite
from typing import Any

from pyspark.sql import types as spark
from sqlglot import exp

from headrace.contracts.errors import SparkNeeded
from headrace.testing.queries.arithmetic import negative
from headrace.testing.queries.casts import EXACT, fitting_decimal
from headrace.testing.queries.kinds import (
    BOOLEAN,
    DIGITS_MAX,
    INT,
    STRING,
    TIMESTAMP,
    is_number,
    is_whole,
)
from headrace.testing.queries.typed import Row, Typed

ARGUMENTS = (
    *("this", "expression", "expressions", "start", "length", "unit", "position", "negate"),
    "decimals",
)
_MICROS = {"SECOND": 1_000_000, "MINUTE": 60_000_000, "HOUR": 3_600_000_000}
_MICROS |= {"DAY": 24 * _MICROS["HOUR"]}
Compile = Callable[[Any], Typed]


def compiled(node: Any, compile_it: Compile) -> Typed | None:
    """Compile a call, None for one that only Spark answers."""
    make = _FUNCTIONS.get(type(node))
    return None if make is None else make(node, compile_it)


def _of_text(change: Callable[[str], Any], kind: spark.DataType = STRING) -> Any:
    def make(node: Any, compile_it: Compile) -> Typed | None:
        text = compile_it(node.this)
        if not isinstance(text.kind, spark.StringType):
            return None
        return Typed(kind, lambda row: None if (t := text.run(row)) is None else change(t))

    return make


def _in_ascii(change: Callable[[str], str]) -> Callable[[str], str]:
    """Change letters; those beyond ASCII have rules that differ from library to library."""

    def changed(text: str) -> str:
        if not text.isascii():
            message = f"only Spark knows capitals and small letters of {text!r}"
            raise SparkNeeded(message)
        return change(text)

    return changed


def _concat(node: Any, compile_it: Compile) -> Typed | None:
    if not node.args.get("safe"):
        # Two texts side by side, as in 'it''s', are one text in some versions of Spark.
        return None
    parts = [compile_it(each) for each in node.expressions or [node.this, node.expression]]
    if not all(isinstance(each.kind, (spark.StringType, spark.NullType)) for each in parts):
        return None

    def joined(row: Row) -> str | None:
        found = [each.run(row) for each in parts]
        return None if None in found else "".join(found)

    return Typed(STRING, joined)


def _trim(node: Any, compile_it: Compile) -> Typed | None:
    strips = {"": str.strip, "LEADING": str.lstrip, "TRAILING": str.rstrip}
    strip = strips.get(node.args.get("position") or "")
    if strip is None or node.expression:
        return None
    made: Typed | None = _of_text(lambda text: strip(text, " "))(node, compile_it)
    return made


def _substring(node: Any, compile_it: Compile) -> Typed | None:
    text, start = compile_it(node.this), compile_it(node.args["start"])
    length = compile_it(node.args.get("length") or exp.Literal.number((1 << 31) - 1))
    kinds = [type(each.kind) for each in (text, start, length)]
    if kinds != [spark.StringType, spark.IntegerType, spark.IntegerType]:
        return None

    def cut(row: Row) -> str | None:
        found = text.run(row)
        begin = None if found is None else start.run(row)
        size = None if begin is None else length.run(row)
        if found is None or begin is None or size is None:
            return None
        first = begin - 1 if begin > 0 else len(found) + begin if begin < 0 else 0
        return str(found[max(first, 0) : max(first + size, 0)]) if size > 0 else ""

    return Typed(STRING, cut)


def _like(node: Any, compile_it: Compile) -> Typed | None:
    text, pattern = compile_it(node.this), compile_it(node.expression).written
    if not isinstance(text.kind, spark.StringType) or pattern is None:
        return None
    signs = {"%": ".*", "_": "."}
    form = re.compile("".join(signs.get(each, re.escape(each)) for each in pattern), re.DOTALL)
    negated = bool(node.args.get("negate"))
    return Typed(
        BOOLEAN,
        lambda row: (
            None if (t := text.run(row)) is None else (form.fullmatch(t) is None) is negated
        ),
    )


def _absolute(node: Any, compile_it: Compile) -> Typed | None:
    number = compile_it(node.this)
    other = negative(number)
    if other is None or isinstance(number.kind, spark.DoubleType):
        return None

    def absolute(row: Row) -> Any:
        found = number.run(row)
        return found if found is None or found >= 0 else other.run(row)

    return Typed(number.kind, absolute)


def _rounded(node: Any, compile_it: Compile) -> Typed | None:
    """Round half up to a written number of digits behind the point."""
    number, places = compile_it(node.this), node.args.get("decimals")
    digits = 0 if places is None else int(places.name) if _is_digit(places) else None
    if digits is None or not is_number(number.kind):
        return None
    run, kind = number.run, number.kind
    if is_whole(kind):
        return Typed(kind, run)
    if isinstance(kind, spark.DoubleType):
        return Typed(kind, lambda row: None if (n := run(row)) is None else _near(n, digits))
    assert isinstance(kind, spark.DecimalType)
    scale = min(kind.scale, digits)
    narrow = spark.DecimalType(min(kind.precision - kind.scale + 1 + scale, DIGITS_MAX), scale)

    def rounded(row: Row) -> Decimal | None:
        found = run(row)
        return None if found is None else fitting_decimal(found, narrow)

    return Typed(narrow, rounded)


def _is_digit(node: Any) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string and node.name.isdecimal()


def _near(number: float, digits: int) -> float:
    if not isfinite(number):
        return number
    written = Decimal(repr(number))
    if int(written.as_tuple().exponent) >= -digits:
        return number or 0.0
    rounded = written.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, EXACT)
    # Java's decimals have no zero below zero.
    return float(rounded or 0)


def _truncated(node: Any, compile_it: Compile) -> Typed | None:
    time, unit = compile_it(node.this), _MICROS.get(node.args["unit"].name.upper())
    if not isinstance(time.kind, spark.TimestampType) or unit is None:
        return None
    return Typed(TIMESTAMP, lambda row: None if (t := time.run(row)) is None else t - t % unit)


def _asked(node: Any, compile_it: Compile) -> Typed | None:
    is_null = {"isnull": True, "isnotnull": False}.get(node.name.lower())
    if is_null is None or len(node.expressions) != 1:
        return None
    run = compile_it(node.expressions[0]).run
    return Typed(BOOLEAN, lambda row: (run(row) is None) is is_null)


_FUNCTIONS: dict[Any, Callable[[Any, Compile], Typed | None]] = {
    exp.Upper: _of_text(_in_ascii(str.upper)),
    exp.Lower: _of_text(_in_ascii(str.lower)),
    exp.Length: _of_text(len, INT),
    exp.Concat: _concat,
    exp.DPipe: _concat,
    exp.Trim: _trim,
    exp.Substring: _substring,
    exp.Like: _like,
    exp.Abs: _absolute,
    exp.Round: _rounded,
    exp.TimestampTrunc: _truncated,
    exp.Anonymous: _asked,
}
