"""Decode JSON and Avro natively into columns, and mark values that are neither as dead.

Rows are checked before they are processed, so that nothing unreadable gets into state. Behind the
operators, `decoded` turns checked values into columns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from secrets import token_hex
from typing import TYPE_CHECKING

import pandas as pd
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import ArrayType, IntegerType, StringType, StructType

from headrace.contracts.dead_letter import (
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
from headrace.contracts.decision import Reason
from headrace.spark_jobs.headers import headers_with
from headrace.spark_jobs.read.json_text import UNREADABLE, missing
from headrace.spark_jobs.read.parsed import Parsing
from headrace.spark_jobs.read.registry import AsJson, Asked, as_json
from headrace.spark_jobs.shapes import DEAD, READ, unsigned

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KEYLESS = "the key is null"
"""The problem of a record without a key."""
_CORRUPT = "headrace_corrupt"
_ALL, _END = f"all_{token_hex(8)}", f"end_{token_hex(8)}"
"""Names that no value can have: each process draws its own."""
_FRAME_BYTES = 5
"""A registry's clients write this before Avro: a zero byte, and the schema's number."""
_COUNT_BYTES = 8
_BYTES_MAX = (1 << 31) - 1


class _Value(ABC):
    """How bytes are read: any bytes with `look` and `seen`, a value of ours with `parse`."""

    @abstractmethod
    def parse(self, column: Column) -> Column:
        """Parse bytes that are such a value."""

    @abstractmethod
    def whole(self, parsed: Column) -> Column:
        """Return what was parsed, null if the bytes are no such value."""

    def look(self, column: Column) -> Column:
        """Parse any bytes."""
        return self.parse(column)

    def seen(self, looked: Column) -> Column:
        """Return what was looked at, null if the bytes are no such value."""
        return self.whole(looked)

    def known(self, looked: Column) -> Column:
        """Return what was looked at of bytes that are such a value; of others it may be anything.

        It names `looked` once, for Spark copies it into filters.
        """
        return self.whole(looked)


@dataclass(frozen=True)
class JsonValue(_Value):
    """A value in JSON, of these columns."""

    schema: StructType

    def parse(self, column: Column) -> Column:
        """Parse into one struct of the columns, and one more for bytes that are no such value."""
        # A number that JSON has no word for is a text in values that we wrote.
        return _from_json(column.cast("string"), self.schema, allowNonNumericNumbers="true")

    def whole(self, parsed: Column) -> Column:
        """Return the parsed columns as one struct; null if the bytes are no such value."""
        columns = F.struct(*(parsed[f.name].alias(f.name) for f in self.schema.fields))
        return F.when(parsed.isNotNull() & parsed[_CORRUPT].isNull(), columns)

    def look(self, column: Column) -> Column:
        """Parse any bytes as the first item of an array, with our own end as the second.

        By itself, Spark reads nothing at all as nulls, and stops behind the first object. A value
        that closes the array leaves our end outside, and cannot write one that it does not know.
        """
        text = F.concat(F.lit(f'{{"{_ALL}":['), column.cast("string"), F.lit(f',{{"{_END}":1}}]}}'))
        item = StructType([*self.schema.fields]).add(_END, IntegerType())
        # JSON has no NaN; jobs that parse it in Python agree.
        around = StructType().add(_ALL, ArrayType(item))
        return _from_json(text, around, allowNonNumericNumbers="false")

    def seen(self, looked: Column) -> Column:
        """Return a struct with the columns; null if the bytes are no such value."""
        items = looked[_ALL]
        is_one = (F.size(items) == 2) & (F.get(items, 1)[_END] == 1)  # noqa: PLR2004 (the value, and our end)
        return F.when(looked[_CORRUPT].isNull() & is_one, F.get(items, 0))

    def known(self, looked: Column) -> Column:
        """Return a struct with the columns of a value."""
        return F.get(looked[_ALL], 0)


def _from_json(text: Column, schema: StructType, **options: str) -> Column:
    fields = StructType([*schema.fields]).add(_CORRUPT, StringType())
    # A time without a zone means the same in every session.
    said = {"columnNameOfCorruptRecord": _CORRUPT, "mode": "PERMISSIVE", "timeZone": "UTC"}
    # JSON has only double quotes.
    return F.from_json(text, fields, {**said, "allowSingleQuotes": "false", **options})


@dataclass(frozen=True)
class AvroValue(_Value):
    """A value in Avro, of these columns."""

    schema: StructType
    written: str | None = None
    """The schema it is written in, if no number stands before it."""
    registered: Mapping[int, str] = field(default_factory=dict)
    """The schemas it may be written in, by the number from a registry that stands before it."""

    def parse(self, column: Column) -> Column:
        """Parse into one struct of the columns, null if the bytes are no such value."""
        if self.written is not None:
            return self._named(from_avro(column, self.written, {"mode": "PERMISSIVE"}))
        framed = (F.length(column) >= _FRAME_BYTES) & (F.substring(column, 1, 1) == F.lit(b"\0"))
        number = unsigned(F.substring(column, 2, 4))
        body = F.substring(column, _FRAME_BYTES + 1, _BYTES_MAX)
        read = F.lit(None).cast(self.schema)
        for each, schema in self.registered.items():
            chosen = from_avro(body, schema, {"mode": "PERMISSIVE"})
            read = F.when(framed & (number == each), self._named(chosen)).otherwise(read)
        return read

    def whole(self, parsed: Column) -> Column:
        """Return the parsed struct."""
        return parsed

    def _named(self, read: Column) -> Column:
        # A value that cannot be cast is null, like a missing field.
        columns = [read[f.name].try_cast(f.dataType).alias(f.name) for f in self.schema.fields]
        return F.when(read.isNotNull(), F.struct(*columns))


@dataclass(frozen=True)
class RegisteredValue(_Value):
    """A value that names its schema in a registry by a number; `checked` makes JSON of it."""

    schema: StructType
    registry: Asked

    def read(self, column: Column) -> Column:
        """Read into a struct of JSON and, for bytes that are no such value, the problem."""
        registry = self.registry

        def read_registered(values: pd.Series) -> pd.DataFrame:
            found = [as_json(value, registry) for value in values]
            return pd.DataFrame(found, columns=[*AsJson._fields], dtype=object)

        call: Callable[[Column], Column]
        # Spark's stubs know no function that is made by its annotations.
        call = pandas_udf(read_registered, "json BINARY, problem STRING")  # type: ignore[call-overload]
        return call(column)

    def parse(self, column: Column) -> Column:
        """Parse the JSON that was made of it."""
        return JsonValue(self.schema).parse(column)

    def whole(self, parsed: Column) -> Column:
        """Return the parsed columns as one struct; null if they are not those of the schema."""
        return JsonValue(self.schema).whole(parsed)

    def look(self, column: Column) -> Column:
        """Parse the JSON that was made of it."""
        return JsonValue(self.schema).look(column)

    def seen(self, looked: Column) -> Column:
        """Return the columns as one struct; null if they are not those of the schema."""
        return JsonValue(self.schema).seen(looked)

    def known(self, looked: Column) -> Column:
        """Return the columns of a value as one struct."""
        return JsonValue(self.schema).known(looked)


@dataclass(frozen=True)
class CountValue(_Value):
    """A count as sidecars write it: eight bytes, big-endian, never negative."""

    schema: StructType = field(default_factory=StructType)
    """No columns: it is one number."""

    def parse(self, column: Column) -> Column:
        """Parse the number, null if the bytes are no count."""
        is_count = (F.length(column) == _COUNT_BYTES) & (F.substring(column, 1, 1) < F.lit(b"\x80"))
        return F.when(is_count, unsigned(column))

    def whole(self, parsed: Column) -> Column:
        """Return the parsed number."""
        return parsed


Format = JsonValue | AvroValue | RegisteredValue | CountValue


def checked(records: DataFrame, formats: Mapping[int, Format], *, keyed: bool = True) -> DataFrame:
    """Mark the unreadable records as dead: `aside` has the verdict, and headers have the reason.

    `formats` are by input; values of an input without one are not decoded. A tombstone is readable.
    """
    return _marked(records, formats, keyed=keyed).drop(*map(_parsed, formats))


def checked_alone(records: DataFrame, number: int, as_format: Format) -> DataFrame:
    """Do as `checked` with the records of one input, and keep their fields in the column `READ`."""
    marked = _marked(records, {number: as_format}, keyed=True)
    parsed = _parsed(number)
    return marked.withColumn(READ, as_format.known(F.col(parsed))).drop(parsed)


def _parsed(number: int) -> str:
    """Return the column of what was parsed of an input's values."""
    return f"_parsed_{number}"


