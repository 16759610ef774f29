"""What all kinds of windows share on their way to an aggregate.

For each batch: `recall` the rows that it needs, `take` each record, `save` what changed. `take`
touches nothing until it knows all results of a record, so that a record on which a user's
function raises leaves no trace.
"""

from __future__ import annotations

from typing import Any, Protocol

from contracts.record import Record
from contracts.window import WindowBounds, window_header, windowed_key
from services.operators.functions import Aggregated
from services.operators.operator import Batch
from services.operators.rows import make_record


class Windows(Protocol):
    """One kind of windows over one partition."""

    def recall(self, records: list[Record], time_ms: int) -> None:
        """Bring into reach all rows that these records can touch."""

    def take(self, record: Record, content: Any, time_ms: int, cause: int, into: Batch) -> int:
        """Put a record into its windows and the results into a batch.

        `time_ms` counts the record already. Returns how many closed windows it came too late for.
        """

    def save(self, time_ms: int) -> None:
        """Put what the batch changed, and drop what is over."""


def append_result(
    into: Batch,
    cause: int,
    record: Record,
    window: WindowBounds,
    old: Aggregated,
    new: Aggregated,
    timestamp_ms: int,
) -> None:
    """A result leaves with the key and time of its window, the headers and origin of its cause."""
    key, _, _, headers, topic, partition, offset = record
    assert key is not None
    headers = (*headers, window_header(window))
    key = windowed_key(key, window)
    result = make_record((key, new, timestamp_ms, headers, topic, partition, offset))
    into.append(result, cause, old)
