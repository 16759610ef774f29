"""Sliding windows `[end - difference, end]`: one ends at each record, one begins right behind it.

A record falls into every window of its key that contains it. It also makes the window that ends
with it, the one that begins behind the record before it, and the one that begins behind itself,
each only if no other window holds the same records. Records earlier than the difference share one
window from zero, since no window begins before. Rule C3.

State
    0x00 0x01                 the latest start of any window (8)
    0x01 segment (8) key      the key's windows that start in the segment, in order of their starts:
                              start (8, signed) | timestamp (8, signed) | length (4), -1 for none
                              | aggregate

A segment is as long as two windows, so a record looks at two or three rows at most, and windows
that are over leave as whole segments.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Any, NamedTuple

from headrace.contracts.policies import Sliding
from headrace.contracts.record import NO_TIME_MS, Record
from headrace.contracts.window import WindowBounds
from headrace.services.operators.functions import Aggregated, Function
from headrace.services.operators.operator import Batch, View
from headrace.services.operators.rows import RowReader, pack_time, unpack_time
from headrace.services.operators.sweep import Sweep
from headrace.services.operators.windows.frame import (
    Grown,
    WindowsOneByOne,
    append_result,
    frame_of,
)

_LATEST_KEY = b"\x00\x01"
_SPACE = b"\x01"
_window = Struct(">qqi")
_SEGMENT_MS_MIN = 1_000


class Result(NamedTuple):
    """The result of one window and the latest timestamp in it."""

    aggregate: Aggregated
    timestamp_ms: int


Place = tuple[int, bytes]
"""A segment and a key: the place of one row."""


class SlidingWindows(WindowsOneByOne):
    """Sliding windows over one partition, a batch at a time."""

    def __init__(
        self, policy: Sliding, retention_ms: int | None, view: View, function: Function
    ) -> None:
        """Keep windows for as long as they can change, or longer if asked."""
        self._view = view
        self._space = view.prefix + _SPACE
        self._latest_key = view.prefix + _LATEST_KEY
        self._function = function
        self._difference_ms = policy.difference_ms
        self._grace_ms = policy.grace_ms
        self._reach_ms = 2 * policy.difference_ms + policy.grace_ms
        self._keep_ms = max(retention_ms or 0, self._reach_ms)
        self._segment_ms = max(2 * policy.difference_ms + 2, _SEGMENT_MS_MIN)
        latest = view.get_many([self._latest_key])[0]
        self._latest_start_ms = NO_TIME_MS if latest is None else unpack_time(latest)
        self._sweep = Sweep(view, self._space)
        self._rows: dict[Place, dict[int, Result]] = {}
        self._changed: set[Place] = set()

    def recall(self, records: list[Record], time_ms: int) -> None:
        """Look up the windows that can begin near these records."""
        del time_ms
        last_stored = self._latest_start_ms // self._segment_ms
        places = list(
            {
                (segment, record[0])
                for record in records
                if record[0] is not None
                for segment in self._segments(record[2])
                if segment <= last_stored
            }
        )
        rows = self._view.get_many([self._row_key(place) for place in places])
        self._rows = {
            place: {} if row is None else dict(decode_windows(row))
            for place, row in zip(places, rows, strict=True)
        }

    def _segments(self, timestamp_ms: int) -> range:
        first_ms = max(0, timestamp_ms - 2 * self._difference_ms)
        return range(first_ms // self._segment_ms, (timestamp_ms + 1) // self._segment_ms + 1)

    def _row_key(self, place: Place) -> bytes:
        segment, key = place
        return self._space + pack_time(segment * self._segment_ms) + key

    def _near(self, key: bytes, timestamp_ms: int) -> list[tuple[int, Result]]:
        """Return windows that begin two differences before to right behind a record, in order."""
        first_ms = max(
            0,
            timestamp_ms - 2 * self._difference_ms,
            self._latest_start_ms - self._reach_ms + 1,
        )
        return sorted(
            (start_ms, result)
            for segment in self._segments(timestamp_ms)
            for start_ms, result in self._rows.get((segment, key), {}).items()
            if first_ms <= start_ms <= timestamp_ms + 1
        )

    def take_one(self, record: Record, content: Any, time_ms: int, cause: int, into: Batch) -> int:
        """Update the windows around the record, and make those that it needs."""
        key, timestamp_ms = record[0], record[2]
        assert key is not None
        if timestamp_ms + self._difference_ms < time_ms - self._grace_ms:
            return 1
        near = self._near(key, timestamp_ms)
        step = _Step(self._function, content, timestamp_ms, self._difference_ms)
        step.closed_before_ms = time_ms - self._grace_ms
        if timestamp_ms < self._difference_ms:
            step.take_early(near)
        else:
            step.take(near)
        for start_ms, old, result in step.results:
            self._put(key, start_ms, result)
            window = WindowBounds("sliding", start_ms, start_ms + self._difference_ms)
            append_result(into, cause, record, frame_of(window), Grown(old, *result))
        return step.refused

    def _put(self, key: bytes, start_ms: int, result: Result) -> None:
        place = (start_ms // self._segment_ms, key)
        self._rows.setdefault(place, {})[start_ms] = result
        self._changed.add(place)
        self._latest_start_ms = max(self._latest_start_ms, start_ms)

    def save(self, time_ms: int) -> None:
        """Put the rows that changed; drop the segments that no record may need any more."""
        del time_ms
        if not self._changed:
            return
        self._view.put_many(
            {self._row_key(place): _encode(self._rows[place]) for place in self._changed}
        )
        self._view.put_many({self._latest_key: pack_time(self._latest_start_ms)})
        self._sweep.count(len(self._changed))
        self._changed = set()
        last = (self._latest_start_ms - self._keep_ms) // self._segment_ms
        self._sweep.up_to(self._space + pack_time(last * self._segment_ms))


class _Step:
    """The changes of one record to the windows around it."""

    def __init__(
        self, function: Function, content: Any, timestamp_ms: int, difference_ms: int
    ) -> None:
        self._function = function
        self._content = content
        self._timestamp_ms = timestamp_ms
        self._difference_ms = difference_ms
        self.closed_before_ms = NO_TIME_MS
        self.results: list[tuple[int, Aggregated, Result]] = []
        """For each window that gets a result: its start, its old result and the new one."""
        self.refused = 0

    def take(self, near: list[tuple[int, Result]]) -> None:
        """Take a record that is no earlier than the difference."""
        timestamp_ms = self._timestamp_ms
        starts = {start_ms for start_ms, _ in near}
        right: Result | None = None
        left: Result | None = None
        previous_ms: int | None = None
        for start_ms, result in reversed(near):
            end_ms = start_ms + self._difference_ms
            if start_ms > timestamp_ms:
                continue
            if end_ms < timestamp_ms:
                left, previous_ms = result, result.timestamp_ms
                break
            self._grow(start_ms, result)
            if end_ms > timestamp_ms:
                right = right or result
            elif result.timestamp_ms == timestamp_ms:
                return
            else:
                previous_ms = result.timestamp_ms
        if previous_ms is not None and self._begins_behind(previous_ms, starts):
            self._grow(previous_ms + 1, None)
        own_start_ms = timestamp_ms - self._difference_ms
        if own_start_ms not in starts:
            holds_previous = previous_ms is not None and own_start_ms <= previous_ms
            aggregate = left.aggregate if left and holds_previous else self._function.initial()
            self._grow(own_start_ms, Result(aggregate, timestamp_ms))
        self._open_right(right, starts)

    def take_early(self, near: list[tuple[int, Result]]) -> None:
        """Take a record too early for a window to end with it; those share the window from zero."""
        timestamp_ms = self._timestamp_ms
        starts = {start_ms for start_ms, _ in near}
        shared: Result | None = None
        right: Result | None = None
        for start_ms, result in near:
            if start_ms == 0:
                shared = result
            elif start_ms <= timestamp_ms:
                right = result
                self._grow(start_ms, result)
        if right is None and shared is not None:
            right = shared
        self._open_right(right, starts)
        if shared is not None and shared.timestamp_ms < timestamp_ms:
            previous_ms = shared.timestamp_ms
            if previous_ms + 1 not in starts:
                self._grow(previous_ms + 1, None)
        self._grow(0, shared)

    def _begins_behind(self, previous_ms: int, starts: set[int]) -> bool:
        """Return whether the window right behind the previous record is new and has this one."""
        behind_ms = previous_ms + 1
        return behind_ms not in starts and behind_ms + self._difference_ms >= self._timestamp_ms

    def _open_right(self, right: Result | None, starts: set[int]) -> None:
        """Make the window right behind the record, if it is missing and later records fill it."""
        start_ms = self._timestamp_ms + 1
        if start_ms in starts or right is None or right.timestamp_ms <= self._timestamp_ms:
            return
        self.results.append((start_ms, None, right))

    def _grow(self, start_ms: int, result: Result | None) -> None:
        """Add the record to a window, unless it is closed."""
        if start_ms + self._difference_ms < self.closed_before_ms:
            self.refused += 1
            return
        timestamp_ms = self._timestamp_ms
        old = self._function.initial() if result is None else result.aggregate
        if result is not None:
            timestamp_ms = max(timestamp_ms, result.timestamp_ms)
        new = Result(self._function.add(old, self._content), timestamp_ms)
        self.results.append((start_ms, old, new))


def _encode(results: dict[int, Result]) -> bytes:
    parts = []
    for start_ms, (aggregate, timestamp_ms) in sorted(results.items()):
        length = -1 if aggregate is None else len(aggregate)
        parts.append(_window.pack(start_ms, timestamp_ms, length))
        parts.append(aggregate or b"")
    return b"".join(parts)


def decode_windows(row: bytes) -> Iterator[tuple[int, Result]]:
    """Yield the windows in a row: the start and the result of each."""
    reader = RowReader(row, 0)
    while reader.has_more():
        start_ms, timestamp_ms, length = _window.unpack(reader.take(_window.size))
        yield start_ms, Result(reader.take_nullable(length), timestamp_ms)
