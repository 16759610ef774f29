"""Tumbling, hopping and unlimited windows, and no windows at all.

State
    0x01 start (8) key    the latest timestamp in it (8, signed) | aggregate

Rows of one window stand together, and windows stand in order of time. So windows that are over
leave as one stretch, and one look-up finds a result. Without windows, and for unlimited ones, there
is one start, and no row is ever over. Rules C1 and C4.
"""

from __future__ import annotations

from operator import itemgetter
from struct import Struct
from struct import error as unpack_error
from typing import Any

from headrace.contracts.errors import RecordUndecodable, StateCorrupt
from headrace.contracts.policies import Hopping, Tumbling, Unlimited
from headrace.contracts.record import Record
from headrace.contracts.window import UNLIMITED_END_MS, WindowBounds
from headrace.services.operators.functions import Function
from headrace.services.operators.operator import Batch, View
from headrace.services.operators.readable import only
from headrace.services.operators.rows import make_record, pack_time
from headrace.services.operators.sweep import Sweep
from headrace.services.operators.windows.frame import (
    Arrivals,
    Frame,
    Grown,
    Outside,
    Taken,
    WindowsOneByOne,
    append_result,
    frame_of,
)

_SPACE = b"\x01"
_BEHIND_SPACE = b"\x02"
_key_of, _time_of = itemgetter(0), itemgetter(2)
_topic_of, _partition_of, _offset_of = map(itemgetter, (4, 5, 6))
_timestamp = Struct(">q")
_pack_timestamp, _unpack_timestamp = _timestamp.pack, _timestamp.unpack_from
_TIMESTAMP_BYTES = 8
_CUT_SHORT = "a window's row is cut short"
_FRAMES_MAX = 1_000


class Frames:
    """The frames of the windows in use; the same few come again and again."""

    def __init__(self, view: View, kind: str, size_ms: int) -> None:
        """Make frames of windows of one kind and size, over the rows of one view."""
        self._space = view.prefix + _SPACE
        self._kind = kind
        self._size_ms = size_ms
        self._frames: dict[int, Frame] = {}
        self.get = self._frames.get

    def at(self, start_ms: int) -> Frame:
        """Return the frame of the window that starts then."""
        frame = self.get(start_ms)
        if frame is None:
            if len(self._frames) >= _FRAMES_MAX:
                self._frames.clear()
            window = WindowBounds(self._kind, start_ms, start_ms + self._size_ms)
            frame = frame_of(window, self._space + pack_time(start_ms))
            self._frames[start_ms] = frame
        return frame

    def row_keys(self, records: list[Record]) -> list[bytes]:
        """Return the row keys of records, if windows do not overlap."""
        size_ms = self._size_ms
        found, times_ms = list(map(_key_of, records)), list(map(_time_of, records))
        first_ms, last_ms = min(times_ms, default=-1), max(times_ms, default=-1)
        if first_ms >= 0 and first_ms // size_ms == last_ms // size_ms and None not in found:
            prefix = self.at(first_ms - first_ms % size_ms)[0]
            return [prefix + (key or b"") for key in found]
        keys = []
        start_ms, end_ms, prefix = 0, 0, b""
        for record in records:
            key, timestamp_ms = record[0], record[2]
            if key is None or timestamp_ms < 0:
                continue
            if not start_ms <= timestamp_ms < end_ms:
                start_ms = timestamp_ms - timestamp_ms % size_ms
                end_ms = start_ms + size_ms
                prefix = self.at(start_ms)[0]
            keys.append(prefix + key)
        return keys


