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

from contracts.decision import Reason, Verdict
from contracts.errors import RecordUndecodable
from contracts.policies import AggregatePolicy, Session, Sliding, Tumbling, Unlimited
from contracts.record import Record
from services.operators.functions import Function
from services.operators.operator import Aside, Batch, Step, View
from services.operators.readable import read_batch, set_aside_dead
from services.operators.session_windows import SessionWindows
from services.operators.sliding_windows import SlidingWindows
from services.operators.time_windows import OneWindow, TimeWindows, TumblingWindows
from services.operators.timed import Timed
from services.operators.windows import Windows


class Aggregate(Timed):
    """The operator over one partition."""

    def __init__(
        self, policy: AggregatePolicy, view: View, function: Function, *, explain: bool = False
    ) -> None:
        """Go on where an earlier instance over the same view saved."""
        super().__init__(policy.name or policy.kind, view, explain=explain)
        self._policy = policy
        self._function = function
        self._windows = windows_of(policy, view, function)
        self._needs_value = policy.window is None or isinstance(policy.window, Sliding)

    def process(self, batch: Batch) -> Step:
        """Put every record into its windows."""
        forwarded = Batch([], [], [])
        step = Step(forwarded)
        records, causes, contents = self._read(batch, step)
        windows, time_ms = self._windows, self._time_ms
        windows.recall(records, time_ms)
        merged = 0
        for record, cause, content in zip(records, causes, contents, strict=True):
            if record[0] is None or record[2] < 0 or record[1] is None:
                reason = self._refusal(record)
                if reason is not None:
                    self._drop(step, record, cause, reason)
                    continue
            if record[2] > time_ms:
                time_ms = self._time_ms = record[2]
            emitted = len(forwarded.causes)
            try:
                refused = windows.take(record, content, time_ms, cause, forwarded)
            except RecordUndecodable as problem:
                dead = Aside(cause, self.name, record, Reason.UNDECODABLE, str(problem))
                set_aside_dead(step, self.counts, dead)
                continue
            if refused:
                self.counts.windows_refused += refused
            if len(forwarded.causes) == emitted:
                self._late(step, record, cause, refused)
                continue
            merged += 1
            if self._explain:
                self._decide(step, record, Verdict.MERGED, Reason.AGGREGATED, cause)
        windows.save(time_ms)
        self.counts.merged += merged
        self.counts.emitted += len(forwarded.causes)
        return step

    def _read(self, batch: Batch, step: Step) -> tuple[list[Record], list[int], list[Any]]:
        """What the function wants of each record that can be read."""
        if self._function.read is None:
            self.counts.taken += len(batch.records)
            return batch.records, batch.causes, batch.records
        return read_batch(batch, self._function.read, self.name, step, self.counts)

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

    def _late(self, step: Step, record: Record, cause: int, refused: int) -> None:
        if refused == 0:
            self._drop(step, record, cause, Reason.NO_WINDOW)
        elif self._policy.late == "drop":
            self._drop(step, record, cause, Reason.PAST_GRACE)
        else:
            detail = f"{refused} windows were closed at stream time {self._time_ms}"
            self._send_late(step, record, cause, detail)


def windows_of(policy: AggregatePolicy, view: View, function: Function) -> Windows:
    """The windows that a policy asks for, over a view."""
    window, retention_ms = policy.window, policy.retention_ms
    if window is None or isinstance(window, Unlimited):
        return OneWindow(window, view, function)
    if isinstance(window, Session):
        return SessionWindows(window, retention_ms, view, function)
    if isinstance(window, Sliding):
        return SlidingWindows(window, retention_ms, view, function)
    if isinstance(window, Tumbling):
        return TumblingWindows(window, retention_ms, view, function)
    return TimeWindows(window, retention_ms, view, function)