def _marked(records: DataFrame, formats: Mapping[int, Format], *, keyed: bool) -> DataFrame:
    """Mark the unreadable records, and leave beside them what was parsed."""
    # These are columns of their own, or Spark would parse a value anew for each use.
    read = {
        f"_read_{number}": each.read(F.when(F.col("input") == number, F.col("value")))
        for number, each in formats.items()
        if isinstance(each, RegisteredValue)
    }
    parsed = {
        _parsed(number): F.when(F.col("input") == number, each.look(_text_of(number, each)))
        for number, each in formats.items()
    }
    problem = F.lit(None).cast("string")
    for (number, each), name in zip(formats.items(), parsed, strict=True):
        found = _problem(each, F.col(name))
        if f"_read_{number}" in read:
            found = F.coalesce(F.col(f"_read_{number}")["problem"], found)
        problem = F.when(F.col("input") == number, found).otherwise(problem)
    reason = F.when(F.col("_problem").isNotNull(), F.lit(Reason.UNDECODABLE.value))
    if keyed:
        keyless = F.col("key").isNull()
        problem = F.when(keyless, F.lit(KEYLESS)).otherwise(problem)
        reason = F.when(keyless, F.lit(Reason.NULL_KEY.value)).otherwise(reason)
    aside = F.to_json(F.struct(F.lit(DEAD).alias("verdict"), F.col("_reason").alias("reason")))
    return (
        (records.withColumns(read) if read else records)
        .withColumns(parsed)
        .withColumn("_problem", problem)
        .withColumn("_reason", reason)
        .withColumn("aside", F.when(F.col("_problem").isNotNull(), aside))
        .withColumn(
            "headers",
            F.when(F.col("aside").isNull(), F.col("headers")).otherwise(_dead_headers()),
        )
        .withColumn("value", _value_of(read))
        .drop("_problem", "_reason", *read)
    )


