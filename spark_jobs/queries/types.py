"""Find the types of columns, and refuse those that cannot be grouped by, folded or joined on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)
from pyspark.sql import types as spark

from headrace.contracts.errors import JobInvalid
from headrace.spark_jobs.queries.aggregates import Aggregate, Folded

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

_DIGITS_MAX, _MORE_DIGITS = 38, 10
_WHOLE = (spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType)
_FLOATING = (spark.FloatType, spark.DoubleType)
_TEXTS = (spark.StringType, spark.DateType, spark.TimestampType, spark.TimestampNTZType)
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


def folded(aggregate: Aggregate, schema: StructType) -> Folded:
    """Return an aggregate of a table's columns; refuse one that cannot take rows out exactly."""
    if aggregate.column is None:
        return Folded(aggregate.kind, "number", counts_rows=True)
    if aggregate.kind == "count":
        return Folded(aggregate.kind, "text", counts_rows=False)
    kind = _column_type(aggregate, schema)
    is_number = isinstance(kind, (*_WHOLE, spark.DecimalType))
    if aggregate.kind in {"sum", "avg"} and not is_number:
        message = (
            f"`{aggregate}` is of a {kind.simpleString()}, of which nothing can be taken out again"
            " exactly; cast it to a decimal before, such as `CAST(x AS DECIMAL(18, 4)) AS x`"
        )
        raise JobInvalid(message)
    if isinstance(kind, _FLOATING):
        return Folded(aggregate.kind, "double", counts_rows=False)
    if not is_number and not isinstance(kind, _TEXTS):
        message = f"`{aggregate}` is of a {kind.simpleString()}, which has no order"
        raise JobInvalid(message)
    return Folded(aggregate.kind, "number" if is_number else "text", counts_rows=False)


def _column_type(aggregate: Aggregate, schema: StructType) -> spark.DataType:
    column = (aggregate.column or "").lower()
    found = [field.dataType for field in schema.fields if field.name.lower() == column]
    if not found:
        names = ", ".join(f"`{field.name}`" for field in schema.fields)
        message = f"`{aggregate}` names a column `{aggregate.column}`, and there are {names}"
        raise JobInvalid(message)
    return found[0]


def read_as(array: str, place: int, kind: spark.DataType) -> Callable[[Column], Column]:
    """Read a text of a group as its original type; null if it does not fit."""
    return lambda parsed: parsed[array][place].try_cast(kind)


def result_of(place: int, aggregate: Aggregate, schema: StructType) -> Callable[[Column], Column]:
    """Read an aggregate with the type that Spark gives it; null if it does not fit."""
    if aggregate.kind == "count":
        return read_as("a", place, spark.LongType())
    kind = _column_type(aggregate, schema)
    if aggregate.kind in {"min", "max"}:
        return read_as("a", place, kind)
    if aggregate.kind == "sum":
        return read_as("a", place, _sum_type(kind))
    return lambda parsed: _quotient(parsed["a"][place], kind)


def _sum_type(kind: spark.DataType) -> spark.DataType:
    if not isinstance(kind, spark.DecimalType):
        return spark.LongType()
    digits = min(_DIGITS_MAX, kind.precision + _MORE_DIGITS)
    return spark.DecimalType(digits, kind.scale)


def _quotient(text: Column, kind: spark.DataType) -> Column:
    """Divide an average: into a double for whole numbers, else a decimal with four more digits."""
    total, rows = F.split_part(text, F.lit("/"), F.lit(1)), F.split_part(text, F.lit("/"), F.lit(2))
    if not isinstance(kind, spark.DecimalType):
        return F.try_divide(total.try_cast("double"), rows.try_cast("double"))
    scale = min(_DIGITS_MAX, kind.scale + 4)
    digits = min(_DIGITS_MAX, kind.precision + 4)
    exact = F.try_divide(total.try_cast(_sum_type(kind)), rows.try_cast(spark.DecimalType(19, 0)))
    return exact.try_cast(spark.DecimalType(digits, scale))