class TimeWindows(WindowsOneByOne):
    """Windows `[start, start + size)` that begin every `advance`, aligned to zero."""

    def __init__(
        self,
        policy: Tumbling | Hopping,
        retention_ms: int | None,
        view: View,
        function: Function,
    ) -> None:
        """Keep rows for as long as late records can change them, or longer if asked."""
        self._view = view
        self._space = view.prefix + _SPACE
        self._function = function
        self._size_ms = policy.size_ms
        self._advance_ms = policy.advance_ms if isinstance(policy, Hopping) else policy.size_ms
        self._open_ms = policy.size_ms + policy.grace_ms
        self._keep_ms = max(retention_ms or 0, self._open_ms)
        self._sweep = Sweep(view, self._space)
        self._frames = Frames(view, policy.kind, policy.size_ms)
        self._row_keys: list[bytes] = []
        """The row keys of the records that were recalled, where each has one."""
        self._rows: dict[bytes, bytes | None] = {}
        self._changed: dict[bytes, bytes | None] = {}

    def _closed_ms(self, time_ms: int) -> int:
        """Return a time: windows that start then, or before, are closed."""
        return time_ms - self._open_ms

    def _starts(self, timestamp_ms: int) -> range:
        """Return the starts of the windows that contain a timestamp, the earliest first."""
        advance_ms = self._advance_ms
        first_ms = max(0, timestamp_ms - self._size_ms + advance_ms) // advance_ms * advance_ms
        return range(first_ms, timestamp_ms + 1, advance_ms)

    def recall(self, records: list[Record], time_ms: int) -> None:
        """Look up every open window of every record."""
        closed_ms = self._closed_ms(time_ms)
        wanted = list(
            {
                self._frames.at(start_ms)[0] + record[0]
                for record in records
                if record[0] is not None
                for start_ms in self._starts(record[2])
                if start_ms > closed_ms
            }
        )
        self._rows = dict(zip(wanted, self._view.get_many(wanted), strict=True))

    def take_one(self, record: Record, content: Any, time_ms: int, cause: int, into: Batch) -> int:
        """Update every open window that the record falls into, the earliest first."""
        closed_ms = self._closed_ms(time_ms)
        starts_ms = self._starts(record[2])
        frames = [self._frames.at(start_ms) for start_ms in starts_ms if start_ms > closed_ms]
        grown = [self._grow(frame, record, content) for frame in frames]
        for frame, one in zip(frames, grown, strict=True):
            self._put(frame, record, append_result(into, cause, record, frame, one))
        return len(starts_ms) - len(frames)

    def _grow(self, frame: Frame, record: Record, content: Any) -> Grown:
        row = self._rows[frame[0] + (record[0] or b"")]
        return grow(self._function, row, content, record[2])

    def _put(self, frame: Frame, cause: Record, result: Record) -> None:
        row_key = frame[0] + (cause[0] or b"")
        row = result_row(result[1], result[2])
        self._rows[row_key] = self._changed[row_key] = row

    def save(self, time_ms: int) -> None:
        """Put the changes of the batch; drop the windows that no record may need any more."""
        self._view.put_many(self._changed)
        self._sweep.count(len(self._changed))
        self._changed = {}
        self._sweep.up_to(self._space + pack_time(time_ms - self._keep_ms))


