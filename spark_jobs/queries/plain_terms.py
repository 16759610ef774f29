"""Columns and conditions that Python computes as Spark does, found in the text of an expression.

    column      a field; a sum, a difference or a product of two columns of one whole type, or of
                a field and a constant
    condition   a comparison of two fields of one type, or of a field and a constant, also by IN and
                BETWEEN; whether a field is null; a field that is true or false; and these with AND,
                OR and NOT

A sum of a column with a constant in it and of others is none of these: Spark moves constants
through sums and products, so that other ones do not fit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
)
from sqlglot import exp
from sqlglot.errors import SqlglotError

from headrace.contracts.errors import JobFailed
from headrace.spark_jobs.queries.mentioned import selected
from headrace.spark_jobs.queries.names import OWN
from headrace.spark_jobs.read.parsed import ARROW_TYPES

if TYPE_CHECKING:
    from collections.abc import Mapping

_ARITHMETIC: Mapping[type[Any], str] = {exp.Add: "add", exp.Sub: "subtract", exp.Mul: "multiply"}
_COMPARISONS: Mapping[type[Any], str] = {
    exp.EQ: "equal",
    exp.NEQ: "not_equal",
    exp.GT: "greater",
    exp.GTE: "greater_equal",
    exp.LT: "less",
    exp.LTE: "less_equal",
}
_LOGIC: Mapping[type[Any], str] = {exp.And: "and_kleene", exp.Or: "or_kleene"}
_ADDED = (LongType(), IntegerType())
"""The types of numbers that Arrow adds and multiplies as Spark does, and refuses as Spark does."""
_WHOLE = (*_ADDED, ShortType())
_COMPARED = (*_WHOLE, StringType(), BooleanType())
_LONG_END, _INTEGER_END = 1 << 63, 1 << 31
_SPARKS_OWN = frozenset('\\"')
"""Signs that Spark alone reads: of escapes, and of texts that a setting may make into names."""


@dataclass(frozen=True)
class Given:
    """A field of a value of one side, or the key, which has none."""

    side: str
    field: StructField

    @property
    def kind(self) -> DataType:
        """Its type."""
        return self.field.dataType


@dataclass(frozen=True)
class Constant:
    """A value that stands in the text."""

    value: int | str
    kind: DataType


@dataclass(frozen=True)
class Computed:
    """The result of a function of Arrow's."""

    function: str
    terms: tuple[Term, ...]
    kind: DataType


Term = Given | Constant | Computed
KEY = Given("", StructField("key", StringType()))


def named(expression: str, columns: Mapping[str, Term]) -> dict[str, Term] | None:
    """Return the column that an expression selects, by its name; None if it is not plain."""
    parsed = _parsed(expression)
    if parsed is None or not parsed.alias_or_name:
        return None
    term = _column(parsed.unalias(), _by_name(columns))
    return None if term is None else {parsed.alias_or_name: term}


def condition(expression: str, columns: Mapping[str, Term]) -> Term | None:
    """Return a condition, None if it is not plain."""
    if _SPARKS_OWN.intersection(expression):
        return None
    parsed = _parsed(expression)
    return None if parsed is None else _condition(parsed, _by_name(columns))


def computed(term: Term, columns: Mapping[Given, pa.Array]) -> pa.Array | pa.Scalar:
    """Compute a term of the columns that it is made of."""
    if isinstance(term, Given):
        return columns[term]
    if isinstance(term, Constant):
        return pa.scalar(term.value, ARROW_TYPES[type(term.kind)])
    given = [computed(each, columns) for each in term.terms]
    try:
        return pc.call_function(term.function, given)
    except pa.ArrowInvalid as error:
        bits = ARROW_TYPES[type(term.kind)].bit_width
        message = f"what `{term.function.removesuffix('_checked')}` makes does not fit {bits} bits."
        raise unanswered(message) from error


def given_in(term: Term) -> list[Given]:
    """Return the columns in a term."""
    if isinstance(term, Given):
        return [term]
    if isinstance(term, Constant):
        return []
    return [given for each in term.terms for given in given_in(each)]


def unanswered(what: str) -> JobFailed:
    """Make the error of an expression that has no answer for a row."""
    return JobFailed(
        f"an expression of this job has no answer for a row: {what} Spark's functions with `try_`"
        " before their names answer null then; change the expression, and start the job again"
    )


def _parsed(expression: str) -> Any:
    try:
        statements = selected(expression)
    except (SqlglotError, ValueError):
        return None
    if len(statements) != 1 or len(statements[0].expressions) != 1:
        return None
    return statements[0].expressions[0]


def _by_name(columns: Mapping[str, Term]) -> dict[str, Term]:
    return {name.lower(): term for name, term in columns.items()}


def _column(parsed: Any, columns: Mapping[str, Term]) -> Term | None:
    parsed = parsed.unnest()
    if isinstance(parsed, exp.Column):
        return _field(parsed, columns)
    function = _ARITHMETIC.get(type(parsed))
    if function is None:
        return None
    left, right = (_operand(side, columns) for side in (parsed.this, parsed.expression))
    if left is None or right is None or not _are_added(left, right):
        return None
    kind = right.kind if isinstance(left, Constant) else left.kind
    sides = tuple(_as(kind, each) for each in (left, right))
    return Computed(f"{function}_checked", sides, kind)


