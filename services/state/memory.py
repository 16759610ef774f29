"""A store in memory: for tests, for `replay`, and for state that may be lost."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from headrace.services.state.store import Stretch


class MemoryStore:
    """Rows in a dictionary; it sorts their keys when a range is asked for."""

    def __init__(self) -> None:
        """Begin empty."""
        self._rows: dict[bytes, bytes] = {}
        self._order: list[bytes] | None = None

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """Return the row of each key, None where there is none."""
        return list(map(self._rows.get, keys))

    def range(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over rows with start <= key < end, in order, as they are now."""
        keys = self._keys_between(start, end)
        return iter([(key, self._rows[key]) for key in keys])

    def _keys_between(self, start: bytes, end: bytes) -> list[bytes]:
        if self._order is None:
            self._order = sorted(self._rows)
        return self._order[bisect_left(self._order, start) : bisect_left(self._order, end)]

    def write(self, drops: Sequence[Stretch], *rows: Mapping[bytes, bytes | None]) -> None:
        """Drop stretches, then set rows."""
        for start, end in drops:
            for key in self._keys_between(start, end):
                del self._rows[key]
            self._order = None
        for key, row in chain.from_iterable(each.items() for each in rows):
            if row is not None:
                if key not in self._rows:
                    self._order = None
                self._rows[key] = row
            elif self._rows.pop(key, None) is not None:
                self._order = None

    def close(self) -> None:
        """Do nothing: there are no files or locks to release."""