class TumblingWindows(TimeWindows):
    """Windows that do not overlap, so a record is in one alone; worth a shorter way."""

    def recall(self, records: list[Record], time_ms: int) -> None:
        """Look up the window of every record; of closed ones too, which are few."""
        del time_ms
        wanted = self._frames.row_keys(records)
        self._row_keys = wanted
        self._rows = dict(zip(wanted, self._view.get_many(wanted), strict=True))

    def take(self, arrivals: Arrivals, time_ms: int, into: Batch) -> Taken:
        """Update the window that each record falls into, if it is open."""
        keys = self._row_keys
        if len(keys) != len(arrivals.records):
            keys = self._frames.row_keys(arrivals.records)
        if self._is_in_one_window(arrivals.records, time_ms):
            taken = Taken(time_ms)
            self._take_together(arrivals, keys, taken, into)
            return taken
        return self._take_each(arrivals, keys, time_ms, into)

    def _is_in_one_window(self, records: list[Record], time_ms: int) -> bool:
        """Return whether all records fall into one window, which is open until the last of them."""
        times_ms = list(map(_time_of, records))
        last_ms = max(times_ms, default=-1)
        start_ms = last_ms - last_ms % self._size_ms
        return min(times_ms, default=-1) >= start_ms >= 0 and time_ms < start_ms + self._open_ms

    def _take_together(
        self, arrivals: Arrivals, keys: list[bytes], taken: Taken, into: Batch
    ) -> None:
        """Update one open window; all that its results share is said once, by columns."""
        rows, records, causes = self._rows, arrivals.records, arrivals.causes
        _, initial, add, _ = self._function
        olds: list[bytes | None] = []
        news: list[bytes | None] = []
        times_ms: list[int] = []
        columns = zip(keys, map(_time_of, records), arrivals.contents, strict=True)
        for index, (row_key, time_ms, content) in enumerate(columns):
            row, latest_ms = rows[row_key], time_ms
            try:
                if row is None:
                    old = initial()
                else:
                    old = row[_TIMESTAMP_BYTES:]
                    (latest_ms,) = _unpack_timestamp(row)
                    if latest_ms < time_ms:
                        latest_ms = time_ms
                new = add(old, content)
            except RecordUndecodable as problem:
                taken.dead.append((index, problem))
                continue
            except unpack_error as problem:
                raise StateCorrupt(_CUT_SHORT) from problem
            rows[row_key] = None if new is None else _pack_timestamp(latest_ms) + new
            olds.append(old)
            news.append(new)
            times_ms.append(latest_ms)
        if taken.dead:
            dead = {index for index, _ in taken.dead}
            is_good = [index not in dead for index in range(len(records))]
            keys, records, causes = only(is_good, (keys, records, causes))
        taken.time_ms = max([taken.time_ms, *map(_time_of, records)])
        self._changed.update((key, rows[key]) for key in keys)
        start_ms = arrivals.records[0][2] // self._size_ms * self._size_ms
        _, suffix, more = self._frames.at(start_ms)
        results = zip(
            [(record[0] or b"") + suffix for record in records],
            news,
            times_ms,
            [headers + more if (headers := record[3]) else more for record in records],
            map(_topic_of, records),
            map(_partition_of, records),
            map(_offset_of, records),
            strict=True,
        )
        into.extend(list(map(make_record, results)), causes, olds)

    def _take_each(self, arrivals: Arrivals, keys: list[bytes], time_ms: int, into: Batch) -> Taken:
        """Update the window of each record, if it is open when the record comes."""
        taken = Taken(time_ms)
        rows, changed, size_ms = self._rows, self._changed, self._size_ms
        _, initial, add, _ = self._function
        pack, unpack = _pack_timestamp, _unpack_timestamp
        results: list[Record] = []
        causes: list[int] = []
        olds: list[bytes | None] = []
        start_ms = end_ms = open_until_ms = 0
        key: Any  # never null here
        _, suffix, window_headers = self._frames.at(0)
        columns = enumerate(zip(keys, *arrivals, strict=True))
        for index, (row_key, record, cause, content) in columns:
            key, _, timestamp_ms, headers, topic, partition, offset = record
            reached_ms = time_ms
            if timestamp_ms > reached_ms:
                reached_ms = timestamp_ms
            if not start_ms <= timestamp_ms < end_ms:
                start_ms = timestamp_ms - timestamp_ms % size_ms
                end_ms, open_until_ms = start_ms + size_ms, start_ms + self._open_ms
                _, suffix, window_headers = self._frames.at(start_ms)
            if reached_ms >= open_until_ms:
                time_ms = reached_ms
                taken.outside.append(Outside(index, 1, time_ms))
                continue
            row = rows[row_key]
            try:
                if row is None:
                    old = initial()
                else:
                    old = row[_TIMESTAMP_BYTES:]
                    (latest_ms,) = unpack(row)
                    if latest_ms > timestamp_ms:
                        timestamp_ms = latest_ms
                new = add(old, content)
            except RecordUndecodable as problem:
                taken.dead.append((index, problem))
                continue
            except unpack_error as problem:
                raise StateCorrupt(_CUT_SHORT) from problem
            time_ms = reached_ms
            row = None if new is None else pack(timestamp_ms) + new
            rows[row_key] = changed[row_key] = row
            headers = headers + window_headers if headers else window_headers
            results.append(
                make_record((key + suffix, new, timestamp_ms, headers, topic, partition, offset))
            )
            causes.append(cause)
            olds.append(old)
        into.extend(results, causes, olds)
        taken.time_ms, taken.refused = time_ms, len(taken.outside)
        return taken


