"""Distinct: forward the first record of each key and window (KIP-655's first proposal).

Windows are those of the aggregates: tumbling ones, or sessions, which grow with every record, also
with one that is dropped. A forwarded record gets its window in its key and in a header (see
`contracts/window.py`); a session's window is the one at that record. A record without key is
dropped before stream time moves. A record for a closed window is late. Rules K10 to K12.

State
    0x00                   stream time (8)
    0x01 start (8) key     0x01, for a tumbling window that has its record
    0x01 …                 for sessions the rows of `sessions`, without aggregates
"""

from __future__ import annotations

from typing import Protocol

from headrace.contracts.decision import Reason, Verdict
from headrace.contracts.policies import DistinctPolicy, Tumbling
from headrace.contracts.policies import Session as SessionPolicy
from headrace.contracts.record import Record
from headrace.contracts.window import WindowBounds, window_header, windowed_key
from headrace.services.operators.operator import Batch, Step, View
from headrace.services.operators.rows import make_record, pack_time
from headrace.services.operators.sweep import Sweep
from headrace.services.operators.timed import Timed
from headrace.services.operators.windows.sessions import Session, Sessions, joined
from headrace.services.operators.windows.time_windows import Frames

_SPACE = b"\x01"
_SEEN = b"\x01"


class Distinct(Timed):
    """The operator over one partition."""

    def __init__(self, policy: DistinctPolicy, view: View, *, explain: bool = False) -> None:
        """Go on where an earlier instance over the same view saved."""
        super().__init__(policy.name or policy.kind, view, explain=explain)
        self._policy = policy
        window = policy.window
        self._windows: _Windows = (
            _Sessions(window, view)
            if isinstance(window, SessionPolicy)
            else _Tumbling(window, view)
        )

    @property
    def has_formers(self) -> bool:
        """Whether sessions are looked for in segments of former lengths as well."""
        return isinstance(self._windows, _Sessions) and self._windows.sessions.has_formers

    def process(self, batch: Batch) -> Step:
        """Forward the first record of each window."""
        forwarded = Batch([], [])
        step = Step(forwarded)
        self.counts.taken += len(batch.records)
        windows = self._windows
        windows.recall(batch.records, self._time_ms)
        duplicates = 0
        for record, cause in zip(batch.records, batch.causes, strict=True):
            key, timestamp_ms = record[0], record[2]
            if key is None or timestamp_ms < 0:
                reason = Reason.NULL_KEY if key is None else Reason.NEGATIVE_TIMESTAMP
                self._drop(step, record, cause, reason)
                continue
            if timestamp_ms > self._time_ms:
                self._time_ms = timestamp_ms
            found = windows.enter(record, self._time_ms)
            if isinstance(found, tuple):
                forwarded.records.append(found)
                forwarded.causes.append(cause)
                if self._explain:
                    self._decide(step, record, Verdict.FORWARDED, Reason.FIRST, cause)
            elif found is Reason.DUPLICATE:
                duplicates += 1
                if self._explain:
                    self._decide(step, record, Verdict.DROPPED, found, cause)
            elif self._policy.late == "topic":
                detail = f"its window was closed at stream time {self._time_ms}"
                self._send_late(step, record, cause, detail)
            else:
                self._drop(step, record, cause, found)
        windows.save(self._time_ms)
        self.counts.forwarded += len(forwarded.records)
        if duplicates:
            self.counts.drop(Reason.DUPLICATE, duplicates)
        return step


class _Windows(Protocol):
    """The windows that have their record already."""

    def recall(self, records: list[Record], time_ms: int) -> None:
        """Load all rows that these records can touch."""

    def enter(self, record: Record, time_ms: int) -> Record | Reason:
        """Return the record keyed by the window that it is first in, or why it is first in none."""

    def save(self, time_ms: int) -> None:
        """Put the changes of the batch, and drop windows that are over."""


class _Tumbling:
    """Tumbling windows; a row for each that has its record."""

    def __init__(self, policy: Tumbling, view: View) -> None:
        self._view = view
        self._space = view.prefix + _SPACE
        self._size_ms = policy.size_ms
        self._open_ms = policy.size_ms + policy.grace_ms
        self._sweep = Sweep(view, self._space)
        self._frames = Frames(view, policy.kind, policy.size_ms)
        self._seen: set[bytes] = set()
        self._new: dict[bytes, bytes | None] = {}

    def recall(self, records: list[Record], time_ms: int) -> None:
        del time_ms
        wanted = self._frames.row_keys(records)
        rows = self._view.get_many(wanted)
        self._seen = {key for key, row in zip(wanted, rows, strict=True) if row is not None}

    def enter(self, record: Record, time_ms: int) -> Record | Reason:
        key, value, timestamp_ms, headers, topic, partition, offset = record
        assert key is not None
        start_ms = timestamp_ms - timestamp_ms % self._size_ms
        if start_ms <= time_ms - self._open_ms:
            return Reason.PAST_GRACE
        prefix, suffix, window_headers = self._frames.get(start_ms) or self._frames.at(start_ms)
        row_key = prefix + key
        if row_key in self._seen:
            return Reason.DUPLICATE
        self._seen.add(row_key)
        self._new[row_key] = _SEEN
        headers = headers + window_headers if headers else window_headers
        return make_record((key + suffix, value, timestamp_ms, headers, topic, partition, offset))

    def save(self, time_ms: int) -> None:
        self._view.put_many(self._new)
        self._sweep.count(len(self._new))
        self._new = {}
        self._sweep.up_to(self._space + pack_time(time_ms - self._open_ms))


class _Sessions:
    """Sessions without aggregates."""

    def __init__(self, policy: SessionPolicy, view: View) -> None:
        self.sessions = Sessions(policy, None, view)
        self.recall = self.sessions.recall
        self.save = self.sessions.save

    def enter(self, record: Record, time_ms: int) -> Record | Reason:
        key, value, timestamp_ms, headers, topic, partition, offset = record
        assert key is not None
        near = self.sessions.near(key, timestamp_ms, time_ms)
        start_ms, end_ms = joined(near, timestamp_ms)
        if self.sessions.is_closed(end_ms, time_ms):
            return Reason.PAST_GRACE
        self.sessions.replace(key, near, Session(end_ms, start_ms, None))
        if near:
            return Reason.DUPLICATE
        window = WindowBounds("session", timestamp_ms, timestamp_ms)
        headers = (*headers, window_header(window))
        key = windowed_key(key, window)
        return make_record((key, value, timestamp_ms, headers, topic, partition, offset))
