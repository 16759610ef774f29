"""The results of a batch, as columns of rows, in pieces that a frame can hold."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from headrace.spark_jobs.versioned.changes import Changes
    from headrace.spark_jobs.versioned.records import Integers, Objects, Records


BYTES_MAX = 64 << 20
"""How many bytes go into one frame: a column of Arrow holds two gigabytes, Java's memory less."""


class Results(NamedTuple):
    """Rows that leave with one verdict, in columns."""

    verdict: str
    causes: Integers
    """Index, in the batch, of the arrival that caused each row."""
    records: Records
    """The record whose headers and origin each row has."""
    keys: Objects
    values: Objects
    times_ms: Integers
    table_values: pa.LargeBinaryArray | None = None
    """The table's value for each row, if the step looks one up."""

    @classmethod
    def of(cls, verdict: str, changes: Changes) -> Results:
        """Make rows of the changes of a table."""
        causes, keys, news, _, times_ms, _, records = changes
        return cls(verdict, causes, records, keys, news, times_ms)

    def with_rows(self, values: Objects) -> Results:
        """Put the values of rows in the place of those that they were made of."""
        return self._replace(values=values, table_values=None)

    def in_pieces(self, bytes_max: int = BYTES_MAX) -> Iterator[Results]:
        """Yield all rows in their order, in pieces of at most so many bytes, or of one row."""
        size = 0 if self.table_values is None else self.table_values.nbytes
        if size + _bytes_of(self.keys) + _bytes_of(self.values) <= bytes_max:
            yield self
            return
        for rows in slices(self._sizes(), bytes_max):
            table_values = self.table_values
            if table_values is not None:
                # A slice would keep its offset in the whole column, which may exceed a smaller
                # type's range.
                table_values = table_values.take(np.arange(rows.start, rows.stop))
            yield Results(
                self.verdict,
                self.causes[rows],
                self.records[rows],
                self.keys[rows],
                self.values[rows],
                self.times_ms[rows],
                table_values,
            )

    def _sizes(self) -> Iterator[int]:
        sizes: Iterable[int] = repeat(0)
        if self.table_values is not None:
            sizes = pc.fill_null(pc.binary_length(self.table_values), 0).to_pylist()
        for key, value, size in zip(self.keys, self.values, sizes, strict=False):
            yield len(key or b"") + len(value or b"") + size


def slices(sizes: Iterable[int], bytes_max: int = BYTES_MAX) -> Iterator[slice]:
    """Cut rows of these sizes into runs of at most so many bytes, or of one row."""
    start, together, end = 0, 0, 0
    for end, size in enumerate(sizes):
        if end > start and together + size > bytes_max:
            yield slice(start, end)
            start, together = end, 0
        together += size
    yield slice(start, end + 1)


def _bytes_of(column: Objects) -> int:
    return sum(map(len, filter(None, column)))
