"""Compile an expression of Spark's SQL to Python, with types, in Spark's ANSI mode.

SparkNeeded names an expression that is not known here, or that would not give Spark's own answer. A
list of allowed arguments guards each kind of expression: sqlglot may add one that changes its
meaning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from math import isnan
from typing import Any, NoReturn

from pyspark.sql import types as spark
from sqlglot import exp
from sqlglot.errors import SqlglotError

from headrace.contracts.errors import JobInvalid, SparkNeeded
from headrace.spark_jobs.queries.mentioned import selected
from headrace.spark_jobs.queries.names import name_of
from headrace.testing.queries import functions
from headrace.testing.queries.arithmetic import arithmetic, is_always_null, negative
from headrace.testing.queries.casts import NoAnswer, cast_of, fitting_decimal
from headrace.testing.queries.kinds import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INT,
    NOTHING,
    STRING,
    decimal_for,
    kind_of,
    wider,
)
from headrace.testing.queries.typed import Row, Typed

_INTEGER = re.compile(r"\d+")
_FIXED = re.compile(r"\d+\.\d*|\.\d+")
_DIGITS_MAX = 38
_COMPARISONS: Mapping[Any, Callable[[Any, Any], bool]] = {
    exp.EQ: lambda left, right: left == right,
    exp.NEQ: lambda left, right: left != right,
    exp.LT: lambda left, right: left < right,
    exp.LTE: lambda left, right: left <= right,
    exp.GT: lambda left, right: left > right,
    exp.GTE: lambda left, right: left >= right,
}
_ARITHMETIC: Mapping[Any, str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.IntDiv: "div",
} | {exp.Mod: "%"}
_MARKS = {"is_string", "typed", "safe", "_type", "big_int", "nested", "ignore_nulls"}
"""Arguments by which sqlglot tells dialects apart, and that say nothing in Spark's own."""


@dataclass(frozen=True)
class Named:
    """An expression of a `select`, with the name of its column."""

    name: str
    typed: Typed


def parsed(text: str, where: str) -> Any:
    """Parse one expression; SparkNeeded names one that sqlglot cannot parse."""
    message = f"`{where}`: `{text}` cannot be read here; test this query in Spark"
    try:
        (found,) = selected(text)
    except (SqlglotError, ValueError) as error:
        raise SparkNeeded(message) from error
    if not isinstance(found, exp.Select) or len(found.expressions) != 1:
        raise SparkNeeded(message)
    if any(said for name, said in found.args.items() if name != "expressions"):
        raise SparkNeeded(message)
    for name in found.find_all(exp.Identifier):
        if not (name.quoted or name.name.isascii() or name_of(text) == text):
            message = (
                f"`{where}` has the name `{name.name}`, and Spark takes letters beyond ASCII only"
                " between backticks; write them around the name"
            )
            raise JobInvalid(message)
    return found.expressions[0]


