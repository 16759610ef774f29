"""The rows of one table in a task. Their number grows with the table, a row at a time.

A key's hash says which row the key is in (linear hashing):

    count       how many rows the table may have
    modulus     the largest `base` times a power of two that is not above the count
    row         hash % (2 * modulus) if there is such a row, else hash % modulus

    count 6:    hash % 8    0  1  2  3  4  5  6  7
                row         0  1  2  3  4  5  2  3

So a further row takes its keys from one other row, here row 6 from row 2, and all other rows stay
as they are. A small table is one row, and a batch touches a few kilobytes of a large one.

    NAME/ROW              a row, absent while it has no key
    buckets:NAME:rows     the count; a table without it has as many rows as `buckets` says
    buckets:NAME:bytes    the bytes of all rows

A table grows when it is written: to a row for each 8 KiB that it has, and to smaller rows when it
is large (`rows_for`). It never shrinks, so its rows follow the most bytes that it had at a save.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from headrace.contracts.errors import StateCorrupt

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from headrace.spark_jobs.versioned.records import Integers
    from headrace.spark_jobs.versioned.state import TaskState

ROW_BYTES, ROW_BYTES_MIN = 8 << 10, 2 << 10
"""The bytes of a row on average, as it is stored, in a small table and in a large one. Smaller rows
cost a table that is read as a whole more calls of the store; larger ones cost a few keys bytes."""
SMALL_BYTES = 8 << 20
"""From here on, each doubling of a table halves its rows."""
SPLITS_MAX = 1024
"""By how many rows a table grows at a time, unless more were written anyway: one that was large
before, of an older version, is not read as a whole."""
SCANNED_MIN, SCANNED_RATIO = 16, 4
"""A scan of a task's state replaces so many calls or more, where it reads less than so many times
the bytes."""
HELD_RATIO = 2
"""The bytes of held records are noted as they were before compression, which leaves a fifth of
JSON. A scan reads these as well, and spares a call for each slice of them that is released."""
PREFIX, RUN = "buckets:", ":run:"
_ROWS, _BYTES = ":rows", ":bytes"


class TableRows:
    """The rows of one table."""

    def __init__(self, state: TaskState, name: str, *, begins: bool = False) -> None:
        """Open a table; one that `begins` has no row yet, as all tables of a new state."""
        self._rows = state.rows
        self._numbers = state.numbers
        self._name = name
        self._sizes: dict[int, int] = {}
        """The bytes of the rows that were read."""
        buckets = state.buckets
        self._base = base_of(buckets)
        if begins or state.is_new:
            self._numbers.setdefault(rows_number(name), self._base)
            self._numbers.setdefault(bytes_number(name), 0)
        self._set_count(self._numbers.get(rows_number(name), buckets))
        self._count_stored = self.count
        """How many rows the stored ones are spread over: fewer, while a table that grew is read."""

    def place_of(self, key: bytes) -> int:
        """Return the number of a key's row."""
        place = crc32(key) % self._modulus_next
        return place if place < self.count else place - self._modulus

    def places_of(self, keys: Iterable[bytes], size: int) -> Integers:
        """Return the number of the row of each of so many keys."""
        return _places(np.fromiter(map(crc32, keys), np.int64, size), self.count, self._base)

    def get_all(self, places: Sequence[int]) -> list[bytes | None]:
        """Return these rows, None for one that is not there."""
        read = self._rows.scan if self._scans(len(places)) else self._rows.get_all
        rows = read([row_name(self._name, place) for place in places])
        self._sizes.update(
            (place, 0 if row is None else len(row)) for place, row in zip(places, rows, strict=True)
        )
        return [*rows]

    def refuse_misplaced(self, first_keys: Mapping[int, bytes]) -> None:
        """Refuse the rows of these places unless each should have the key that is its first."""
        hashes = np.fromiter(map(crc32, first_keys.values()), np.int64, len(first_keys))
        if _places(hashes, self._count_stored, self._base).tolist() != [*first_keys]:
            message = (
                f"a row of the table `{self._name}` is damaged: its keys belong to another row;"
                " start the query from an older or a new checkpoint"
            )
            raise StateCorrupt(message)

    def put(self, place: int, row: bytes | None) -> None:
        """Set a row that was read, or is of a table that grew; None removes it."""
        self._count_stored = self.count
        before = self._sizes.get(place, 0)
        if row is not None:
            self._rows.put(row_name(self._name, place), row)
        elif before:
            self._rows.remove(row_name(self._name, place))
        self._sizes[place] = size = 0 if row is None else len(row)
        self._numbers[bytes_number(self._name)] += size - before

    def grow(self, written: Mapping[int, bytes | None]) -> list[int]:
        """Add the rows that the table needs once these rows of it are put.

        Return those of which each key may be in an added row by now. The caller reads these, and
        puts them anew beside the added ones.
        """
        before = self.count
        size = self._bytes() + sum(
            (0 if row is None else len(row)) - self._sizes.get(place, 0)
            for place, row in written.items()
        )
        after = min(rows_for(size), before + max(SPLITS_MAX, len(written)))
        if after <= before:
            return []
        added = np.arange(before, after)
        split: list[int] = np.unique(_places(added, before, self._base)).tolist()
        self._set_count(after)
        self._numbers[rows_number(self._name)] = after
        return split

    def all_rows(self) -> list[bytes | None]:
        """Return all rows, None for one that is not there."""
        return self.get_all(range(self.count))

    def remove(self) -> None:
        """Remove the rows that were read, and what is noted of the table."""
        for place, size in self._sizes.items():
            if size:
                self._rows.remove(row_name(self._name, place))
        self._sizes.clear()
        for number in (rows_number(self._name), bytes_number(self._name)):
            self._numbers.pop(number, None)

    def remove_unread(self) -> None:
        """Remove all rows, read or not, and what is noted of the table."""
        for place in range(self.count):
            self._rows.remove(row_name(self._name, place))
        for number in (rows_number(self._name), bytes_number(self._name)):
            del self._numbers[number]

    def _scans(self, count: int) -> bool:
        """Return whether reading everything takes less than reading so many rows one by one."""
        if count < SCANNED_MIN or RUN in self._name:
            return False
        size = self._numbers.get(bytes_number(self._name), 0) * count // self.count
        everything = sum(
            number if name.startswith(PREFIX) else number // HELD_RATIO
            for name, number in self._numbers.items()
            if name.endswith(_BYTES) and RUN not in name
        )
        return everything < size * SCANNED_RATIO

    def _bytes(self) -> int:
        number = bytes_number(self._name)
        if number not in self._numbers:
            # An older version did not note it.
            self._numbers[number] = sum(map(len, filter(None, self.all_rows())))
        return self._numbers[number]

    def _set_count(self, count: int) -> None:
        self.count = count
        self._modulus = modulus_of(self._base, count)
        self._modulus_next = 2 * self._modulus


