"""The rows of a table from results in bundles: Python reads the JSON that it made before.

Spark would make a row of each result, keep it, and parse its JSON with a parser of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from headrace.spark_jobs.read.json_text import fits_of, read_json, text_of
from headrace.spark_jobs.shapes import CORRECTED
from headrace.spark_jobs.write.bundled import are_rows, in_bundles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TYPES: dict[type[DataType], pa.DataType] = {
    StringType: pa.string(),
    LongType: pa.int64(),
    IntegerType: pa.int32(),
    ShortType: pa.int16(),
    BooleanType: pa.bool_(),
}
"""The types of fields that Python reads as Spark does."""
_OWN = {
    "key": (BinaryType(), pa.binary()),
    "timestamp": (LongType(), pa.int64()),
    "deleted": (BooleanType(), pa.bool_()),
    "corrected": (BooleanType(), pa.bool_()),
    "task": (IntegerType(), pa.int32()),
    "sequence": (LongType(), pa.int64()),
}


class Tabled:
    """Makes the rows of a table."""

    def __init__(self, row: StructType, *, corrects: bool) -> None:
        """Take the fields of a row; with `corrects`, a column tells which rows correct another."""
        self._corrects = corrects
        # The key is the record's, even if a row has a field of that name.
        self._fields = [each for each in row.fields if each.name.lower() not in _OWN]
        own = {name: kind for name, (_, kind) in _OWN.items()}
        fields = {each.name: _TYPES[type(each.dataType)] for each in self._fields}
        self._made = pa.schema({**own, **fields})

    @staticmethod
    def is_for(row: StructType) -> bool:
        """Return whether Python reads all fields of a row as Spark does."""
        return all(type(each.dataType) in _TYPES for each in row.fields)

    @property
    def schema(self) -> StructType:
        """The columns that Python makes."""
        own = [StructField(name, kind) for name, (kind, _) in _OWN.items()]
        return StructType([*own, *self._fields])

    def columns(self, rows: DataFrame) -> DataFrame:
        """Return the columns of a table."""
        corrected = ["corrected"] if self._corrects else []
        return rows.select(
            F.col("key").cast("string"),
            F.timestamp_millis("timestamp").alias("timestamp"),
            *("deleted", *corrected, "task", "sequence"),
            *(each.name for each in self._fields),
        )

    def rows_of(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of bundles, with a column for each field, null for a deleted key."""
        for rows in map(self.tabled, in_bundles(batches)):
            if rows.num_rows:
                yield rows

    def tabled(self, results: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows among results."""
        rows = results.filter(are_rows(results))
        values = rows["value"]
        fields = [read_json(value) or {} for value in values.to_pylist()]
        columns = {
            "key": rows["key"],
            "timestamp": rows["timestamp_ms"],
            "deleted": pc.is_null(values),
            "corrected": pc.equal(rows["verdict"], CORRECTED),
            **{name: rows[name] for name in ("task", "sequence")},
            **{
                each.name: _column([row.get(each.name) for row in fields], each.dataType)
                for each in self._fields
            },
        }
        return pa.RecordBatch.from_pydict(columns, self._made)


def _column(fields: list[Any], kind: DataType) -> pa.Array:
    """Return the fields of a column; one of another type is null, but text takes all as written."""
    fits = fits_of(kind)
    if fits is None:
        texts = [field if type(field) is str else text_of(field) for field in fields]
        try:
            return pa.array(texts, pa.string())
        except UnicodeEncodeError:
            # A text may have half of a pair of characters, for which Spark writes a question mark.
            whole = [None if text is None else text.encode(errors="replace") for text in texts]
            return pa.array(whole, pa.binary()).cast(pa.string())
    return pa.array([field if fits(field) else None for field in fields], _TYPES[type(kind)])
