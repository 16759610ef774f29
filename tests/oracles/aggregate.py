"""Aggregation by brute force: a window is the list of its records, folded anew at every update.

A window whose result is null is forgotten, as a row of a table is by a tombstone; the latest time
of its records goes with it.

The grace may change between two records. Under a longer one, this oracle still knows windows that
the shorter one had closed; the operator may have forgotten them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.contracts.policies import Hopping, Session, Sliding, Tumbling, Unlimited, Window
from headrace.contracts.record import NO_TIME_MS, Record
from headrace.contracts.window import UNLIMITED_END_MS, WindowBounds
from tests.oracles import sliding
from tests.oracles.expected import Expected, Output, of_each

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Function(NamedTuple):
    """An aggregation, as plain callables; `show` makes bytes of an aggregate."""

    initial: Callable[[], Any]
    add: Callable[[Any, Record], Any]
    merge: Callable[[Any, Any], Any]
    show: Callable[[Any], bytes | None]

    def fold(self, records: Sequence[Record]) -> bytes | None:
        """All records, one after the other, on top of the initial value."""
        aggregate = self.initial()
        for record in records:
            aggregate = self.add(aggregate, record)
        return self.show(aggregate)


def aggregate(
    records: Sequence[Record],
    function: Function,
    window: Window | None,
    graces_ms: Sequence[int] | None = None,
) -> Expected:
    """Every update of every window, in order; each record may have its grace."""
    if window is None:
        return _without_window(records, function)
    grace_ms = 0 if isinstance(window, Unlimited) else window.grace_ms
    graces_ms = of_each(grace_ms if graces_ms is None else graces_ms, len(records))
    if isinstance(window, Session):
        return _session(records, function, window, graces_ms)
    if isinstance(window, Sliding):
        return sliding.aggregate(records, function.fold, window, graces_ms)
    return _time_windows(records, function, window, graces_ms)


def _without_window(records: Sequence[Record], function: Function) -> Expected:
    expected = Expected()
    taken: list[Record] = []
    for cause, record in enumerate(records):
        if record.key is not None and record.value is not None:
            before = [seen for seen in taken if seen.key == record.key]
            taken.append(record)
            latest_ms = max(seen.timestamp_ms for seen in [*before, record])
            old, new = function.fold(before), function.fold([*before, record])
            expected.outputs.append(Output(cause, record.key, new, latest_ms, record.headers, old))
            if new is None:
                taken = [seen for seen in taken if seen.key != record.key]
    return expected


def _time_windows(
    records: Sequence[Record],
    function: Function,
    window: Tumbling | Hopping | Unlimited,
    graces_ms: Sequence[int],
) -> Expected:
    expected = Expected()
    taken: list[tuple[bytes, int, Record]] = []
    time_ms = NO_TIME_MS
    for cause, record in enumerate(records):
        if record.key is None or record.timestamp_ms < 0:
            continue
        time_ms = max(time_ms, record.timestamp_ms)
        windows = _windows_of(record.timestamp_ms, window)
        passed_ms = time_ms - graces_ms[cause]
        never_ends = isinstance(window, Unlimited)
        is_open = [never_ends or _end_ms(start, window) > passed_ms for start in windows]
        expected.refused += is_open.count(False)
        if windows and not any(is_open):
            expected.late.append(cause)
        for start_ms in (start for start, is_so in zip(windows, is_open, strict=True) if is_so):
            before = [seen for key, at, seen in taken if (key, at) == (record.key, start_ms)]
            taken.append((record.key, start_ms, record))
            old, new = function.fold(before), function.fold([*before, record])
            latest_ms = max(seen.timestamp_ms for seen in [*before, record])
            bounds = WindowBounds(window.kind, start_ms, _end_ms(start_ms, window))
            expected.outputs.append(
                Output(cause, record.key, new, latest_ms, record.headers, old, bounds)
            )
            if new is None:
                taken = [one for one in taken if one[:2] != (record.key, start_ms)]
    return expected


def _windows_of(timestamp_ms: int, window: Tumbling | Hopping | Unlimited) -> list[int]:
    """Starts of all windows that contain the time; none begins before zero."""
    if isinstance(window, Unlimited):
        return [window.start_ms] if timestamp_ms >= window.start_ms else []
    advance_ms = window.advance_ms if isinstance(window, Hopping) else window.size_ms
    first = max(0, (timestamp_ms - window.size_ms) // advance_ms * advance_ms)
    starts = range(first, timestamp_ms + 1, advance_ms)
    return [start for start in starts if start <= timestamp_ms < start + window.size_ms]


def _end_ms(start_ms: int, window: Tumbling | Hopping | Unlimited) -> int:
    return UNLIMITED_END_MS if isinstance(window, Unlimited) else start_ms + window.size_ms


@dataclass(frozen=True, slots=True)
class _Session:
    key: bytes
    start_ms: int
    end_ms: int
    aggregate: Any


class _Change(NamedTuple):
    old: bytes | None
    new: bytes | None


def _session(
    records: Sequence[Record], function: Function, window: Session, graces_ms: Sequence[int]
) -> Expected:
    expected = Expected()
    sessions: list[_Session] = []
    time_ms = NO_TIME_MS
    for cause, record in enumerate(records):
        if record.key is None or record.timestamp_ms < 0:
            continue
        at_ms = record.timestamp_ms
        time_ms = max(time_ms, at_ms)
        closed_before_ms = time_ms - window.gap_ms - graces_ms[cause]
        near = [
            session
            for session in sessions
            if session.key == record.key
            and session.start_ms - window.gap_ms <= at_ms <= session.end_ms + window.gap_ms
            and session.end_ms >= closed_before_ms
        ]
        near.sort(key=lambda session: (session.end_ms, session.start_ms))
        start_ms = min([at_ms, *(session.start_ms for session in near)])
        end_ms = max([at_ms, *(session.end_ms for session in near)])
        if end_ms < closed_before_ms:
            expected.late.append(cause)
            expected.refused += 1
            continue
        if (start_ms, end_ms) != (at_ms, at_ms):
            for session in near:
                gone = function.show(session.aggregate)
                _emit_session(expected, cause, record, session, _Change(gone, None))
        value = function.initial()
        for session in near:
            value = function.merge(value, session.aggregate)
        merged = _Session(record.key, start_ms, end_ms, function.add(value, record))
        sessions = [session for session in sessions if session not in near]
        sessions.append(merged)
        change = _Change(None, function.show(merged.aggregate))
        _emit_session(expected, cause, record, merged, change)
    return expected


def _emit_session(
    expected: Expected, cause: int, record: Record, session: _Session, change: _Change
) -> None:
    bounds = WindowBounds("session", session.start_ms, session.end_ms)
    expected.outputs.append(
        Output(cause, session.key, change.new, session.end_ms, record.headers, change.old, bounds)
    )
