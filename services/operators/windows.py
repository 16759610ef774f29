"""What all kinds of windows share on their way to an aggregate.

For each batch: `recall` the rows that it needs, `take` each record, `save` what changed. `take`
touches nothing until it knows all results of a record, so that a record on which a user's
function raises leaves no trace.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

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


class Grown(NamedTuple):
    """One new result of one window."""

    old: Aggregated
    new: Aggregated
    timestamp_ms: int


class Frame(NamedTuple):
    """What is the same for all keys of one window."""

    row_prefix: bytes
    """What its row keys begin with, where each of its keys has a row of its own."""
    key_suffix: bytes
    headers: tuple[tuple[str, bytes], ...]


def frame_of(window: WindowBounds, row_prefix: bytes = b"") -> Frame:
    """The frame of a window."""
    return Frame(row_prefix, windowed_key(b"", window), (window_header(window),))


def append_result(into: Batch, cause: int, record: Record, frame: Frame, grown: Grown) -> None:
    """A result leaves with the key and time of its window, the headers and origin of its cause."""
    key, _, _, headers, topic, partition, offset = record
    old, new, timestamp_ms = grown
    key = (key or b"") + frame.key_suffix
    headers = headers + frame.headers
    result = make_record((key, new, timestamp_ms, headers, topic, partition, offset))
    into.append(result, cause, old)