class Compiler:
    """Compiles the expressions of one step over rows of these columns."""

    def __init__(self, columns: Mapping[str, spark.DataType], where: str) -> None:
        """Take the columns by name, and the step's name for messages."""
        self._columns = {name.lower(): (name, kind) for name, kind in columns.items()}
        self._where = where
        self._kinds: dict[Any, Callable[[Any], Typed]] = {
            exp.Paren: lambda node: self.compiled(node.this),
            exp.Column: self._column,
            exp.Literal: self._literal,
            exp.Boolean: lambda node: Typed(BOOLEAN, lambda _row: bool(node.this)),
            exp.Null: lambda _node: Typed(NOTHING, lambda _row: None),
            exp.Neg: self._negative,
            exp.Not: self._not,
            exp.And: lambda node: self._logic(node, decides=False),
            exp.Or: lambda node: self._logic(node, decides=True),
            exp.Is: self._is_null,
            exp.NullSafeEQ: self._same,
            exp.Between: self._between,
            exp.In: self._in,
            exp.Case: self._case,
            exp.If: self._if,
            exp.Coalesce: self._coalesce,
            exp.Nullif: self._nullif,
            exp.Cast: self._cast,
            exp.TryCast: self._cast,
            **dict.fromkeys(_COMPARISONS, self._compared),
            **dict.fromkeys(_ARITHMETIC, self._computed),
        }

    def named(self, text: str) -> Named:
        """Compile an expression of a `select`."""
        node = parsed(text, self._where)
        if isinstance(node, exp.Alias):
            return Named(node.alias, self.compiled(node.this))
        if isinstance(node, exp.Column) and not node.table:
            return Named(node.name, self.compiled(node))
        message = f"`{self._where}`: only Spark names `{text}`; name it by `AS`"
        raise SparkNeeded(message)

    def condition(self, text: str) -> Typed:
        """Compile the condition of a `filter`."""
        found = self.compiled(parsed(text, self._where))
        if not isinstance(found.kind, spark.BooleanType):
            self._refuse(text, f"is no condition but a {found.kind.simpleString().upper()}")
        return found

    def compiled(self, node: Any) -> Typed:
        """Compile an expression."""
        found = self._compiled(node)
        return found if node.find(exp.Column) else replace(found, is_constant=True)

    def _compiled(self, node: Any) -> Typed:
        compile_it = self._kinds.get(type(node))
        if compile_it is not None:
            self._refuse_more(node, ("this", "expression", "expressions", "table", "to", *_IFS))
            return compile_it(node)
        found = functions.compiled(node, self.compiled)
        if found is None:
            self._refuse(node, "is an expression that only Spark evaluates")
        self._refuse_more(node, functions.ARGUMENTS)
        return found

    def _refuse_more(self, node: Any, allowed: Iterable[str]) -> None:
        known = {*allowed, *_MARKS}
        if any(value for name, value in node.args.items() if name not in known):
            self._refuse(node, "is an expression that only Spark evaluates")

    def _refuse(self, node: Any, why: str) -> NoReturn:
        text = node if isinstance(node, str) else node.sql("spark")
        message = f"`{self._where}`: `{text}` {why}; write it otherwise, or test it in Spark"
        raise SparkNeeded(message)

    def _column(self, node: Any) -> Typed:
        found = self._columns.get(node.name.lower())
        if found is None or node.table:
            self._refuse(node, f"is no column of {', '.join(self._columns)}")
        name, kind = found
        return Typed(kind, lambda row: row[name])

    def _literal(self, node: Any) -> Typed:
        text = str(node.this)
        if node.is_string:
            if "\\" in text:
                self._refuse(node, "has a backslash")
            return Typed(STRING, lambda _row: text, written=text)
        if _INTEGER.fullmatch(text):
            return self._whole(node, int(text))
        if _FIXED.fullmatch(text):
            number = Decimal(text)
            scale = -int(number.as_tuple().exponent)
            digits = max(len(number.as_tuple().digits), scale)
            if digits > _DIGITS_MAX:
                self._refuse(node, "has too many digits")
            return Typed(spark.DecimalType(digits, scale), lambda _row: number)
        value = float(text)
        return Typed(DOUBLE, lambda _row: value)

    def _whole(self, node: Any, number: int) -> Typed:
        if not -(1 << 63) <= number < 1 << 63:
            self._refuse(node, "has too many digits")
        kind = INT if -(1 << 31) <= number < 1 << 31 else BIGINT
        return Typed(kind, lambda _row: number, as_decimal=decimal_for(number))

    def _negative(self, node: Any) -> Typed:
        if isinstance(node.this, exp.Literal) and _INTEGER.fullmatch(str(node.this.this)):
            return self._whole(node, -int(node.this.this))
        found = negative(self.compiled(node.this))
        if found is None:
            self._refuse(node, "is no number")
        return found

    def _not(self, node: Any) -> Typed:
        truth = self._truth(node.this)
        return Typed(BOOLEAN, lambda row: None if (found := truth(row)) is None else not found)

    def _logic(self, node: Any, *, decides: bool) -> Typed:
        left, right = self._truth(node.left), self._truth(node.right)

        def decided(row: Row) -> bool | None:
            first = left(row)
            if first is decides:
                return decides
            second = right(row)
            if second is decides:
                return decides
            return None if first is None or second is None else not decides

        return Typed(BOOLEAN, decided)

    def _truth(self, node: Any, *, may_be_null: bool = True) -> Callable[[Row], bool | None]:
        found = self.compiled(node)
        is_null = isinstance(found.kind, spark.NullType)
        if not isinstance(found.kind, spark.BooleanType) and not (is_null and may_be_null):
            self._refuse(node, f"is no condition but a {found.kind.simpleString().upper()}")
        return found.run

    def _is_null(self, node: Any) -> Typed:
        if not isinstance(node.expression, exp.Null):
            self._refuse(node, "is an expression that only Spark evaluates")
        run = self.compiled(node.this).run
        return Typed(BOOLEAN, lambda row: run(row) is None)

    def _computed(self, node: Any) -> Typed:
        sign = _ARITHMETIC[type(node)]
        found = arithmetic(sign, self.compiled(node.left), self.compiled(node.right))
        if found is None:
            self._refuse(node, "computes with types that only Spark brings together")
        return found

    def _compared(self, node: Any) -> Typed:
        compare = _COMPARISONS[type(node)]
        _, (left, right) = self._alike(node, [node.left, node.right], in_order=True)
        if any(is_always_null(self.compiled(each)) for each in (node.left, node.right)):
            return Typed(BOOLEAN, lambda _row: None)

        def compared(row: Row) -> bool | None:
            one = left(row)
            other = None if one is None else right(row)
            return None if other is None else compare(one, other)

        return Typed(BOOLEAN, compared)

    def _same(self, node: Any) -> Typed:
        _, (left, right) = self._alike(node, [node.this, node.expression], in_order=True)
        return Typed(BOOLEAN, lambda row: left(row) == right(row))

    def _between(self, node: Any) -> Typed:
        low = exp.GTE(this=node.this.copy(), expression=node.args["low"].copy())
        high = exp.LTE(this=node.this.copy(), expression=node.args["high"].copy())
        return self.compiled(exp.And(this=low, expression=high))

    def _in(self, node: Any) -> Typed:
        _, (first, *others) = self._alike(node, [node.this, *node.expressions], in_order=True)

        def contains(row: Row) -> bool | None:
            value = first(row)
            if value is None:
                return None
            has_null = False
            for each in others:
                found = each(row)
                if found == value:
                    return True
                has_null = has_null or found is None
            return None if has_null else False

        return Typed(BOOLEAN, contains)

    def _case(self, node: Any) -> Typed:
        if node.this is not None:
            self._refuse(node, "compares in another form; write CASE WHEN a = b THEN")
        conditions = [self._truth(each.this, may_be_null=False) for each in node.args["ifs"]]
        default = node.args.get("default") or exp.Null()
        kind, runs = self._alike(node, [*(each.args["true"] for each in node.args["ifs"]), default])

        def chosen(row: Row) -> Any:
            for condition, run in zip(conditions, runs, strict=False):
                if condition(row):
                    return run(row)
            return runs[-1](row)

        return Typed(kind, chosen)

    def _if(self, node: Any) -> Typed:
        condition = self._truth(node.this, may_be_null=False)
        default = node.args.get("false") or exp.Null()
        kind, (yes, no) = self._alike(node, [node.args["true"], default])
        return Typed(kind, lambda row: yes(row) if condition(row) else no(row))

    def _coalesce(self, node: Any) -> Typed:
        kind, runs = self._alike(node, [node.this, *node.expressions])
        return Typed(
            kind, lambda row: next((v for each in runs if (v := each(row)) is not None), None)
        )

    def _nullif(self, node: Any) -> Typed:
        equal = self.compiled(exp.EQ(this=node.this.copy(), expression=node.expression.copy()))
        found = self.compiled(node.this)
        return Typed(found.kind, lambda row: None if equal.run(row) else found.run(row))

    def _cast(self, node: Any) -> Typed:
        tries = isinstance(node, exp.TryCast) and bool(node.args.get("safe"))
        found = self.compiled(node.this)
        kind = kind_of(node.args["to"], f"`{self._where}`: `{node.sql('spark')}`")
        cast = cast_of(found.kind, kind)
        if cast is None:
            self._refuse(node, "is a cast that only Spark knows")

        def casted(row: Row) -> Any:
            value = found.run(row)
            try:
                return None if value is None else cast(value)
            except NoAnswer:
                if tries:
                    return None
                raise

        # Spark takes `10L` for a number as written; sqlglot shows a cast, as if one were there.
        unclear = isinstance(node.this, exp.Literal) and not node.this.is_string
        return Typed(kind, casted, is_unclear=unclear)

    def _alike(
        self, node: Any, parts: Iterable[Any], *, in_order: bool = False
    ) -> tuple[spark.DataType, list[Callable[[Row], Any]]]:
        """Compile parts in the one type in which they meet."""
        found = [self.compiled(each) for each in parts]
        kind: spark.DataType | None = found[0].kind
        for each in found[1:]:
            kind = None if kind is None else wider(kind, each.kind)
        if kind is None or (in_order and isinstance(kind, (spark.ArrayType, spark.StructType))):
            kinds = ", ".join(each.kind.simpleString().upper() for each in found)
            self._refuse(node, f"brings {kinds} together, which only Spark does")
        return kind, [_as(each, kind, in_order=in_order) for each in found]


_IFS = ("ifs", "default", "true", "false", "low", "high")


def _as(found: Typed, kind: spark.DataType, *, in_order: bool) -> Callable[[Row], Any]:
    """Return the value in a wider type; in order, as Python compares what Spark compares."""
    run = found.run
    change: Callable[[Any], Any] | None = None
    if isinstance(kind, spark.DoubleType):
        change = _order_of if in_order else float
    elif isinstance(kind, spark.DecimalType) and found.kind != kind:
        decimal = kind
        change = lambda value: fitting_decimal(Decimal(value), decimal)  # noqa: E731 (one of four)
    elif isinstance(kind, spark.StringType) and in_order:
        change = str.encode
    if change is None:
        return run
    changed = change
    return lambda row: None if (value := run(row)) is None else changed(value)


def _order_of(number: Any) -> tuple[bool, float]:
    """Order doubles as Spark does, with NaN equal to itself, behind all numbers."""
    found = float(number)
    return isnan(found), 0.0 if isnan(found) else found
