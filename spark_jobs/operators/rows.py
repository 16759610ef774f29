"""A task's rows in Spark's state store.

Each call to the store is a round trip over a socket and a look-up behind it, so a row is read once
and written once a batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import MapState

NAME_SCHEMA = "name string"
ROW_SCHEMA = "row binary"


class StoredRows:
    """The rows of the task whose turn it is."""

    def __init__(self, state: MapState) -> None:
        self._state = state

    def get(self, name: str) -> bytes | None:
        """The row of that name, None where there is none."""
        found = self._state.getValue((name,))
        return None if found is None else bytes(found[0])

    def put(self, name: str, row: bytes) -> None:
        """Set a row."""
        self._state.updateValue((name,), (row,))

    def remove(self, name: str) -> None:
        """Forget a row."""
        self._state.removeKey((name,))
