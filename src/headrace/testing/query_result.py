"""The results of a query's run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from headrace.contracts.dead_letter import DeadLetter
from headrace.contracts.record import Record
from headrace.testing.tables import Leaving


@dataclass(frozen=True)
class QueryResult:
    """The results of a query's run."""

    rows: tuple[Record, ...]
    """The rows as a Kafka sink would have them, in the order in which they left."""
    late: tuple[Record, ...]
    """Copies of the stream's records that came late; their rows are among the others."""
    dead: tuple[DeadLetter, ...]
    """The records that cannot be read, with their reasons."""
    held: int
    """How many records still wait."""
    failure: str | None
    """Why the query stopped before the last record; None if it did not."""
    leaves: tuple[tuple[Leaving, ...], ...]
    """The records that left because of each row of the table, in order."""

    @property
    def latest(self) -> dict[str | None, Any]:
        """The last row of each key, read as JSON, without deleted ones: a table by `upsert`."""
        last = {row.key: row.value for row in self.rows}
        return {
            None if key is None else key.decode(): json.loads(value)
            for key, value in last.items()
            if value is not None
        }
