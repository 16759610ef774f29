"""The results of a batch, as columns of rows, in pieces that a frame can hold."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.spark_jobs.versioned.changes import Changes
    from headrace.spark_jobs.versioned.records import Integers, Objects, Records


Column = TypeVar("Column", bound=pa.Array)
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
    made: pa.Array | None = None
    """The fields of each row, or its bytes, if the step makes all at once; `values` has none then.
    """

    @classmethod
    def of(cls, verdict: str, changes: Changes) -> Results:
        """Make rows of the changes of a table."""
        causes, keys, news, _, times_ms, _, records = changes
        return cls(verdict, causes, records, keys, news, times_ms)

    def with_rows(self, values: Objects) -> Results:
        """Put the values of rows in the place of those that they were made of."""
        return self._replace(values=values, table_values=None)

    def with_made(self, made: pa.Array) -> Results:
        """Put rows in the place of the values that they were made of."""
        values = np.full(len(made), None, object)
        return self._replace(values=values, table_values=None, made=made)

    def in_pieces(self, bytes_max: int = BYTES_MAX) -> Iterator[Results]:
        """Yield all rows in their order, in pieces of at most so many bytes, or of one row."""
        size = sum(each.nbytes for each in (self.table_values, self.made) if each is not None)
        if size + _bytes_of(self.keys) + _bytes_of(self.values) <= bytes_max:
            yield self
            return
        for rows in slices(self._sizes(), bytes_max):
            yield Results(
                self.verdict,
                self.causes[rows],
                self.records[rows],
                self.keys[rows],
                self.values[rows],
                self.times_ms[rows],
                _taken(self.table_values, rows),
                _taken(self.made, rows),
            )

    def _sizes(self) -> Iterator[int]:
        sizes: Iterable[int] = repeat(0)
        if self.table_values is not None:
            sizes = _sizes_of(self.table_values).tolist()
        if self.made is not None:
            is_struct = pa.types.is_struct(self.made.type)
            columns = self.made.flatten() if is_struct else [self.made]
            sizes = np.sum([*map(_sizes_of, columns)], axis=0).tolist()
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


def _taken(column: Column | None, rows: slice) -> Column | None:
    """Return some rows of a column, which may be none."""
    # A slice would keep its offset in the whole column, which may exceed a smaller type's range.
    return None if column is None else column.take(np.arange(rows.start, rows.stop))


def _sizes_of(column: pa.Array) -> Integers:
    """Return the bytes of each value of a column."""
    if pa.types.is_primitive(column.type):
        return np.full(len(column), column.type.bit_width // 8 or 1)
    sizes: Integers = pc.fill_null(pc.binary_length(column), 0).to_numpy()
    return sizes


def _bytes_of(column: Objects) -> int:
    return sum(map(len, filter(None, column)))
