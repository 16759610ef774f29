"""The update that suppress holds for each key, as an object and as a row; buffer samples.

update    1 byte    format, 1
          4 bytes   length of prior, -1 for null
          4 bytes   length of old, -1 for null, -2 where it is prior
                    prior, old
                    record, as in `rows`
          The key and the time from which its wait counts are part of the row's key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from headrace.contracts.errors import PipelineInvalid, StateCorrupt
from headrace.contracts.policies import Hopping, Session, Sliding, SuppressPolicy, Tumbling
from headrace.contracts.record import Headers, Record
from headrace.contracts.window import WINDOW_HEADER, parse_window
from headrace.services.operators.operator import View
from headrace.services.operators.rows import (
    RowReader,
    decode_record,
    encode_records,
    require_format,
    unpack_time,
)
from headrace.services.operators.weight import replaced_weight, update_weights

UPDATE_FORMAT = 1
UPDATE_SPACE = b"\x01"
"""The first byte of the keys of updates' rows."""
_BEHIND_SPACE = b"\x02"
_NULL = -1
_AS_PRIOR = -2
_TIME_BYTES = 8
_ENDS_MAX = 10_000
_head = Struct(">Bii")


@dataclass(slots=True)
class Update:
    """The update that is held for one key."""

    place: bytes
    """Its row key; fixed while the key is held."""
    due_ms: int
    """The time in its place."""
    prior: bytes | None
    """The value before the key entered the buffer."""
    old: bytes | None
    """The value before the latest update."""
    record: Record
    weight: int
    has_place_row: bool = False
    """Whether the disk may have a row 0x02 of its key."""


class Arrivals(NamedTuple):
    """Updates on their way into the buffer, by columns."""

    records: list[Record]
    causes: list[int]
    olds: list[bytes | None]
    dues_ms: list[int]
    weights: list[int]


@dataclass(slots=True)
class BufferSamples:
    """Size and count of the buffer, sampled as Kafka Streams does (rule B8)."""

    samples: int = 1
    size_sum: int = 0
    size_max: int = 0
    count_sum: int = 0
    count_max: int = 0

    def take(self, sizes: list[int], counts: list[int]) -> None:
        """Add samples, of a size and a count each."""
        self.samples += len(sizes)
        self.size_sum += sum(sizes)
        self.count_sum += sum(counts)
        size_max, count_max = max(sizes), max(counts)
        self.size_max = max(self.size_max, size_max)
        self.count_max = max(self.count_max, count_max)


class WindowEnds:
    """The ends of windows that headers name; the same few windows come again and again."""

    def __init__(self) -> None:
        """Begin without any known window."""
        self._ends: dict[bytes | None, int | None] = {}

    def of(self, headers: Headers) -> int | None:
        """Return the end of the window that the headers name, None where they name none."""
        value = None
        for name, content in headers:
            if name == WINDOW_HEADER:
                value = content
        if value not in self._ends:
            if len(self._ends) >= _ENDS_MAX:
                self._ends.clear()
            window = parse_window(value)
            self._ends[value] = None if window is None else window.end_ms
        return self._ends[value]


def encode_updates(updates: Iterable[Update]) -> list[bytes]:
    """Encode updates as rows."""
    updates = list(updates)
    prior: bytes | None = None
    old: bytes | None = None
    beginning = _beginning(prior, old)
    rows = []
    for update, row in zip(
        updates, encode_records([update.record for update in updates]), strict=True
    ):
        # Most updates replace nothing, or the value with which every aggregate begins.
        if update.prior is not prior or update.old is not old:
            prior, old = update.prior, update.old
            beginning = _beginning(prior, old)
        rows.append(beginning + row)
    return rows


def _beginning(prior: bytes | None, old: bytes | None) -> bytes:
    """Encode the beginning of a row, before the record."""
    if old is None:
        old_length = _NULL
    elif old == prior:
        old, old_length = b"", _AS_PRIOR
    else:
        old_length = len(old)
    head = _head.pack(UPDATE_FORMAT, _NULL if prior is None else len(prior), old_length)
    return head + (prior or b"") + (old or b"")


def decode_update(time_at: int, place: bytes, row: bytes) -> Update:
    """Decode the update with this row and row key, in which its time begins at `time_at`."""
    require_format(row, UPDATE_FORMAT, "suppressed update")
    reader = RowReader(row, 0)
    _, prior_length, old_length = _head.unpack(reader.take(_head.size))
    prior = reader.take_nullable(prior_length)
    old = prior if old_length == _AS_PRIOR else reader.take_nullable(old_length)
    record = decode_record(place[time_at + _TIME_BYTES :], reader.rest())
    weight = update_weights([record])[0] + replaced_weight(prior, old)
    due_ms = unpack_time(place, time_at)
    return Update(place, due_ms, prior, old, record, weight, has_place_row=True)


def read_updates(view: View) -> Iterator[Update]:
    """Yield every update that a suppress has in its view, in the order in which they leave."""
    space, end = view.prefix + UPDATE_SPACE, view.prefix + _BEHIND_SPACE
    for place, row in view.range(space, end):
        yield decode_update(len(space), place, row)


def checked_time(row: bytes) -> bytes:
    """Return the time of an update that is on disk alone, from its row."""
    if len(row) != _TIME_BYTES:
        message = f"a suppressed update's place has {len(row)} bytes, not {_TIME_BYTES}"
        raise StateCorrupt(message)
    return row


def waiting_time_ms(policy: SuppressPolicy) -> int:
    """Return how far stream time must have passed an update's time.

    A session or sliding window can still change at the very moment at which its grace ends, so
    its result waits one millisecond longer (rule B3).
    """
    window = policy.window
    if policy.until == "time-limit":
        return policy.limit_ms or 0
    if isinstance(window, Session):
        return window.gap_ms + window.grace_ms + 1
    if isinstance(window, Sliding):
        return window.grace_ms + 1
    if isinstance(window, Tumbling | Hopping):
        return window.grace_ms
    message = f"operator `{policy.name}` waits for windows to close, but nothing says which windows"
    raise PipelineInvalid(message)
