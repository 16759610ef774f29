"""Types of columns: those of a schema, and the type in which two of them meet.

Types are pyspark's own, which are plain Python. Values in Python:

    bool, int, float, str, Decimal     as they are; a decimal has the scale of its type
    timestamp                          microseconds since 1970, an int
    date                               datetime.date
    array, struct                      list, dict
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as spark
from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from headrace.contracts.errors import SchemaRefused, SparkNeeded
from headrace.spark_jobs.read.schema import schema_of

if TYPE_CHECKING:
    from headrace.spark_jobs.queries.described import Source

BOOLEAN, STRING, DATE = spark.BooleanType(), spark.StringType(), spark.DateType()
TIMESTAMP, DOUBLE, NOTHING = spark.TimestampType(), spark.DoubleType(), spark.NullType()
INT, BIGINT = spark.IntegerType(), spark.LongType()
WHOLE: dict[type[spark.DataType], tuple[int, int]] = {
    spark.ByteType: (8, 3),
    spark.ShortType: (16, 5),
    spark.IntegerType: (32, 10),
    spark.LongType: (64, 20),
}
"""The bits of whole numbers, and the digits of the decimal that takes all of them."""
DIGITS_MAX = 38
_SCALE_KEPT = 6
_WORDS: dict[Any, spark.DataType] = {
    exp.DataType.Type.BOOLEAN: BOOLEAN,
    exp.DataType.Type.TINYINT: spark.ByteType(),
    exp.DataType.Type.SMALLINT: spark.ShortType(),
    exp.DataType.Type.INT: INT,
    exp.DataType.Type.BIGINT: BIGINT,
    exp.DataType.Type.DOUBLE: DOUBLE,
    exp.DataType.Type.TEXT: STRING,
    exp.DataType.Type.TIMESTAMPTZ: TIMESTAMP,
    exp.DataType.Type.TIMESTAMPLTZ: TIMESTAMP,
    exp.DataType.Type.DATE: DATE,
}
_KNOWN = (*{type(kind) for kind in _WORDS.values()}, spark.DecimalType)


def struct_of(source: Source) -> spark.StructType:
    """Return the schema of a topic's values; SparkNeeded names a type that is not known here."""
    if not isinstance(source.schema, str):
        schema = schema_of(source.schema)
        for field in schema.fields:
            _refuse_unknown(field.dataType, f"`{field.name}` of `{source.topic}`")
        return schema
    fields = list(_fields(_columns_in(source), f"`{source.topic}`"))
    return spark.StructType(fields)


def _columns_in(source: Source) -> list[Any]:
    try:
        created = parse_one(f"CREATE TABLE t ({source.schema})", read="spark")
    except SqlglotError as error:
        message = f"the schema of `{source.topic}` is none: {source.schema}"
        raise SchemaRefused(message) from error
    columns: list[Any] = created.this.expressions
    return columns


def _fields(columns: list[Any], where: str) -> Iterator[spark.StructField]:
    for column in columns:
        if not isinstance(column, exp.ColumnDef):
            message = f"the schema of {where} has {column.sql('spark')}; only Spark reads that"
            raise SparkNeeded(message)
        limits = [type(each.kind) for each in column.args.get("constraints") or []]
        if any(each is not exp.NotNullColumnConstraint for each in limits):
            message = f"the schema of {where} has {column.sql('spark')}; only Spark reads that"
            raise SparkNeeded(message)
        kind = kind_of(column.args["kind"], f"`{column.name}` of {where}")
        yield spark.StructField(column.name, kind, nullable=not limits)


def kind_of(written: Any, where: str) -> spark.DataType:
    """Return a type as SQL writes it; SparkNeeded names one that is not known here."""
    word = written.this if isinstance(written, exp.DataType) else None
    if word in _WORDS and not written.expressions:
        return _WORDS[word]
    if word is exp.DataType.Type.DECIMAL:
        sizes = [int(each.name) for each in written.expressions]
        return spark.DecimalType(*(sizes or [10, 0]))
    if word is exp.DataType.Type.ARRAY and len(written.expressions) == 1:
        return spark.ArrayType(kind_of(written.expressions[0], where))
    if word is exp.DataType.Type.STRUCT:
        return spark.StructType(list(_fields(written.expressions, where)))
    raise _unknown(str(getattr(word, "value", written)), where)


def _refuse_unknown(kind: spark.DataType, where: str) -> None:
    if isinstance(kind, spark.ArrayType):
        _refuse_unknown(kind.elementType, where)
    elif isinstance(kind, spark.StructType):
        for field in kind.fields:
            _refuse_unknown(field.dataType, f"`{field.name}` in {where}")
    elif not isinstance(kind, _KNOWN):
        raise _unknown(kind.simpleString().upper(), where)


def _unknown(kind: str, where: str) -> SparkNeeded:
    known = "BOOLEAN, TINYINT to BIGINT, DOUBLE, DECIMAL, STRING, DATE, TIMESTAMP, ARRAY, STRUCT"
    return SparkNeeded(f"{where} is a {kind}, which only Spark handles; tests know {known}")


def is_whole(kind: spark.DataType) -> bool:
    """Return whether a type is one of whole numbers."""
    return type(kind) in WHOLE


def is_number(kind: spark.DataType) -> bool:
    """Return whether a type is one of numbers."""
    return is_whole(kind) or isinstance(kind, (spark.DoubleType, spark.DecimalType))


def decimal_of(kind: spark.DataType) -> spark.DecimalType:
    """Return the decimal that takes all numbers of a type."""
    if isinstance(kind, spark.DecimalType):
        return kind
    return spark.DecimalType(WHOLE[type(kind)][1], 0)


def decimal_for(number: int) -> spark.DecimalType:
    """Return the decimal that a written whole number is."""
    return spark.DecimalType(len(str(abs(number))), 0)


def bounded(precision: int, scale: int) -> spark.DecimalType:
    """Return a decimal of so many digits, with fewer behind the point if there are too many."""
    if precision <= DIGITS_MAX:
        return spark.DecimalType(precision, scale)
    kept = max(DIGITS_MAX - (precision - scale), min(scale, _SCALE_KEPT))
    return spark.DecimalType(DIGITS_MAX, kept)


def wider(left: spark.DataType, right: spark.DataType) -> spark.DataType | None:
    """Return the type in which values of two types meet, None if they meet in none."""
    if left == right or isinstance(right, spark.NullType):
        return left
    if isinstance(left, spark.NullType):
        return right
    if not (is_number(left) and is_number(right)):
        return None
    if isinstance(left, spark.DoubleType) or isinstance(right, spark.DoubleType):
        return DOUBLE
    if is_whole(left) and is_whole(right):
        return max(left, right, key=lambda kind: WHOLE[type(kind)])
    one, other = decimal_of(left), decimal_of(right)
    scale = max(one.scale, other.scale)
    digits = max(one.precision - one.scale, other.precision - other.scale) + scale
    return spark.DecimalType(digits, scale) if digits <= DIGITS_MAX else None
