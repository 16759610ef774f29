"""The way of results from the task that makes them to a sink: in bundles, or written there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.spark_jobs.operators.columns import columns_of, wrapped
from headrace.spark_jobs.operators.results import BYTES_MAX
from headrace.spark_jobs.shapes import BUNDLE, FIELDS
from headrace.spark_jobs.write.bundled import COLUMNS, packed, pieces_of
from headrace.spark_jobs.write.gathered import Gathered, joined
from headrace.spark_jobs.write.where_made import words_here

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pandas as pd

    from headrace.spark_jobs.write.where_made import Writer


class Leaving:
    """The way of the results of a partition, which has one task behind the other."""

    def __init__(self, writer: Writer | None = None) -> None:
        """Take the writer that a driver may tell to write; without one, all leaves in bundles."""
        self.writer = writer
        self._gathered: Gathered | None = None

    def fields(self) -> pa.StructType | None:
        """Return the fields that rows may leave with in the place of JSON, None if none may."""
        if self.writer is None or words_here() is None:
            return None
        return self.writer.fields

    def bundled(self, results: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """Bundle results in their order, unless they are written here."""
        tables = map(columns_of, results)
        if self.writer is not None and words_here() is not None:
            self._gather(tables, self.writer.fields)
        else:
            yield from _bundles_of(joined(tables, BYTES_MAX))

    def end(self) -> None:
        """Write what was gathered, once the last task of the partition has ended."""
        words = words_here()
        if self.writer is None or words is None:
            return
        gathered = self._gathered or Gathered()
        with gathered:
            self.writer.write(gathered.tables(), words)

    def _gather(self, tables: Iterable[pa.Table], fields: pa.StructType | None) -> None:
        # Made here, since a file cannot be sent to a worker.
        gathered = self._gathered = self._gathered or Gathered()
        schema = COLUMNS
        if fields is not None:
            schema = COLUMNS.append(pa.field(FIELDS, fields))
            tables = (_with_fields(table, fields) for table in tables)
        for rows in joined(tables, BYTES_MAX):
            for piece in pieces_of(rows, schema):
                gathered.add(piece)


def _with_fields(results: pa.Table, fields: pa.StructType) -> pa.Table:
    """Return results with a column of the fields of their rows, which may all be in JSON."""
    if FIELDS in results.column_names:
        return results
    return results.append_column(FIELDS, pa.nulls(results.num_rows, fields))


def _bundles_of(tables: Iterable[pa.Table]) -> Iterator[pd.DataFrame]:
    for rows in tables:
        bundles = pa.array([*packed(rows)], pa.binary())
        # They are in no task any more; the column is there because all bundles have it.
        yield wrapped({"task": pa.nulls(len(bundles), pa.int32()), BUNDLE: bundles})