def _operand(parsed: Any, columns: Mapping[str, Term]) -> Term | None:
    side = _side(parsed, columns)
    return _column(parsed, columns) if side is None else side


def _are_added(left: Term, right: Term) -> bool:
    """Return whether Arrow adds and multiplies two columns as Spark does."""
    if isinstance(left, Constant):
        left, right = right, left
    if left.kind not in _ADDED or any(map(_has_constant, (left, right))):
        return False
    if not isinstance(right, Constant):
        return left.kind == right.kind
    # Spark makes a larger type of an integer and of a constant that is none.
    is_small = right.kind == LongType() and abs(int(right.value)) < _INTEGER_END
    return isinstance(left, Given) and (is_small or left.kind == right.kind)


def _has_constant(term: Term) -> bool:
    if not isinstance(term, Computed):
        return False
    return any(isinstance(each, Constant) or _has_constant(each) for each in term.terms)


def _as(kind: DataType, term: Term) -> Term:
    return replace(term, kind=kind) if isinstance(term, Constant) else term


def _field(parsed: Any, columns: Mapping[str, Term]) -> Term | None:
    name = parsed.name.lower()
    if len(parsed.parts) > 1 or (name in OWN and name != KEY.field.name):
        return None
    return columns.get(name, KEY if name == KEY.field.name else None)


def _condition(parsed: Any, columns: Mapping[str, Term]) -> Term | None:
    parsed = parsed.unnest()
    terms: list[Term | None]
    if isinstance(parsed, exp.Column):
        field = _field(parsed, columns)
        return field if field is not None and field.kind == BooleanType() else None
    if isinstance(parsed, exp.Not):
        function, terms = "invert", [_condition(parsed.this, columns)]
    elif type(parsed) in _LOGIC:
        function = _LOGIC[type(parsed)]
        terms = [_condition(side, columns) for side in (parsed.this, parsed.expression)]
    elif isinstance(parsed, exp.Is) and isinstance(parsed.expression, exp.Null):
        is_column = isinstance(parsed.this, exp.Column)
        function, terms = "is_null", [_field(parsed.this, columns) if is_column else None]
    elif isinstance(parsed, exp.In):
        return _is_one_of(parsed, columns)
    elif isinstance(parsed, exp.Between):
        low = exp.GTE(this=parsed.this.copy(), expression=parsed.args["low"].copy())
        high = exp.LTE(this=parsed.this.copy(), expression=parsed.args["high"].copy())
        function, terms = "and_kleene", [_comparison(each, columns) for each in (low, high)]
    else:
        return _comparison(parsed, columns)
    found = tuple(term for term in terms if term is not None)
    return Computed(function, found, BooleanType()) if len(found) == len(terms) else None


def _is_one_of(parsed: Any, columns: Mapping[str, Term]) -> Term | None:
    """Return the condition that a field is one of some constants, which stand in the text."""
    listed = parsed.expressions
    if not listed or not all(isinstance(each.unnest(), exp.Literal | exp.Neg) for each in listed):
        return None
    made = [exp.EQ(this=parsed.this.copy(), expression=each.copy()) for each in listed]
    found = [term for each in made if (term := _comparison(each, columns)) is not None]
    if len(found) < len(made):
        return None
    return reduce(lambda one, other: Computed("or_kleene", (one, other), BooleanType()), found)


def _comparison(parsed: Any, columns: Mapping[str, Term]) -> Term | None:
    function = _COMPARISONS.get(type(parsed))
    if function is None:
        return None
    left, right = (_side(side, columns) for side in (parsed.this, parsed.expression))
    if left is None or right is None or not _are_compared(left, right):
        return None
    return Computed(function, (left, right), BooleanType())


def _side(parsed: Any, columns: Mapping[str, Term]) -> Given | Constant | None:
    """Return a side of a comparison: a field, a whole number or a text."""
    parsed = parsed.unnest()
    if isinstance(parsed, exp.Column):
        field = _field(parsed, columns)
        return field if isinstance(field, Given) else None
    sign = -1 if isinstance(parsed, exp.Neg) else 1
    literal = parsed.this if isinstance(parsed, exp.Neg) else parsed
    if not isinstance(literal, exp.Literal):
        return None
    if literal.is_string:
        is_simple = sign > 0 and "'" not in literal.name
        return Constant(literal.name, StringType()) if is_simple else None
    if not literal.is_int or int(literal.name) >= _LONG_END:
        return None
    return Constant(sign * int(literal.name), LongType())


def _are_compared(left: Given | Constant, right: Given | Constant) -> bool:
    """Return whether Arrow compares two sides as Spark does."""
    if isinstance(left, Constant) and isinstance(right, Constant):
        return False
    if left.kind in _WHOLE and isinstance(right, Constant):
        return right.kind == LongType()
    if right.kind in _WHOLE and isinstance(left, Constant):
        return left.kind == LongType()
    return left.kind == right.kind and left.kind in _COMPARED
