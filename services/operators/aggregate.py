"""Aggregate: one value for many records of a key and, where asked for, of a window.

A record without key is dropped before stream time moves; so is one without value where there are
no windows or sliding ones. Every window that can still change gets the record, the others refuse
it; a record that no window takes is late. Each update leaves at once as a windowed result (see
`contracts/window.py`), with the value that it replaces beside it. Rules C1 to C4.

State
    0x00                stream time (8)
    0x00 0x01, 0x01 …   what the kind of windows writes: time_windows, sessions, sliding_windows
"""

from __future__ import annotations

from typing import Any

from contracts.decision import Decision, Reason, Verdict
from contracts.errors import RecordUndecodable
from contracts.policies import AggregatePolicy, Session, Sliding, Unlimited
from contracts.record import NO_TIME_MS, Record
from contracts.window import WindowBounds, window_header, windowed_key
from services.operators.functions import Function
from services.operators.operator import Aside, Batch, Counts, Step, View
from services.operators.readable import read_batch, set_aside_dead
from services.operators.rows import pack_time, unpack_time
from services.operators.session_windows import SessionWindows
from services.operators.sliding_windows import SlidingWindows
from services.operators.time_windows import OneWindow, TimeWindows
from services.operators.windows import Update, Windows

_HEADER_KEY = b"\x00"
_WINDOWS_CACHED_MAX = 10_000


class Aggregate:
    """The operator over one partition."""

    def __init__(
        self, policy: AggregatePolicy, view: View, function: Function, *, explain: bool = False
    ) -> None:
        """Go on where an earlier instance over the same view saved."""
        self.name = policy.name or policy.kind
        self.counts = Counts(0)
        self._policy = policy
        self._view = view
        self._function = function
        self._explain = explain
        self._windows = windows_of(policy, view, function)
        self._needs_value = policy.window is None or isinstance(policy.window, Sliding)
        self._headers: dict[WindowBounds, tuple[str, bytes]] = {}
        header = view.get_many([_HEADER_KEY])[0]
        self._time_ms = NO_TIME_MS if header is None else unpack_time(header)

    def process(self, batch: Batch) -> Step:
        """Put every record into its windows."""
        step = Step(Batch([], [], []))
        read = self._function.read
        records, causes, found = read_batch(batch, read, self.name, step, self.counts)
        self._windows.recall(records, self._time_ms)
        for record, cause, content in zip(records, causes, found, strict=True):
            reason = self._refusal(record)
            if reason is not None:
                self._drop(step, record, cause, reason)
                continue
            self._time_ms = max(self._time_ms, record[2])
            try:
                self._take(step, record, cause, content)
            except RecordUndecodable as problem:
                dead = Aside(cause, self.name, record, Reason.UNDECODABLE, str(problem))
                set_aside_dead(step, self.counts, dead)
        self._windows.save(self._time_ms)
        return step

    def _refusal(self, record: Record) -> Reason | None:
        """Why a record has no part in anything."""
        key, value, timestamp_ms, _, _, _, _ = record
        if key is None:
            return Reason.NULL_KEY
        if value is None and self._needs_value:
            return Reason.NULL_VALUE
        if timestamp_ms < 0 and self._policy.window is not None:
            return Reason.NEGATIVE_TIMESTAMP
        return None

    def _take(self, step: Step, record: Record, cause: int, content: Any) -> None:
        updates, refused = self._windows.take(record, content, self._time_ms)
        self.counts.windows_refused += refused
        if not updates:
            self._late(step, record, cause, refused)
            return
        self.counts.merged += 1
        self.counts.emitted += len(updates)
        for update in updates:
            step.forwarded.append(self._result(record, update), cause, update.old)
        if self._explain:
            self._decide(step, record, Verdict.MERGED, Reason.AGGREGATED, cause)

    def _result(self, record: Record, update: Update) -> Record:
        """What leaves for an update: the cause's headers and origin, the window's key and time."""
        key, _, _, headers, topic, partition, offset = record
        window, _, new, timestamp_ms = update
        assert key is not None
        if window is not None:
            header = self._headers.get(window)
            if header is None:
                if len(self._headers) >= _WINDOWS_CACHED_MAX:
                    self._headers.clear()
                header = self._headers[window] = window_header(window)
            key = windowed_key(key, window)
            headers = (*headers, header)
        return Record(key, new, timestamp_ms, headers, topic, partition, offset)

    def _late(self, step: Step, record: Record, cause: int, refused: int) -> None:
        if refused == 0:
            self._drop(step, record, cause, Reason.NO_WINDOW)
        elif self._policy.late == "drop":
            self._drop(step, record, cause, Reason.PAST_GRACE)
        else:
            self.counts.late += 1
            detail = f"{refused} windows were closed at stream time {self._time_ms}"
            step.late.append(Aside(cause, self.name, record, Reason.PAST_GRACE, detail))
            if self._explain:
                self._decide(step, record, Verdict.LATE, Reason.PAST_GRACE, cause)

    def _drop(self, step: Step, record: Record, cause: int, reason: Reason) -> None:
        self.counts.drop(reason)
        if self._explain:
            self._decide(step, record, Verdict.DROPPED, reason, cause)

    def save(self) -> None:
        """Put stream time; results were put with their batch."""
        self._view.put_many({_HEADER_KEY: pack_time(self._time_ms)})

    def _decide(
        self, step: Step, record: Record, verdict: Verdict, reason: Reason, cause: int
    ) -> None:
        evidence = (("stream_time_ms", self._time_ms),)
        step.decisions.append(Decision(self.name, record, verdict, reason, evidence, cause))


def windows_of(policy: AggregatePolicy, view: View, function: Function) -> Windows:
    """The windows that a policy asks for, over a view."""
    window, retention_ms = policy.window, policy.retention_ms
    if window is None or isinstance(window, Unlimited):
        return OneWindow(window, view, function)
    if isinstance(window, Session):
        return SessionWindows(window, retention_ms, view, function)
    if isinstance(window, Sliding):
        return SlidingWindows(window, retention_ms, view, function)
    return TimeWindows(window, retention_ms, view, function)
