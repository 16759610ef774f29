"""Parse JSON in Python into a struct of columns, where Python reads all their types as Spark does.

Spark's own parser takes three times as long, and once more for each filter that it copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
    StructType,
)

from headrace.spark_jobs.headers import packed_headers, unpacked_headers
from headrace.spark_jobs.read.json_text import JsonCheck, fits_of, read_json, read_written, text_of
from headrace.spark_jobs.shapes import READ

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ARROW_TYPES: dict[type[DataType], pa.DataType] = {
    StringType: pa.string(),
    LongType: pa.int64(),
    IntegerType: pa.int32(),
    ShortType: pa.int16(),
    BooleanType: pa.bool_(),
}
"""The types of fields that Python reads as Spark does."""
_NULL = type(None)
_PLAIN: dict[type[DataType], set[type]] = {
    StringType: {str, _NULL},
    LongType: {int, _NULL},
    IntegerType: {int, _NULL},
    ShortType: {int, _NULL},
    BooleanType: {bool, _NULL},
}
"""The types in Python that the fields of a plain column have."""


class Parsing:
    """Tells readable records by their values and keys, and reads the fields of these."""

    def __init__(self, schema: StructType) -> None:
        """Take the columns of a value; `is_for` must hold for them."""
        self._schema = schema
        self._check = JsonCheck(schema)

    @staticmethod
    def is_for(schema: StructType) -> bool:
        """Return whether Python reads all fields of a value as Spark does."""
        return all(type(each.dataType) in ARROW_TYPES for each in schema.fields)

    def readable(self, records: DataFrame) -> DataFrame:
        """Keep the readable records, with their fields in `READ`; those of a tombstone are null."""
        packed = _packed(records)
        made = StructType([*packed.schema.fields]).add(READ, self._schema)
        return packed.mapInArrow(self._read, made).withColumn("headers", unpacked_headers())

    def unreadable(self, records: DataFrame) -> DataFrame:
        """Keep the others."""
        packed = _packed(records)
        others = packed.mapInArrow(self._sort_out, packed.schema)
        return others.withColumn("headers", unpacked_headers())

    def _read(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            kept = batch.filter(pc.invert(self._are_dead(batch)))
            values = kept["value"]
            columns = columns_of_values(values.to_pylist(), self._schema.fields)
            read = pa.StructArray.from_arrays(
                columns, names=self._schema.names, mask=values.is_null()
            )
            yield kept.append_column(READ, read)

    def _sort_out(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.filter(self._are_dead(batch))

    def _are_dead(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        keyless = batch["key"].is_null()
        problems = self._check.problems(batch["value"].to_pylist())
        if not problems:
            return keyless
        return pc.or_(keyless, pa.array([place in problems for place in range(batch.num_rows)]))


def _packed(records: DataFrame) -> DataFrame:
    # Spark's Arrow goes through all nulls of a column of lists before each further one.
    return records.withColumn("headers", packed_headers())


def columns_of_values(
    values: Iterable[bytes | None], fields: Sequence[StructField]
) -> list[pa.Array]:
    """Return the fields of values in columns."""
    rows = [read_json(value) or {} for value in values]
    return [_column_of([row.get(each.name) for row in rows], each.dataType) for each in fields]


def columns_of_written(
    values: Sequence[bytes | None], fields: Sequence[StructField]
) -> list[pa.Array]:
    """Do as `columns_of_values` with values of which each is an object, or None.

    Rows that a job wrote are, and so are values that were checked.
    """
    if not fields:
        return []
    rows = read_written(values)
    columns: list[pa.Array] = []
    for each in fields:
        column = _plain_column([row.get(each.name) for row in rows], each.dataType)
        if column is None:
            return columns_of_values(values, fields)
        columns.append(column)
    return columns


def columns_of_repeated(
    values: pa.LargeBinaryArray, fields: Sequence[StructField]
) -> list[pa.Array]:
    """Do as `columns_of_written` with values of which many are the same: each is read once."""
    known = values.dictionary_encode()
    columns = columns_of_written(known.dictionary.to_pylist(), fields)
    return [column.take(known.indices) for column in columns]


def _plain_column(fields: list[Any], kind: DataType) -> pa.Array | None:
    """Return the fields of a column if all are of its type or null, else None."""
    if not _PLAIN[type(kind)].issuperset(map(type, fields)):
        return None
    try:
        return pa.array(fields, ARROW_TYPES[type(kind)])
    except (ValueError, OverflowError):
        # A number has too many bits, or a text has half of a pair of characters.
        return None


def _column_of(fields: list[Any], kind: DataType) -> pa.Array:
    """Return the fields of a column; one of another type is null, but text takes all as written."""
    plain = _plain_column(fields, kind)
    if plain is not None:
        return plain
    fits = fits_of(kind)
    if fits is None:
        texts = [field if type(field) is str else text_of(field) for field in fields]
        try:
            return pa.array(texts, pa.string())
        except UnicodeEncodeError:
            # A text may have half of a pair of characters, for which Spark writes a question mark.
            whole = [None if text is None else text.encode(errors="replace") for text in texts]
            return pa.array(whole, pa.binary()).cast(pa.string())
    return pa.array([field if fits(field) else None for field in fields], ARROW_TYPES[type(kind)])
