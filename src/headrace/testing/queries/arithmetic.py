"""Compute with numbers as Spark does: types, overflow, and digits behind the point."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, Context, Decimal
from typing import Any

from pyspark.sql import types as spark

from headrace.testing.queries.casts import EXACT, NoAnswer, fitting_decimal, fitting_whole
from headrace.testing.queries.kinds import (
    BIGINT,
    DOUBLE,
    WHOLE,
    bounded,
    decimal_of,
    is_number,
    is_whole,
)
from headrace.testing.queries.typed import Row, Typed

_INEXACT = Context(prec=39, rounding=ROUND_DOWN)
"""Spark's products and quotients of decimals have so many digits before they are rounded."""
_NEGATED = Context(prec=34, rounding=ROUND_HALF_EVEN)
"""Spark turns a sign by Scala, which keeps 34 digits."""
_SCALE_OF_QUOTIENT = 6
_CHAINED: dict[str, Callable[[int, int], int]] = {"+": operator.add, "*": operator.mul}
_DIVISIONS = ("/", "div", "%")


def arithmetic(sign: str, left: Typed, right: Typed) -> Typed | None:
    """Compute with two numbers; None where only Spark brings their types together."""
    if not (is_number(left.kind) and is_number(right.kind)):
        return None
    if isinstance(left.kind, spark.DoubleType) or isinstance(right.kind, spark.DoubleType):
        return None if sign == "div" else _of_doubles(sign, left, right)
    if is_whole(left.kind) and is_whole(right.kind):
        return _of_doubles(sign, left, right) if sign == "/" else _of_wholes(sign, left, right)
    if left.is_unclear or right.is_unclear:
        return None
    return _of_decimals(sign, left, right)


def is_always_null(found: Typed) -> bool:
    """Whether Spark finds a null while it plans."""
    if not found.is_constant:
        return False
    try:
        return found.run({}) is None
    except NoAnswer:
        return False


def _both(
    sign: str, left: Typed, right: Typed, compute: Callable[[Any, Any], Any]
) -> Callable[[Row], Any]:
    """Compute with both numbers; behind a null Spark does not look at the other number.

    It looks at a divisor first, so that an error in a dividend is none if the divisor is null. If
    one of them is null in every row, it looks at none.
    """
    if is_always_null(left) or is_always_null(right):
        return lambda _row: None
    divides = sign in _DIVISIONS
    first, second = (right.run, left.run) if divides else (left.run, right.run)

    def computed(row: Row) -> Any:
        one = first(row)
        other = None if one is None else second(row)
        if other is None:
            return None
        return compute(other, one) if divides else compute(one, other)

    return computed


def _of_doubles(sign: str, left: Typed, right: Typed) -> Typed:
    compute: Callable[[float, float], float] = {
        "+": lambda one, other: one + other,
        "-": lambda one, other: one - other,
        "*": lambda one, other: one * other,
        "/": _divided,
        "%": _remainder,
    }[sign]
    return Typed(
        DOUBLE, _both(sign, left, right, lambda one, other: compute(float(one), float(other)))
    )


def _divided(one: float, other: float) -> float:
    if other == 0:
        raise NoAnswer(DIVISION_BY_ZERO)
    return one / other


def _remainder(one: float, other: float) -> float:
    if other == 0:
        raise NoAnswer(DIVISION_BY_ZERO)
    return math.nan if math.isinf(one) else math.fmod(one, other)


def _of_wholes(sign: str, left: Typed, right: Typed) -> Typed:
    kind = max(left.kind, right.kind, key=lambda each: WHOLE[type(each)])
    if sign in _CHAINED:
        terms = (*_terms(sign, left, kind), *_terms(sign, right, kind))
        if any(each.is_constant for each in terms):
            return Typed(kind, _chained(sign, terms, kind), chain=(sign, terms))
        as_written = _in_bounds(sign, left, right, _CHAINED[sign], kind)
        return Typed(kind, as_written, chain=(sign, terms))
    if sign == "div":
        kind = BIGINT
    compute: Callable[[int, int], int] = {
        "-": operator.sub,
        "div": _quotient,
        "%": lambda one, other: one - other * _quotient(one, other),
    }[sign]
    return Typed(kind, _in_bounds(sign, left, right, compute, kind))


