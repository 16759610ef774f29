"""Find the types of columns, and refuse those that cannot be grouped by, folded or joined on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import types as spark

from headrace.contracts.errors import JobInvalid
from headrace.spark_jobs.queries.aggregates import Aggregate, Folded, Path

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_DIGITS_MAX, _MORE_DIGITS = 38, 10
_WHOLE = (spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType)
_FLOATING = (spark.FloatType, spark.DoubleType)
_TIMES = (spark.DateType, spark.TimestampType, spark.TimestampNTZType)
_TEXTS = (spark.StringType, *_TIMES)
_ALIKE = (*_WHOLE, spark.StringType)
_GROUPS = (*_WHOLE, *_TEXTS, spark.DecimalType, spark.BooleanType)


def type_of(schema: StructType, name: str, step: str) -> spark.DataType:
    """Return the type of a column by which rows meet; refuse one that is not a single value."""
    found = [field.dataType for field in schema.fields if field.name.lower() == name.lower()]
    if not found:
        names = ", ".join(f"`{field.name}`" for field in schema.fields)
        message = f"`{step}` names a column `{name}`, and there are {names}"
        raise JobInvalid(message)
    if not isinstance(found[0], _GROUPS):
        message = (
            f"`{step}` goes by `{name}`, a {found[0].simpleString()}, and rows meet by text, whole"
            " numbers, decimals, dates and times; cast it to one of these"
        )
        raise JobInvalid(message)
    return found[0]


def refuse_unlike(kinds: Sequence[spark.DataType], names: Sequence[str]) -> None:
    """Refuse columns that could not meet though they are equal: rows meet by their text."""
    alike = {kind.simpleString() for kind in kinds}
    if len(alike) > 1 and not all(isinstance(kind, _ALIKE) for kind in kinds):
        written = " and ".join(
            f"`{name}`, a {kind.simpleString()}" for name, kind in zip(names, kinds, strict=True)
        )
        message = (
            f"`join_within` goes by {written}, and rows meet by their text; cast one of them to the"
            " type of the other"
        )
        raise JobInvalid(message)


def texts_of(kinds: Sequence[spark.DataType], zone: str) -> str:
    """Name the texts by which values of these types meet; texts of one name are written alike."""
    return ", ".join(_text_kind(kind, zone) for kind in kinds)


def _text_kind(kind: spark.DataType, zone: str) -> str:
    if isinstance(kind, _ALIKE):
        return "text"
    if isinstance(kind, spark.DecimalType):
        return f"decimal of {kind.scale}"
    return f"timestamp in {zone}" if isinstance(kind, spark.TimestampType) else kind.simpleString()


def folded(aggregate: Aggregate, schema: StructType) -> Folded:
    """Return an aggregate of a table's columns; refuse one that cannot take rows out exactly."""
    if aggregate.column is None:
        return Folded(aggregate.kind, "number", counts_rows=True)
    kind = _column_type(aggregate, schema)
    if aggregate.kind == "count":
        return Folded(aggregate.kind, "text", counts_rows=False)
    is_number = isinstance(kind, (*_WHOLE, spark.DecimalType))
    if aggregate.kind in {"sum", "avg"} and not is_number:
        message = (
            f"`{aggregate}` is of a {kind.simpleString()}, of which nothing can be taken out again"
            " exactly; cast it to a decimal before, such as `CAST(x AS DECIMAL(18, 4)) AS x`"
        )
        raise JobInvalid(message)
    if isinstance(kind, _FLOATING):
        return Folded(aggregate.kind, "double", counts_rows=False)
    if isinstance(kind, _TIMES):
        return Folded(aggregate.kind, "time", counts_rows=False)
    if not is_number and not isinstance(kind, spark.StringType):
        message = f"`{aggregate}` is of a {kind.simpleString()}, which has no order"
        raise JobInvalid(message)
    return Folded(aggregate.kind, "number" if is_number else "text", counts_rows=False)


def kinds_of(
    by: Sequence[spark.DataType], aggregates: Sequence[Aggregate], schema: StructType
) -> str:
    """Name the kinds of texts that a group keeps; smaller and larger numbers are of one kind."""
    folds = [each for each in aggregates if each.column is not None and each.kind != "count"]
    return " ".join(map(_kept_kind, (*by, *(_column_type(each, schema) for each in folds))))


def _kept_kind(kind: spark.DataType) -> str:
    if isinstance(kind, (*_WHOLE, *_FLOATING)):
        return "whole" if isinstance(kind, _WHOLE) else "floating"
    return "decimal" if isinstance(kind, spark.DecimalType) else kind.simpleString()


def _column_type(aggregate: Aggregate, schema: StructType) -> spark.DataType:
    column = (aggregate.column or "").lower()
    found = [field.dataType for field in schema.fields if field.name.lower() == column]
    if not found:
        names = ", ".join(f"`{field.name}`" for field in schema.fields)
        message = f"`{aggregate}` names a column `{aggregate.column}`, and there are {names}"
        raise JobInvalid(message)
    return found[0]


@dataclass(frozen=True)
class KeptText:
    """A column that a group keeps as text; null if the text does not fit its type.

    The text of an array is the JSON of its items' texts.
    """

    path: Path
    kind: spark.DataType
    sum_type: spark.DataType | None = None
    """Of an average, the type of its sum: the text is the sum, `/`, and the number of rows."""


Place = Path | KeptText
"""The place of a column in a parsed value."""
Columns = Mapping[str, Place]


def read_as(array: str, place: int, kind: spark.DataType) -> KeptText:
    """Read a text of a group as its original type."""
    return KeptText((array, place), kind)


def result_of(place: int, aggregate: Aggregate, schema: StructType) -> KeptText:
    """Read an aggregate with the type that Spark gives it."""
    if aggregate.kind == "count":
        return read_as("a", place, spark.LongType())
    kind = _column_type(aggregate, schema)
    if aggregate.kind in {"min", "max"}:
        return read_as("a", place, kind)
    if aggregate.kind == "collect":
        return read_as("a", place, spark.ArrayType(kind))
    if aggregate.kind == "sum":
        return read_as("a", place, _sum_type(kind))
    if not isinstance(kind, spark.DecimalType):
        return KeptText(("a", place), spark.DoubleType(), spark.DoubleType())
    # An average has four more digits than its column.
    scale, digits = min(_DIGITS_MAX, kind.scale + 4), min(_DIGITS_MAX, kind.precision + 4)
    return KeptText(("a", place), spark.DecimalType(digits, scale), _sum_type(kind))


def _sum_type(kind: spark.DataType) -> spark.DataType:
    if not isinstance(kind, spark.DecimalType):
        return spark.LongType()
    digits = min(_DIGITS_MAX, kind.precision + _MORE_DIGITS)
    return spark.DecimalType(digits, kind.scale)
