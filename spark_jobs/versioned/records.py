"""Records of a batch in columns: some of them, in some order, without a copy.

A batch is hundreds of thousands of records. Code that needs one of them gets it as a `Record`; code
that treats all of them alike takes a column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from headrace.contracts.record import Record
from headrace.spark_jobs.versioned.layout import NO_OFFSET

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Objects = NDArray[np.object_]
    Integers = NDArray[np.int64]


class Columns(NamedTuple):
    """The fields of a record, each for all records."""

    keys: Objects
    values: Objects
    times_ms: Integers
    headers: Objects | None
    """None where no record has any."""
    topics: Objects
    partitions: Integers
    offsets: Integers
    """`NO_OFFSET` for a record that never stood in a topic."""


class Records(Sequence[Record]):
    """The columns' records at some places, in the order of the places."""

    __slots__ = ("_columns", "_places")

    def __init__(self, columns: Columns, places: NDArray[np.intp]) -> None:
        self._columns = columns
        self._places = places

    @classmethod
    def of(cls, records: Sequence[Record]) -> Records:
        """Convert records into columns."""
        if isinstance(records, Records):
            return records
        keys, values, times_ms, headers, topics, partitions, offsets = (
            list(column) for column in (zip(*records, strict=True) if records else [()] * 7)
        )
        columns = Columns(
            objects(keys),
            objects(values),
            np.array(times_ms, np.int64),
            objects(headers) if any(headers) else None,
            objects(topics),
            np.array(partitions, np.int64),
            np.array([NO_OFFSET if each is None else each for each in offsets], np.int64),
        )
        return cls(columns, np.arange(len(records)))

    def __add__(self, other: Records) -> Records:
        """Join two, one after the other."""
        return Records.together([self, other])

    @classmethod
    def together(cls, pieces: Sequence[Records]) -> Records:
        """Join many, one after the other."""
        some = [piece for piece in pieces if len(piece)]
        if len(some) < 2:  # noqa: PLR2004 (nothing to join)
            return some[0] if some else cls.of([])
        taken = (each._taken() for each in some)  # noqa: SLF001 (they are of this class)
        columns = Columns(*map(np.concatenate, zip(*taken, strict=True)))
        if all(each.headers is None for each in some):
            columns = columns._replace(headers=None)
        return cls(columns, np.arange(len(columns.keys)))

    def columns(self) -> Columns:
        """Return the columns of these records alone."""
        taken = Columns(*self._taken())
        return taken._replace(headers=self.headers)

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Record]:
        taken = self._taken()
        keys, values, times_ms, headers, topics, partitions, offsets = (
            column.tolist() for column in taken
        )
        plain = [None if each == NO_OFFSET else each for each in offsets]
        fields = zip(keys, values, times_ms, headers, topics, partitions, plain, strict=True)
        return map(tuple.__new__, repeat(Record), fields)

    @overload
    def __getitem__(self, at: int) -> Record: ...
    @overload
    def __getitem__(self, at: slice) -> Records: ...
    def __getitem__(self, at: int | slice) -> Record | Records:
        if isinstance(at, slice):
            return Records(self._columns, self._places[at])
        (record,) = Records(self._columns, self._places[[at]])
        return record

    def take(self, places: NDArray[Any]) -> Records:
        """Return the records at some places of these, or those for which a mask is true."""
        return Records(self._columns, self._places[places])

    @property
    def keys(self) -> Objects:
        """Their keys."""
        return self._columns.keys[self._places]

    @property
    def values(self) -> Objects:
        """Their values."""
        return self._columns.values[self._places]

    @property
    def times_ms(self) -> Integers:
        """Their timestamps."""
        return self._columns.times_ms[self._places]

    @property
    def headers(self) -> Objects | None:
        """Their headers, None where no record has any."""
        headers = self._columns.headers
        return None if headers is None else headers[self._places]

    @property
    def topics(self) -> Objects:
        """Their topics."""
        return self._columns.topics[self._places]

    @property
    def partitions(self) -> Integers:
        """Their partitions."""
        return self._columns.partitions[self._places]

    @property
    def offsets(self) -> Integers:
        """Their offsets, `NO_OFFSET` where there is none."""
        return self._columns.offsets[self._places]

    def _taken(self) -> tuple[NDArray[Any], ...]:
        """Return all columns, headers too."""
        headers = self.headers
        if headers is None:
            headers = objects([()] * len(self))
        origins = (self.topics, self.partitions, self.offsets)
        return (self.keys, self.values, self.times_ms, headers, *origins)


def are_present(column: Objects) -> NDArray[np.bool_]:
    """Return which items of a column are not None."""
    present: NDArray[np.bool_] = column != None  # noqa: E711 (numpy compares each)
    return present


def objects(column: Sequence[Any]) -> Objects:
    """Make a column of any objects."""
    # Other ways to make an array turn tuples into rows.
    return np.fromiter(column, object, len(column))