def _in_bounds(
    sign: str,
    left: Typed,
    right: Typed,
    compute: Callable[[int, int], int],
    kind: spark.DataType,
) -> Callable[[Row], Any]:
    return _both(sign, left, right, lambda one, other: fitting_whole(compute(one, other), kind))


def _terms(sign: str, found: Typed, kind: spark.DataType) -> tuple[Typed, ...]:
    # A narrower sum is cast, so Spark does not look into it.
    if found.chain is None or found.chain[0] != sign or found.kind != kind:
        return (found,)
    return found.chain[1]


def _chained(sign: str, terms: tuple[Typed, ...], kind: spark.DataType) -> Callable[[Row], Any]:
    """Compute with constants as Spark's optimizer has it done: at once, and behind the columns.

    So `1 + i + j` overflows where `i + j + 1` does, and a constant null needs no column.
    """
    compute = _CHAINED[sign]
    columns = [each.run for each in terms if not each.is_constant]
    constants = [each.run for each in terms if each.is_constant]

    def reduced(runs: list[Callable[[Row], Any]], row: Row) -> Any:
        so_far = runs[0](row)
        for run in runs[1:]:
            other = None if so_far is None else run(row)
            if other is None:
                return None
            so_far = fitting_whole(compute(so_far, other), kind)
        return so_far

    def computed(row: Row) -> Any:
        if not (columns and constants):
            return reduced(columns or constants, row)
        constant = reduced(constants, row)
        return None if constant is None else reduced([*columns, lambda _row: constant], row)

    return computed


def _quotient(one: int, other: int) -> int:
    if other == 0:
        raise NoAnswer(DIVISION_BY_ZERO)
    quotient = abs(one) // abs(other)
    return quotient if (one < 0) == (other < 0) else -quotient


def _of_decimals(sign: str, left: Typed, right: Typed) -> Typed:
    one, other = _decimal(left), _decimal(right)
    if sign == "div":
        whole = _both(
            sign, left, right, lambda a, b: fitting_whole(_cut(Decimal(a), Decimal(b)), BIGINT)
        )
        return Typed(BIGINT, whole)
    kind = _kind_of(sign, one, other)
    compute: Callable[[Decimal, Decimal], Decimal] = {
        "+": EXACT.add,
        "-": EXACT.subtract,
        "*": _INEXACT.multiply,
        "/": _shared,
        "%": lambda a, b: EXACT.subtract(a, EXACT.multiply(b, Decimal(_cut(a, b)))),
    }[sign]

    def computed(a: Any, b: Any) -> Decimal:
        return fitting_decimal(compute(Decimal(a), Decimal(b)), kind)

    return Typed(kind, _both(sign, left, right, computed))


def _decimal(found: Typed) -> spark.DecimalType:
    return found.as_decimal or decimal_of(found.kind)


def _kind_of(sign: str, one: spark.DecimalType, other: spark.DecimalType) -> spark.DecimalType:
    scale = max(one.scale, other.scale)
    before = one.precision - one.scale, other.precision - other.scale
    match sign:
        case "+" | "-":
            return bounded(max(before) + scale + 1, scale)
        case "*":
            return bounded(one.precision + other.precision + 1, one.scale + other.scale)
        case "/":
            scale = max(_SCALE_OF_QUOTIENT, one.scale + other.precision + 1)
            return bounded(before[0] + other.scale + scale, scale)
        case _:
            return bounded(min(before) + scale, scale)


def _shared(one: Decimal, other: Decimal) -> Decimal:
    if not other:
        raise NoAnswer(DIVISION_BY_ZERO)
    return _INEXACT.divide(one, other)


def _cut(one: Decimal, other: Decimal) -> int:
    if not other:
        raise NoAnswer(DIVISION_BY_ZERO)
    return int(EXACT.divide_int(one, other))


def negative(found: Typed) -> Typed | None:
    """Return a number with the other sign, None if it is no number."""
    run, kind = found.run, found.kind
    if not is_number(kind):
        return None
    return Typed(kind, lambda row: None if (number := run(row)) is None else _negated(number, kind))


def _negated(number: Any, kind: spark.DataType) -> Any:
    if is_whole(kind):
        return fitting_whole(-number, kind)
    if isinstance(kind, spark.DecimalType):
        return fitting_decimal(_NEGATED.minus(number), kind)
    return -number


DIVISION_BY_ZERO = "division by zero"
