"""Write rows as Avro in Confluent's wire format: the schema of their columns, and their bytes.

    1 byte    zero
    4 bytes   the schema's number in the registry, big-endian
    the rest  Avro

Every field may be null and is null by default, so that a query may gain and lose columns: readers
of the schemas before and after understand each other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)
from pyspark.sql import types as spark
from pyspark.sql.avro.functions import to_avro

from headrace.contracts.errors import JobInvalid
from headrace.spark_jobs.write.fields import fields_of

Encode = Callable[[DataFrame], Column]
"""Returns the bytes of each row of a frame, as a column."""
_NUMBER_BYTES = 4
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_]")
_PLAIN: dict[type[spark.DataType], Any] = {
    spark.BooleanType: "boolean",
    spark.ByteType: "int",
    spark.ShortType: "int",
    spark.IntegerType: "int",
    spark.LongType: "long",
    spark.FloatType: "float",
    spark.DoubleType: "double",
    spark.StringType: "string",
    spark.BinaryType: "bytes",
    spark.DateType: {"type": "int", "logicalType": "date"},
    spark.TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
    spark.TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-micros"},
}


def subject_of(topic: str) -> str:
    """Return the subject of a topic's values, as Confluent's serializers name it."""
    return f"{topic}-value"


def avro_of(topic: str, row: spark.StructType) -> str:
    """Return the Avro schema of a topic's rows; JobInvalid names a column that Avro lacks."""
    return json.dumps(_record(_name_of(topic), row, set()))


def encoding(row: spark.StructType, schema: str, number: int) -> Encode:
    """Return the encoder of rows with these fields; a deleted key has no bytes."""
    frame = frame_of(number)
    return lambda rows: F.concat(F.lit(frame), to_avro(fields_of(rows, row), schema))


def frame_of(number: int) -> bytes:
    """Return what stands before the Avro of a schema with this number."""
    return b"\x00" + number.to_bytes(_NUMBER_BYTES)


def _record(name: str, row: spark.StructType, taken: set[str]) -> dict[str, Any]:
    """Return a record; its name gets underscores behind it if another record has it already."""
    while name in taken:
        name += "_"
    taken.add(name)
    fields = []
    for field in row.fields:
        if not _NAME.fullmatch(field.name):
            other = _NOT_IN_NAME.sub("_", field.name)
            message = (
                f"the column `{field.name}` has a name that Avro does not take; select it"
                f" `AS {other}`"
            )
            raise JobInvalid(message)
        kind = _type(f"{name}_{field.name}", field.name, field.dataType, taken)
        fields.append({"name": field.name, "type": ["null", kind], "default": None})
    return {"type": "record", "name": name, "fields": fields}


def _type(name: str, column: str, kind: spark.DataType, taken: set[str]) -> Any:
    """Return a column's type in Avro; a record in it gets this name."""
    match kind:
        case spark.DecimalType():
            digits = {"precision": kind.precision, "scale": kind.scale}
            return {"type": "bytes", "logicalType": "decimal", **digits}
        case spark.ArrayType():
            items = _type(name, column, kind.elementType, taken)
            return {"type": "array", "items": ["null", items]}
        case spark.MapType(keyType=spark.StringType()):
            values = _type(name, column, kind.valueType, taken)
            return {"type": "map", "values": ["null", values]}
        case spark.StructType():
            return _record(name, kind, taken)
        case _:
            found = _PLAIN.get(type(kind))
    if found is None:
        message = (
            f"the column `{column}` is a {kind.simpleString()}, which Avro does not have; cast it,"
            f" such as `CAST({column} AS STRING) AS {column}`"
        )
        raise JobInvalid(message)
    return found


def _name_of(topic: str) -> str:
    """Return the name of a topic's record: the topic with underscores."""
    name = _NOT_IN_NAME.sub("_", topic)
    return name if _NAME.fullmatch(name) else f"_{name}"
