"""Refuse a table with a column whose type does not hold all that the rows have there.

Some writers would convert such values and say nothing, a number into `true` for instance; others
end with an error of several pages.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import types as spark

from headrace.contracts.errors import JobInvalid

_NUMBERS: tuple[tuple[spark.DataType, ...], ...] = (
    (spark.ByteType(), spark.ShortType(), spark.IntegerType(), spark.LongType()),
    (spark.FloatType(), spark.DoubleType()),
)
"""Types of numbers; each holds all values of those before it."""


@dataclass(frozen=True)
class Writer:
    """Decides which values a writer may put into a column of a table."""

    widens: bool = True
    """It writes a smaller number into a column of larger ones."""
    fills: bool = False
    """It leaves the fields of a struct null that the table has and the row lacks."""
    adds: bool = False
    """It adds the fields to a struct of the table that the row has and the table lacks."""

    def refuse_other_types(
        self, title: str, there: spark.StructType, rows: spark.StructType
    ) -> None:
        """Refuse a table with a column that does not hold all values of the rows' column."""
        columns = _fields(there)
        for field in rows:
            column = columns.get(field.name.lower())
            if column is not None and not self._holds(column, field.dataType):
                message = (
                    f"{title} has the column `{field.name}` as `{column.simpleString()}`, and the"
                    f" rows have it as `{field.dataType.simpleString()}`; give one of them the"
                    " other's type, or give the job another table"
                )
                raise JobInvalid(message)

    def _holds(self, there: spark.DataType, given: spark.DataType) -> bool:
        if isinstance(there, spark.StructType) and isinstance(given, spark.StructType):
            return self._holds_struct(_fields(there), _fields(given))
        if isinstance(there, spark.ArrayType) and isinstance(given, spark.ArrayType):
            return self._holds(there.elementType, given.elementType)
        if isinstance(there, spark.MapType) and isinstance(given, spark.MapType):
            keys = self._holds(there.keyType, given.keyType)
            return keys and self._holds(there.valueType, given.valueType)
        if there == given or isinstance(given, spark.NullType):
            return True
        return self.widens and _is_wider(there, given)

    def _holds_struct(
        self, there: dict[str, spark.DataType], given: dict[str, spark.DataType]
    ) -> bool:
        if not self.adds and given.keys() - there.keys():
            return False
        if not self.fills and there.keys() - given.keys():
            return False
        shared = there.keys() & given.keys()
        return all(self._holds(there[name], given[name]) for name in shared)


def refuse_untyped(rows: spark.StructType) -> None:
    """Refuse rows with a column that is always null and has no type, for a table made for them."""
    for field in rows:
        if _is_untyped(field.dataType):
            message = (
                f"the rows have a column `{field.name}` without a type, for it is always null; give"
                f" it one, such as `CAST(NULL AS STRING) AS {field.name}`"
            )
            raise JobInvalid(message)


def _is_untyped(kind: spark.DataType) -> bool:
    match kind:
        case spark.StructType():
            return any(_is_untyped(field.dataType) for field in kind)
        case spark.ArrayType():
            return _is_untyped(kind.elementType)
        case spark.MapType():
            return _is_untyped(kind.keyType) or _is_untyped(kind.valueType)
        case _:
            return isinstance(kind, spark.NullType)


def _fields(struct: spark.StructType) -> dict[str, spark.DataType]:
    return {field.name.lower(): field.dataType for field in struct}


def _is_wider(there: spark.DataType, given: spark.DataType) -> bool:
    if isinstance(there, spark.DecimalType) and isinstance(given, spark.DecimalType):
        whole_there, whole_given = (one.precision - one.scale for one in (there, given))
        return whole_there >= whole_given and there.scale >= given.scale
    return any(
        there in numbers and given in numbers and numbers.index(there) > numbers.index(given)
        for numbers in _NUMBERS
    )