def _text_of(number: int, value: Format) -> Column:
    """Return the bytes of an input's value that are parsed."""
    is_registered = isinstance(value, RegisteredValue)
    return F.col(f"_read_{number}")["json"] if is_registered else F.col("value")


def _value_of(read: Iterable[str]) -> Column:
    """Return the value of a record: if it is readable and was registered, its JSON."""
    value = F.col("value")
    for name in read:
        made = F.col(name)["json"]
        value = F.when(F.col("aside").isNull() & made.isNotNull(), made).otherwise(value)
    return value


def decoded(frame: DataFrame, column: str, as_format: Format, name: str | None = None) -> DataFrame:
    """Turn a column of bytes into one struct of typed columns, tombstones into nulls."""
    parsed = frame.withColumn("_parsed", as_format.parse(F.col(column)))
    return parsed.withColumn(name or column, as_format.whole(F.col("_parsed"))).drop("_parsed")


def readable(records: DataFrame, as_format: Format) -> DataFrame:
    """Keep the records that `checked` does not mark, tombstones too."""
    # A filter has no columns of its own: it would parse a value anew for each use of it.
    looked = F.array(as_format.look(F.col("value")))
    return records.where(F.exists(looked, lambda each: _problem(as_format, each).isNull()))


def readable_alone(records: DataFrame, number: int, as_format: Format) -> DataFrame:
    """Do as `checked_alone`, and leave out the records that it marks."""
    if isinstance(as_format, JsonValue) and Parsing.is_for(as_format.schema):
        read = Parsing(as_format.schema).readable(records)
        return read.withColumn("aside", F.lit(None).cast("string"))
    marked = checked_alone(records, number, as_format)
    return marked.where(F.col("aside").isNull())


def dead_alone(records: DataFrame, number: int, as_format: Format) -> DataFrame:
    """Do as `checked` with the records of one input, and keep those alone that it marks."""
    if isinstance(as_format, JsonValue) and Parsing.is_for(as_format.schema):
        # Spark describes the problems of the few that are left.
        records = Parsing(as_format.schema).unreadable(records)
    return checked(records, {number: as_format}).where(F.col("aside").isNotNull())


def _problem(value: Format, looked: Column) -> Column:
    """Describe the problem of a value in words; null if there is none."""
    read = value.seen(looked)
    problem = F.when(read.isNull(), F.lit(UNREADABLE))
    for each in value.schema.fields:
        if not each.nullable:
            problem = problem.when(read[each.name].isNull(), F.lit(missing(each.name)))
    return F.when(F.col("value").isNull(), F.lit(None)).otherwise(problem)


def _dead_headers() -> Column:
    """Return the record's own headers, and behind them those of a dead letter."""
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
    return headers_with(
        *(
            F.struct(F.lit(name).alias("key"), F.encode(text, "UTF-8").alias("value"))
            for name, text in texts.items()
        )
    )