def rows_for(size_bytes: int) -> int:
    """Return how many rows a table of so many bytes should have."""
    row_bytes = ROW_BYTES * SMALL_BYTES // max(size_bytes, SMALL_BYTES)
    return size_bytes // max(row_bytes, ROW_BYTES_MIN)


def _places(hashes: Integers, count: int, base: int) -> Integers:
    """Return the rows of keys with these hashes in a table of so many rows."""
    modulus = modulus_of(base, count)
    places = hashes % (2 * modulus)
    found: NDArray[np.int64] = np.where(places < count, places, places - modulus)
    return found


def row_name(table: str, place: int) -> str:
    """Return the name of a row."""
    return f"{table}/{place}"


def rows_number(table: str) -> str:
    """Return the name of the number of a table's rows."""
    return f"{PREFIX}{table}{_ROWS}"


def bytes_number(table: str) -> str:
    """Return the name of the number of a table's bytes."""
    return f"{PREFIX}{table}{_BYTES}"


def table_of(name: str) -> str:
    """Return the table of which this is a run, or the name itself."""
    return name.partition(RUN)[0]


def tables_in(numbers: Iterable[str]) -> set[str]:
    """Return the tables whose rows are noted in a header."""
    return {
        name.removeprefix(PREFIX).removesuffix(_BYTES)
        for name in numbers
        if name.startswith(PREFIX) and name.endswith(_BYTES)
    }


def base_of(buckets: int) -> int:
    """Return the number of rows with which a table begins, where `buckets` is noted.

    It is the odd part of `buckets`, so a table that had that many rows from the start has them by
    linear hashing as well.
    """
    return buckets // (buckets & -buckets)


def modulus_of(base: int, count: int) -> int:
    """Return the largest base times a power of two that is not above a count."""
    return base << ((count // base).bit_length() - 1)
