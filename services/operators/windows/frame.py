"""The parts that all kinds of windows share on their way to an aggregate.

For each batch: `recall` the rows that it needs, `take` its records, `save` what changed. `take`
changes nothing before all results of a record are known, so a record on which a user's function
raises leaves no trace.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from headrace.contracts.errors import RecordUndecodable
from headrace.contracts.record import Record
from headrace.contracts.window import WindowBounds, window_header, windowed_key
from headrace.services.operators.functions import Aggregated
from headrace.services.operators.operator import Batch
from headrace.services.operators.rows import make_record


class Arrivals(NamedTuple):
    """Records on their way into windows, by columns."""

    records: list[Record]
    causes: list[int]
    contents: list[Any]
    """The values that the function adds."""


class Outside(NamedTuple):
    """A record that no window took."""

    arrival: int
    """The index of the record."""
    refused: int
    """How many closed windows it came too late for."""
    time_ms: int
    """Stream time when it came."""


@dataclass(slots=True)
class Taken:
    """The outcome of arrivals, besides results."""

    time_ms: int
    """Stream time behind them."""
    outside: list[Outside] = field(default_factory=list)
    dead: list[tuple[int, RecordUndecodable]] = field(default_factory=list)
    """Index and problem of each that the function could not add."""
    refused: int = 0
    """Closed windows that a record came too late for, one count a window and record."""


class Windows(Protocol):
    """One kind of windows over one partition."""

    def recall(self, records: list[Record], time_ms: int) -> None:
        """Load all rows that these records can touch."""

    def take(self, arrivals: Arrivals, time_ms: int, into: Batch) -> Taken:
        """Put records into their windows and the results into a batch."""

    def save(self, time_ms: int) -> None:
        """Put the changes of the batch, and drop windows that are over."""


class WindowsOneByOne(ABC):
    """Windows that look at each record by itself."""

    def take(self, arrivals: Arrivals, time_ms: int, into: Batch) -> Taken:
        """Put records into their windows and the results into a batch."""
        taken = Taken(time_ms)
        for index, (record, cause, content) in enumerate(zip(*arrivals, strict=True)):
            time_ms = max(taken.time_ms, record[2])
            emitted = len(into.causes)
            try:
                refused = self.take_one(record, content, time_ms, cause, into)
            except RecordUndecodable as problem:
                taken.dead.append((index, problem))
                continue
            taken.time_ms = time_ms
            taken.refused += refused
            if len(into.causes) == emitted:
                taken.outside.append(Outside(index, refused, taken.time_ms))
        return taken

    @abstractmethod
    def take_one(self, record: Record, content: Any, time_ms: int, cause: int, into: Batch) -> int:
        """Put a record into its windows; return how many closed ones it came too late for.

        `time_ms` counts the record already.
        """


class Grown(NamedTuple):
    """One new result of one window."""

    old: Aggregated
    new: Aggregated
    timestamp_ms: int


class Frame(NamedTuple):
    """The properties that all keys of one window share."""

    row_prefix: bytes
    """The prefix of its row keys, where each of its keys has a row of its own."""
    key_suffix: bytes
    headers: tuple[tuple[str, bytes], ...]


def frame_of(window: WindowBounds, row_prefix: bytes = b"") -> Frame:
    """Return the frame of a window."""
    return Frame(row_prefix, windowed_key(b"", window), (window_header(window),))


def append_result(into: Batch, cause: int, record: Record, frame: Frame, grown: Grown) -> Record:
    """Add a result with the key and time of its window, the headers and origin of its cause."""
    key, _, _, headers, topic, partition, offset = record
    old, new, timestamp_ms = grown
    key = (key or b"") + frame.key_suffix
    headers = headers + frame.headers
    result = make_record((key, new, timestamp_ms, headers, topic, partition, offset))
    into.append(result, cause, old)
    return result
