"""The rows of a table from results in bundles: Python reads the JSON that it made before.

Spark would make a row of each result, keep it, and parse its JSON with a parser of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    IntegerType,
    LongType,
    StructField,
    StructType,
)

from headrace.spark_jobs.read.json_text import read_json
from headrace.spark_jobs.read.parsed import ARROW_TYPES, Parsing, column_of
from headrace.spark_jobs.shapes import CORRECTED
from headrace.spark_jobs.write.bundled import are_rows, in_bundles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
        fields = {each.name: ARROW_TYPES[type(each.dataType)] for each in self._fields}
        self._made = pa.schema({**own, **fields})

    @staticmethod
    def is_for(row: StructType) -> bool:
        """Return whether Python reads all fields of a row as Spark does."""
        return Parsing.is_for(row)

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
                each.name: column_of([row.get(each.name) for row in fields], each.dataType)
                for each in self._fields
            },
        }
        return pa.RecordBatch.from_pydict(columns, self._made)
