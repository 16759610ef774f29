"""The protocol of a store: rows of bytes in byte order, whatever they mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

Stretch = tuple[bytes, bytes]
"""Rows with start <= key < end."""


class Store(Protocol):
    """One partition's rows. One thread at a time."""

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """Return the row of each key, None where there is none."""

    def range(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over rows with start <= key < end, in order, as they are now."""

    def write(self, drops: Sequence[Stretch], *rows: Mapping[bytes, bytes | None]) -> None:
        """Drop stretches, then set rows (None deletes): all of it, or nothing."""

    def close(self) -> None:
        """Release files and locks; nothing else may be called afterwards."""
