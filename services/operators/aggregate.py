"""Aggregate: one value for many records of a key and, if there is a `window`, of a window.

A record without key is dropped before stream time moves. So is a record without value, where there
are no windows or sliding ones. Every window that can still change takes the record, the others
refuse it. A record that no window takes is late. Each update leaves at once as a windowed result
(see `contracts/window.py`), with the value that it replaces beside it. Rules C1 to C4.

State
    0x00                stream time (8)
    0x00 0x01, 0x01 …   rows of the kind of windows: time_windows, sessions, sliding_windows
"""

from __future__ import annotations

from operator import itemgetter

from headrace.contracts.decision import Reason, Verdict
from headrace.contracts.policies import (
    AggregatePolicy,
    Hopping,
    Session,
    Sliding,
    Tumbling,
    Unlimited,
)
from headrace.contracts.record import Record
from headrace.services.operators.functions import Function
from headrace.services.operators.operator import Batch, Step, View
from headrace.services.operators.readable import dead_aside, only, read_batch, set_aside_dead
from headrace.services.operators.suppress import Suppress
from headrace.services.operators.timed import Timed
from headrace.services.operators.windows.frame import Arrivals, Windows
from headrace.services.operators.windows.held_windows import HeldTumblingWindows, HeldWindows
from headrace.services.operators.windows.session_windows import SessionWindows
from headrace.services.operators.windows.sliding_windows import SlidingWindows
from headrace.services.operators.windows.time_windows import OneWindow, TimeWindows, TumblingWindows

_key_of = itemgetter(0)
_value_of = itemgetter(1)
_time_of = itemgetter(2)


class Aggregate(Timed):
    """The operator over one partition."""

    def __init__(
        self,
        policy: AggregatePolicy,
        view: View,
        function: Function,
        *,
        held_by: Suppress | None = None,
        explain: bool = False,
    ) -> None:
        """Go on where an earlier instance over the same view saved.

        If a suppress holds the results, they are stored there alone: see `held_windows`.
        """
        super().__init__(policy.name or policy.kind, view, explain=explain)
        self._policy = policy
        self._function = function
        self._windows = windows_of(policy, view, function, held_by)
        self._needs_value = policy.window is None or isinstance(policy.window, Sliding)

    @property
    def looks_behind(self) -> bool:
        """Whether its results are stored in the operator behind it alone."""
        return isinstance(self._windows, HeldWindows)

    @property
    def has_formers(self) -> bool:
        """Whether sessions are looked for in segments of former lengths as well."""
        return isinstance(self._windows, SessionWindows) and self._windows.has_formers

    def process(self, batch: Batch) -> Step:
        """Put every record into its windows."""
        step = Step(Batch([], [], []))
        arrivals = self._read(batch, step)
        self._windows.recall(arrivals.records, self._time_ms)
        if self._explain:
            # Each decision shows stream time as it was then.
            for record, cause, content in zip(*arrivals, strict=True):
                self._take(step, Arrivals([record], [cause], [content]))
        else:
            self._take(step, arrivals)
        self._windows.save(self._time_ms)
        self.counts.emitted += len(step.forwarded.causes)
        return step

    def _read(self, batch: Batch, step: Step) -> Arrivals:
        """Read what the function needs off each record; unreadable records are dead."""
        if self._function.read is None:
            self.counts.taken += len(batch.records)
            return Arrivals(batch.records, batch.causes, batch.records)
        return Arrivals(*read_batch(batch, self._function.read, self.name, step, self.counts))

    def _take(self, step: Step, arrivals: Arrivals) -> None:
        """Put records into their windows, and count and explain the verdicts."""
        arrivals = self._without_refused(step, arrivals)
        records, causes, _ = arrivals
        taken = self._windows.take(arrivals, self._time_ms, step.forwarded)
        self._time_ms = taken.time_ms
        self.counts.windows_refused += taken.refused
        for index, problem in taken.dead:
            aside = dead_aside(causes[index], self.name, records[index], problem)
            set_aside_dead(step, self.counts, aside)
        for index, refused, time_ms in taken.outside:
            self._late(step, records[index], causes[index], refused, time_ms)
        merged = len(records) - len(taken.dead) - len(taken.outside)
        self.counts.merged += merged
        if self._explain and merged:
            self._decide(step, records[0], Verdict.MERGED, Reason.AGGREGATED, causes[0])

    def _without_refused(self, step: Step, arrivals: Arrivals) -> Arrivals:
        """Drop records that no window may see; they do not even move stream time."""
        records = arrivals.records
        nulls = None in map(_key_of, records) or None in map(_value_of, records)
        if not nulls and min(map(_time_of, records), default=0) >= 0:
            return arrivals
        reasons = [self._refusal(record) for record in records]
        for reason, record, cause in zip(reasons, records, arrivals.causes, strict=True):
            if reason is not None:
                self._drop(step, record, cause, reason)
        is_good = [reason is None for reason in reasons]
        return Arrivals(*only(is_good, arrivals))

    def _refusal(self, record: Record) -> Reason | None:
        """Return why no window may see a record, None where they may."""
        key, value, timestamp_ms, _, _, _, _ = record
        if key is None:
            return Reason.NULL_KEY
        if value is None and self._needs_value:
            return Reason.NULL_VALUE
        if timestamp_ms < 0 and self._policy.window is not None:
            return Reason.NEGATIVE_TIMESTAMP
        return None

    def _late(self, step: Step, record: Record, cause: int, refused: int, time_ms: int) -> None:
        if refused == 0:
            self._drop(step, record, cause, Reason.NO_WINDOW)
        elif self._policy.late == "drop":
            self._drop(step, record, cause, Reason.PAST_GRACE)
        else:
            detail = f"{refused} windows were closed at stream time {time_ms}"
            self._send_late(step, record, cause, detail)


def windows_of(
    policy: AggregatePolicy, view: View, function: Function, held_by: Suppress | None
) -> Windows:
    """Return the windows of a policy, over a view or over the updates that a suppress holds."""
    window, retention_ms = policy.window, policy.retention_ms
    if held_by is not None:
        if isinstance(window, Tumbling):
            return HeldTumblingWindows(window, view, function, held_by)
        assert isinstance(window, Hopping)
        return HeldWindows(window, view, function, held_by)
    if window is None or isinstance(window, Unlimited):
        return OneWindow(window, view, function)
    if isinstance(window, Session):
        return SessionWindows(window, retention_ms, view, function)
    if isinstance(window, Sliding):
        return SlidingWindows(window, retention_ms, view, function)
    if isinstance(window, Tumbling):
        return TumblingWindows(window, retention_ms, view, function)
    return TimeWindows(window, retention_ms, view, function)
