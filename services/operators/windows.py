"""What all kinds of windows share on their way to an aggregate.

For each batch: `recall` the rows that it needs, `take` each record, `save` what changed. `take`
touches nothing until it knows all updates of a record, so that a record on which a user's
function raises leaves no trace.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from contracts.record import Record
from contracts.window import WindowBounds
from services.operators.functions import Aggregated


class Update(NamedTuple):
    """One new result of one window."""

    window: WindowBounds | None
    """None where there are no windows."""
    old: Aggregated
    new: Aggregated
    timestamp_ms: int


class Taken(NamedTuple):
    """What a record did: updates in order, and how many closed windows it came too late for."""

    updates: list[Update]
    refused: int


class Windows(Protocol):
    """One kind of windows over one partition."""

    def recall(self, records: list[Record], time_ms: int) -> None:
        """Bring into reach all rows that these records can touch."""

    def take(self, record: Record, read: Any, time_ms: int) -> Taken:
        """Put a record into its windows; `time_ms` counts it already."""

    def save(self, time_ms: int) -> None:
        """Put what the batch changed, and drop what is over."""
