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
    keeps_by_time: bool = False
    """Whether a row that comes behind a later one of its key is not its last: a table's with a
    `retention`."""

    @property
    def latest(self) -> dict[str | None, Any]:
        """The last row of each key, read as JSON, without deleted ones: a table by `upsert`."""
        last: dict[bytes | None, Record] = {}
        for row in self.rows:
            before = last.get(row.key, row)
            if not self.keeps_by_time or row.timestamp_ms >= before.timestamp_ms:
                last[row.key] = row
        return {
            None if key is None else key.decode(): json.loads(row.value)
            for key, row in last.items()
            if row.value is not None
        }
