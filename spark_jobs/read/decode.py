"""Bytes as columns: JSON and Avro, natively, and what becomes of rows that are neither.

Rows are checked before they are processed, so that nothing unreadable gets into state; behind the
operators `decoded` makes columns of what was checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import StringType, StructType

from contracts.dead_letter import (
    EXCEPTION_HEADER,
    INTAKE,
    MESSAGE_HEADER,
    OFFSET_HEADER,
    OPERATOR_HEADER,
    PARTITION_HEADER,
    REASON_HEADER,
    STACKTRACE_HEADER,
    TOPIC_HEADER,
)
from contracts.decision import Reason

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_CORRUPT = "headrace_corrupt"
_FRAME_BYTES = 5
_BYTES_MAX = (1 << 31) - 1
"""What a registry's clients write before Avro: a zero byte, and the schema's number."""
HEADER_SCHEMA = "array<struct<key:string,value:binary>>"


@dataclass(frozen=True)
class JsonValue:
    """A value in JSON, of these columns."""

    schema: StructType

    def read(self, column: Column) -> Column:
        """The columns as one struct, null where the bytes are not such a value."""
        corrupt = StructType([*self.schema.fields]).add(_CORRUPT, StringType())
        options = {"columnNameOfCorruptRecord": _CORRUPT, "mode": "PERMISSIVE"}
        parsed = F.from_json(column.cast("string"), corrupt, options)
        whole = parsed[_CORRUPT].isNull()
        return F.when(whole, F.struct(*(parsed[f.name].alias(f.name) for f in self.schema.fields)))


@dataclass(frozen=True)
class AvroValue:
    """A value in Avro, of these columns."""

    schema: StructType
    written: str | None = None
    """The schema it is written in, where nothing stands before it."""
    registered: Mapping[int, str] = field(default_factory=dict)
    """The schemas it is written in by their numbers in a registry, where those stand before it."""

    def read(self, column: Column) -> Column:
        """The columns as one struct, null where the bytes are not such a value."""
        if self.written is not None:
            return self._named(from_avro(column, self.written, {"mode": "PERMISSIVE"}))
        framed = (F.length(column) >= _FRAME_BYTES) & (F.substring(column, 1, 1) == F.lit(b"\0"))
        number = F.conv(F.hex(F.substring(column, 2, 4)), 16, 10).cast("long")
        body = F.substring(column, _FRAME_BYTES + 1, _BYTES_MAX)
        read = F.lit(None).cast(self.schema)
        for each, schema in self.registered.items():
            chosen = from_avro(body, schema, {"mode": "PERMISSIVE"})
            read = F.when(framed & (number == each), self._named(chosen)).otherwise(read)
        return read

    def _named(self, read: Column) -> Column:
        columns = [read[f.name].cast(f.dataType).alias(f.name) for f in self.schema.fields]
        return F.when(read.isNotNull(), F.struct(*columns))


Format = JsonValue | AvroValue


def checked(records: DataFrame, formats: Mapping[int, Format], *, keyed: bool = True) -> DataFrame:
    """Records, the unreadable ones marked dead: `aside` says so, and headers say why.

    `formats` are by input; an input without one is not looked into. A tombstone is readable.
    """
    problem = F.lit(None).cast("string")
    for number, each in formats.items():
        found = _problem(each)
        problem = F.when(F.col("input") == number, found).otherwise(problem)
    reason = F.when(problem.isNotNull(), F.lit(Reason.UNDECODABLE.value))
    if keyed:
        keyless = F.col("key").isNull()
        problem = F.when(keyless, F.lit("the key is null")).otherwise(problem)
        reason = F.when(keyless, F.lit(Reason.NULL_KEY.value)).otherwise(reason)
    aside = F.to_json(F.struct(F.lit("dead").alias("verdict"), F.col("_reason").alias("reason")))
    marked = records.withColumn("_problem", problem).withColumn("_reason", reason)
    return (
        marked.withColumn("aside", F.when(F.col("_problem").isNotNull(), aside))
        .withColumn(
            "headers",
            F.when(F.col("aside").isNull(), F.col("headers")).otherwise(_dead_headers()),
        )
        .drop("_problem", "_reason")
    )


def decoded(frame: DataFrame, column: str, as_format: Format, name: str | None = None) -> DataFrame:
    """A frame with a column of bytes as typed columns in one struct, tombstones as nulls."""
    return frame.withColumn(name or column, as_format.read(F.col(column)))


def _problem(value: Format) -> Column:
    """What is wrong with a value, in words; null where nothing is."""
    read = value.read(F.col("value"))
    problem = F.when(read.isNull(), F.lit("the value cannot be read as the schema says"))
    for each in value.schema.fields:
        if not each.nullable:
            text = f"the field `{each.name}` is missing, null, or of another type"
            problem = problem.when(read[each.name].isNull(), F.lit(text))
    return F.when(F.col("value").isNull(), F.lit(None)).otherwise(problem)


def _dead_headers() -> Column:
    """The record's own headers, and behind them those of a dead letter."""
    texts = {
        EXCEPTION_HEADER: F.lit(""),
        MESSAGE_HEADER: F.col("_problem"),
        STACKTRACE_HEADER: F.lit(""),
        TOPIC_HEADER: F.col("topic"),
        PARTITION_HEADER: F.col("partition").cast("string"),
        OFFSET_HEADER: F.col("offset").cast("string"),
        OPERATOR_HEADER: F.lit(INTAKE),
        REASON_HEADER: F.col("_reason"),
    }
    ours = F.array(
        *(
            F.struct(F.lit(name).alias("key"), F.encode(text, "UTF-8").alias("value"))
            for name, text in texts.items()
        )
    )
    own = F.coalesce(F.col("headers"), F.array().cast(HEADER_SCHEMA))
    return F.concat(own, ours)
