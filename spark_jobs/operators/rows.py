"""A task's rows in Spark's state store.

Each call to the store is a round trip over a socket and a look-up, so a batch reads a row once and
writes it once.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.contracts.errors import StateUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.streaming.stateful_processor import MapState

NAME_SCHEMA = "name string"
ROW_SCHEMA = "row binary"


class StoredRows:
    """The rows of the task that Spark is processing."""

    def __init__(self, state: MapState) -> None:
        self._state = state

    def get(self, name: str) -> bytes | None:
        """Return the row of that name, None if there is none."""
        with _asking():
            found = self._state.getValue((name,))
        return None if found is None else bytes(found[0])

    def put(self, name: str, row: bytes) -> None:
        """Set a row."""
        with _asking():
            self._state.updateValue((name,), (row,))

    def remove(self, name: str) -> None:
        """Forget a row."""
        with _asking():
            self._state.removeKey((name,))


@contextmanager
def _asking() -> Iterator[None]:
    """Turn an error of the store into one that is not the fault of any record."""
    try:
        yield
    except Exception as error:  # Spark's client raises many kinds, some of them private
        message = f"Spark's state store does not answer: {error}"
        raise StateUnavailable(message) from error
