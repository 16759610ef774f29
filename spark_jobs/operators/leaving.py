"""The way of results from the task that makes them to a sink: in bundles, or written there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.spark_jobs.operators.columns import columns_of, wrapped
from headrace.spark_jobs.operators.results import BYTES_MAX
from headrace.spark_jobs.shapes import BUNDLE
from headrace.spark_jobs.write.bundled import packed, pieces_of
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

    def bundled(self, results: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """Bundle results in their order, unless they are written here."""
        tables = joined(map(columns_of, results), BYTES_MAX)
        if self.writer is not None and words_here() is not None:
            self._gather(tables)
        else:
            yield from _bundles_of(tables)

    def end(self) -> None:
        """Write what was gathered, once the last task of the partition has ended."""
        words = words_here()
        if self.writer is None or words is None:
            return
        gathered = self._gathered or Gathered()
        with gathered:
            self.writer.write(gathered.tables(), words)

    def _gather(self, tables: Iterable[pa.Table]) -> None:
        # Made here, since a file cannot be sent to a worker.
        gathered = self._gathered = self._gathered or Gathered()
        for rows in tables:
            for piece in pieces_of(rows):
                gathered.add(piece)


def _bundles_of(tables: Iterable[pa.Table]) -> Iterator[pd.DataFrame]:
    for rows in tables:
        bundles = pa.array([*packed(rows)], pa.binary())
        # They are in no task any more; the column is there because all bundles have it.
        yield wrapped({"task": pa.nulls(len(bundles), pa.int32()), BUNDLE: bundles})
