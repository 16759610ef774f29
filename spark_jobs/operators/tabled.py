"""The rows of a table from results in bundles: Python reads the JSON that it made before.

Spark would make a row of each result, keep it, and parse its JSON with a parser of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.spark_jobs.read.parsed import ARROW_TYPES, Parsing, columns_of_written
from headrace.spark_jobs.shapes import CORRECTED, FIELDS
from headrace.spark_jobs.write.bundled import are_rows, in_bundles

_OWN = {
    "key": (StringType(), pa.string()),
    "timestamp": (TimestampType(), pa.timestamp("us", tz="UTC")),
    "deleted": (BooleanType(), pa.bool_()),
    "corrected": (BooleanType(), pa.bool_()),
    "task": (IntegerType(), pa.int32()),
    "sequence": (LongType(), pa.int64()),
}
_MILLISECONDS = pa.timestamp("ms", tz="UTC")


class Tabled:
    """Makes the rows of a table."""

    def __init__(self, row: StructType, *, corrects: bool) -> None:
        """Take the fields of a row; with `corrects`, a column tells which rows correct another."""
        # The key is the record's, even if a row has a field of that name.
        self._fields = [each for each in row.fields if each.name.lower() not in _OWN]
        self.fields = pa.struct({each.name: ARROW_TYPES[type(each.dataType)] for each in row})
        own = {name: kinds for name, kinds in _OWN.items() if corrects or name != "corrected"}
        fields = {each.name: ARROW_TYPES[type(each.dataType)] for each in self._fields}
        self.arrow_schema = pa.schema({**{name: kind for name, (_, kind) in own.items()}, **fields})
        self.schema = StructType(
            [*(StructField(name, kind) for name, (kind, _) in own.items()), *self._fields]
        )

    @staticmethod
    def is_for(row: StructType) -> bool:
        """Return whether Python reads all fields of a row as Spark does."""
        return Parsing.is_for(row)

    def rows_of(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of bundles, with a column for each field, null for a deleted key."""
        for rows in map(self.tabled, in_bundles(batches)):
            if rows.num_rows:
                yield rows

    def tabled(self, results: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows among results."""
        rows = results.filter(are_rows(results))
        names = [each.name for each in self._fields]
        columns = {
            # Spark takes bytes for text as they are, too.
            "key": rows["key"].view(pa.string()),
            "timestamp": rows["timestamp_ms"].cast(_MILLISECONDS).cast(_OWN["timestamp"][1]),
            "deleted": self._are_deleted(rows),
            "corrected": pc.equal(rows["verdict"], CORRECTED),
            **{name: rows[name] for name in ("task", "sequence")},
            **dict(zip(names, self._columns_of(rows), strict=True)),
        }
        made = [columns[name] for name in self.arrow_schema.names]
        return pa.RecordBatch.from_arrays(made, schema=self.arrow_schema)

    def _are_deleted(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        """Return which rows have neither JSON nor fields."""
        deleted = pc.is_null(rows["value"])
        return pc.and_(deleted, pc.is_null(rows[FIELDS])) if _have_fields(rows) else deleted

    def _columns_of(self, rows: pa.RecordBatch) -> list[pa.Array]:
        """Return the fields of rows, from their JSON where they have none."""
        if not _have_fields(rows):
            return columns_of_written(rows["value"].to_pylist(), self._fields)
        fields = rows[FIELDS]
        given = [pc.struct_field(fields, each.name) for each in self._fields]
        if not fields.null_count:
            return given
        read = columns_of_written(rows["value"].to_pylist(), self._fields)
        return [pc.if_else(fields.is_valid(), *each) for each in zip(given, read, strict=True)]


def _have_fields(rows: pa.RecordBatch) -> bool:
    return FIELDS in rows.schema.names
