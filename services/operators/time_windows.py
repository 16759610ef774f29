"""Tumbling, hopping and unlimited windows, and no windows at all.

State
    0x01 start (8) key    timestamp (8, signed) | aggregate

Rows of one window stand together and windows stand in order of time, so those that are over leave
as one stretch, and a result is found by one look-up. Without windows, and for unlimited ones,
there is one start and nothing is ever over. Rules C1 and C4.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from contracts.policies import Hopping, Tumbling, Unlimited
from contracts.record import NO_TIME_MS, Record
from contracts.window import UNLIMITED_END_MS, WindowBounds
from services.operators.functions import Function
from services.operators.operator import View
from services.operators.rows import pack_time
from services.operators.windows import Taken, Update

_SPACE = b"\x01"
_timestamp = Struct(">q")
_DROP_EVERY_MS_MIN = 1_000


class TimeWindows:
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
        self._function = function
        self._kind = policy.kind
        self._size_ms = policy.size_ms
        self._advance_ms = policy.advance_ms if isinstance(policy, Hopping) else policy.size_ms
        self._grace_ms = policy.grace_ms
        self._keep_ms = max(retention_ms or 0, policy.size_ms + policy.grace_ms)
        self._drop_every_ms = max(policy.size_ms, self._keep_ms // 4, _DROP_EVERY_MS_MIN)
        self._dropped = 0
        self._rows: dict[bytes, bytes | None] = {}
        self._changed: dict[bytes, bytes | None] = {}

    def _starts(self, timestamp_ms: int) -> range:
        first = max(0, timestamp_ms - self._size_ms + self._advance_ms)
        return range(first // self._advance_ms * self._advance_ms, timestamp_ms + 1, self._advance_ms)

    def recall(self, records: list[Record], time_ms: int) -> None:
        """Look up every open window of every record."""
        closed_ms = time_ms - self._grace_ms - self._size_ms
        wanted = list(
            {
                _SPACE + pack_time(start_ms) + record[0]
                for record in records
                if record[0] is not None
                for start_ms in self._starts(record[2])
                if start_ms > closed_ms
            }
        )
        self._rows = dict(zip(wanted, self._view.get_many(wanted), strict=True))

    def take(self, record: Record, read: Any, time_ms: int) -> Taken:
        """Update every open window that the record falls into, the earliest first."""
        key, _, timestamp_ms, _, _, _, _ = record
        assert key is not None
        updates = []
        changed: dict[bytes, bytes | None] = {}
        refused = 0
        open_after_ms = time_ms - self._grace_ms - self._size_ms
        for start_ms in self._starts(timestamp_ms):
            if start_ms <= open_after_ms:
                refused += 1
                continue
            row_key = _SPACE + pack_time(start_ms) + key
            window = WindowBounds(self._kind, start_ms, start_ms + self._size_ms)
            update = grow(self._function, window, self._rows[row_key], read, timestamp_ms)
            updates.append(update)
            changed[row_key] = result_row(update)
        self._rows |= changed
        self._changed |= changed
        return Taken(updates, refused)

    def save(self, time_ms: int) -> None:
        """Put what the batch changed; drop the windows that nobody may ask for any more."""
        self._view.put_many(self._changed)
        self._changed = {}
        drop = (time_ms - self._keep_ms) // self._drop_every_ms
        if drop > self._dropped:
            self._view.drop(_SPACE, _SPACE + pack_time(drop * self._drop_every_ms))
            self._dropped = drop


class OneWindow:
    """One result a key, for ever: no windows, or unlimited ones."""

    def __init__(self, policy: Unlimited | None, view: View, function: Function) -> None:
        """`policy` is None where there are no windows."""
        self._view = view
        self._function = function
        self._start_ms = NO_TIME_MS if policy is None else policy.start_ms
        self._window = (
            None if policy is None else WindowBounds(policy.kind, policy.start_ms, UNLIMITED_END_MS)
        )
        self._prefix = _SPACE + pack_time(self._start_ms)
        self._rows: dict[bytes, bytes | None] = {}
        self._changed: dict[bytes, bytes | None] = {}

    def recall(self, records: list[Record], time_ms: int) -> None:
        """Look up every key."""
        del time_ms
        prefix = self._prefix
        wanted = list({prefix + record[0] for record in records if record[0] is not None})
        self._rows = dict(zip(wanted, self._view.get_many(wanted), strict=True))

    def take(self, record: Record, read: Any, time_ms: int) -> Taken:
        """Update the result of the key, unless the record is from before the window."""
        del time_ms
        key, _, timestamp_ms, _, _, _, _ = record
        assert key is not None
        if self._window is not None and timestamp_ms < self._start_ms:
            return Taken([], 0)
        row_key = self._prefix + key
        update = grow(self._function, self._window, self._rows[row_key], read, timestamp_ms)
        self._rows[row_key] = self._changed[row_key] = result_row(update)
        return Taken([update], 0)

    def save(self, time_ms: int) -> None:
        """Put what the batch changed."""
        del time_ms
        self._view.put_many(self._changed)
        self._changed = {}


def grow(
    function: Function,
    window: WindowBounds | None,
    row: bytes | None,
    read: Any,
    timestamp_ms: int,
) -> Update:
    """The result of a window after one more record."""
    if row is None:
        old = function.initial()
    else:
        old = row[_timestamp.size :]
        timestamp_ms = max(timestamp_ms, _timestamp.unpack_from(row)[0])
    return Update(window, old, function.add(old, read), timestamp_ms)


def result_row(update: Update) -> bytes | None:
    """The row of a result; none where there is no result."""
    return None if update.new is None else _timestamp.pack(update.timestamp_ms) + update.new