class OneWindow(WindowsOneByOne):
    """One result a key, for ever: no windows, or unlimited ones."""

    def __init__(self, policy: Unlimited | None, view: View, function: Function) -> None:
        """Begin with the policy of the unlimited window; None where there are no windows."""
        self._view = view
        self._function = function
        self._start_ms = 0 if policy is None else policy.start_ms
        prefix = view.prefix + _SPACE + pack_time(self._start_ms)
        self._frame = Frame(prefix, b"", ())
        if policy is not None:
            window = WindowBounds(policy.kind, policy.start_ms, UNLIMITED_END_MS)
            self._frame = frame_of(window, prefix)
        self._is_windowed = policy is not None
        self._rows: dict[bytes, bytes | None] = {}
        self._changed: dict[bytes, bytes | None] = {}

    def recall(self, records: list[Record], time_ms: int) -> None:
        """Look up every key."""
        del time_ms
        prefix = self._frame.row_prefix
        wanted = [prefix + record[0] for record in records if record[0] is not None]
        self._rows = dict(zip(wanted, self._view.get_many(wanted), strict=True))

    def take_one(self, record: Record, content: Any, time_ms: int, cause: int, into: Batch) -> int:
        """Update the result of the key, unless the record is from before the window."""
        del time_ms
        key = record[0]
        assert key is not None
        if self._is_windowed and record[2] < self._start_ms:
            return 0
        row_key = self._frame.row_prefix + key
        grown = grow(self._function, self._rows[row_key], content, record[2])
        self._rows[row_key] = self._changed[row_key] = result_row(grown.new, grown.timestamp_ms)
        append_result(into, cause, record, self._frame, grown)
        return 0

    def save(self, time_ms: int) -> None:
        """Put the changes of the batch."""
        del time_ms
        self._view.put_many(self._changed)
        self._changed = {}


def grow(function: Function, row: bytes | None, content: Any, timestamp_ms: int) -> Grown:
    """Return the result of a window after one more record."""
    if row is None:
        old = function.initial()
    else:
        old = row[_TIMESTAMP_BYTES:]
        timestamp_ms = max(timestamp_ms, _latest_ms(row))
    return Grown(old, function.add(old, content), timestamp_ms)


def _latest_ms(row: bytes) -> int:
    """Return the latest timestamp in a window, from its row."""
    try:
        latest_ms: int = _unpack_timestamp(row)[0]
    except unpack_error as problem:
        raise StateCorrupt(_CUT_SHORT) from problem
    return latest_ms


def result_row(value: bytes | None, timestamp_ms: int) -> bytes | None:
    """Return the row of a result; none where there is no result."""
    return None if value is None else _pack_timestamp(timestamp_ms) + value


def place_of(view: View, start_ms: int, key: bytes) -> bytes:
    """Return the row key of a key's result in the window that begins then."""
    return view.prefix + _SPACE + pack_time(start_ms) + key


def has_rows(view: View) -> bool:
    """Return whether windows over this view have put any row."""
    rows = view.range(view.prefix + _SPACE, view.prefix + _BEHIND_SPACE)
    return any(True for _ in rows)
