"""Distinct: forward the first record of each key and window (KIP-655's first proposal).

Windows are those of the aggregates: tumbling ones, or sessions that grow with every record, also
with one that is dropped. What leaves is the record as it came, keyed by its window (see
`contracts/window.py`); a session's window is what it is at that record. A record without key is
dropped before stream time moves, one for a closed window is late. Rules K10 to K12.

State
    0x00                   stream time (8)
    0x01 start (8) key     0x01, for a tumbling window that has its record
    0x01 …                 for sessions what `sessions` writes, without aggregates
"""

from __future__ import annotations

from typing import Protocol

from contracts.decision import Decision, Reason, Verdict
from contracts.policies import DistinctPolicy, Session as SessionPolicy, Tumbling
from contracts.record import NO_TIME_MS, Record
from contracts.window import WindowBounds, window_header, windowed_key
from services.operators.operator import Aside, Batch, Counts, Step, View
from services.operators.rows import pack_time, unpack_time
from services.operators.sessions import Session, Sessions

_HEADER_KEY = b"\x00"
_SPACE = b"\x01"
_SEEN = b"\x01"


class Distinct:
    """The operator over one partition."""

    def __init__(self, policy: DistinctPolicy, view: View, *, explain: bool = False) -> None:
        """Go on where an earlier instance over the same view saved."""
        self.name = policy.name or policy.kind
        self.counts = Counts(0)
        self._policy = policy
        self._view = view
        self._explain = explain
        window = policy.window
        self._windows: _Windows = (
            _Sessions(window, view) if isinstance(window, SessionPolicy) else _Tumbling(window, view)
        )
        header = view.get_many([_HEADER_KEY])[0]
        self._time_ms = NO_TIME_MS if header is None else unpack_time(header)

    def process(self, batch: Batch) -> Step:
        """Forward what is first in its window."""
        step = Step(Batch([], []))
        self.counts.taken += len(batch.records)
        self._windows.recall(batch.records, self._time_ms)
        for record, cause in zip(batch.records, batch.causes, strict=True):
            key, _, timestamp_ms, _, _, _, _ = record
            if key is None:
                self._drop(step, record, cause, Reason.NULL_KEY)
                continue
            if timestamp_ms < 0:
                self._drop(step, record, cause, Reason.NEGATIVE_TIMESTAMP)
                continue
            self._time_ms = max(self._time_ms, timestamp_ms)
            found = self._windows.enter(key, timestamp_ms, self._time_ms)
            if isinstance(found, WindowBounds):
                self._forward(step, record, cause, found)
            elif found is Reason.PAST_GRACE and self._policy.late == "topic":
                self._late(step, record, cause)
            else:
                self._drop(step, record, cause, found)
        self._windows.save(self._time_ms)
        return step

    def _forward(self, step: Step, record: Record, cause: int, window: WindowBounds) -> None:
        key, _, _, headers, _, _, _ = record
        assert key is not None
        result = record._replace(
            key=windowed_key(key, window), headers=(*headers, window_header(window))
        )
        step.forwarded.append(result, cause, None)
        self.counts.forwarded += 1
        if self._explain:
            self._decide(step, record, Verdict.FORWARDED, Reason.FIRST, cause)

    def _late(self, step: Step, record: Record, cause: int) -> None:
        self.counts.late += 1
        detail = f"its window was closed at stream time {self._time_ms}"
        step.late.append(Aside(cause, self.name, record, Reason.PAST_GRACE, detail))
        if self._explain:
            self._decide(step, record, Verdict.LATE, Reason.PAST_GRACE, cause)

    def _drop(self, step: Step, record: Record, cause: int, reason: Reason) -> None:
        self.counts.drop(reason)
        if self._explain:
            self._decide(step, record, Verdict.DROPPED, reason, cause)

    def save(self) -> None:
        """Put stream time; windows were put with their batch."""
        self._view.put_many({_HEADER_KEY: pack_time(self._time_ms)})

    def _decide(
        self, step: Step, record: Record, verdict: Verdict, reason: Reason, cause: int
    ) -> None:
        evidence = (("stream_time_ms", self._time_ms),)
        step.decisions.append(Decision(self.name, record, verdict, reason, evidence, cause))


class _Windows(Protocol):
    """Which windows have their record already."""

    def recall(self, records: list[Record], time_ms: int) -> None:
        """Bring into reach all rows that these records can touch."""

    def enter(self, key: bytes, timestamp_ms: int, time_ms: int) -> WindowBounds | Reason:
        """The window that the record is first in, or why it is in none."""

    def save(self, time_ms: int) -> None:
        """Put what the batch changed, and drop what is over."""


class _Tumbling:
    """Tumbling windows; a row for each that has its record."""

    def __init__(self, policy: Tumbling, view: View) -> None:
        self._view = view
        self._size_ms = policy.size_ms
        self._grace_ms = policy.grace_ms
        self._drop_every_ms = max(policy.size_ms, policy.grace_ms // 4, 1_000)
        self._dropped = 0
        self._seen: dict[bytes, bytes | None] = {}
        self._new: dict[bytes, bytes | None] = {}

    def _row_key(self, key: bytes, timestamp_ms: int) -> bytes:
        return _SPACE + pack_time(timestamp_ms // self._size_ms * self._size_ms) + key

    def recall(self, records: list[Record], time_ms: int) -> None:
        del time_ms
        wanted = list(
            {self._row_key(record[0], record[2]) for record in records if record[0] is not None}
        )
        self._seen = dict(zip(wanted, self._view.get_many(wanted), strict=True))

    def enter(self, key: bytes, timestamp_ms: int, time_ms: int) -> WindowBounds | Reason:
        start_ms = timestamp_ms // self._size_ms * self._size_ms
        end_ms = start_ms + self._size_ms
        if end_ms <= time_ms - self._grace_ms:
            return Reason.PAST_GRACE
        row_key = _SPACE + pack_time(start_ms) + key
        if self._seen[row_key] is not None:
            return Reason.DUPLICATE
        self._seen[row_key] = self._new[row_key] = _SEEN
        return WindowBounds("tumbling", start_ms, end_ms)

    def save(self, time_ms: int) -> None:
        self._view.put_many(self._new)
        self._new = {}
        drop = (time_ms - self._grace_ms - self._size_ms) // self._drop_every_ms
        if drop > self._dropped:
            self._view.drop(_SPACE, _SPACE + pack_time(drop * self._drop_every_ms))
            self._dropped = drop


class _Sessions:
    """Sessions without aggregates."""

    def __init__(self, policy: SessionPolicy, view: View) -> None:
        self._sessions = Sessions(policy, None, view)
        self.recall = self._sessions.recall
        self.save = self._sessions.save

    def enter(self, key: bytes, timestamp_ms: int, time_ms: int) -> WindowBounds | Reason:
        near = self._sessions.near(key, timestamp_ms, time_ms)
        start_ms = min([timestamp_ms, *(session.start_ms for session in near)])
        end_ms = max([timestamp_ms, *(session.end_ms for session in near)])
        if self._sessions.is_closed(end_ms, time_ms):
            return Reason.PAST_GRACE
        self._sessions.replace(key, near, Session(end_ms, start_ms, None))
        if near:
            return Reason.DUPLICATE
        return WindowBounds("session", timestamp_ms, timestamp_ms)
