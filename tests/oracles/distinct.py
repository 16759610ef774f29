"""KIP-655's first proposal by brute force: every window or session ever opened, in a list.

The grace may change between two records. Under a longer one, this oracle still knows windows that
the shorter one had closed; the operator may have forgotten them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.contracts.policies import Session, Tumbling
from headrace.contracts.record import NO_TIME_MS, Record
from headrace.contracts.window import WindowBounds
from tests.oracles.expected import Expected, Output, of_each

if TYPE_CHECKING:
    from collections.abc import Sequence


def distinct(
    records: Sequence[Record],
    window: Tumbling | Session,
    graces_ms: Sequence[int] | None = None,
) -> Expected:
    """Forward the first record of each key and window; each record may have its grace."""
    graces_ms = of_each(window.grace_ms if graces_ms is None else graces_ms, len(records))
    if isinstance(window, Tumbling):
        return _distinct_tumbling(records, window, graces_ms)
    return _distinct_session(records, window, graces_ms)


def _distinct_tumbling(
    records: Sequence[Record], window: Tumbling, graces_ms: Sequence[int]
) -> Expected:
    expected = Expected()
    opened: list[tuple[bytes, int]] = []
    time_ms = NO_TIME_MS
    for cause, record in enumerate(records):
        if record.key is None or record.timestamp_ms < 0:
            continue
        time_ms = max(time_ms, record.timestamp_ms)
        start_ms = record.timestamp_ms // window.size_ms * window.size_ms
        end_ms = start_ms + window.size_ms
        if end_ms <= time_ms - graces_ms[cause]:
            expected.late.append(cause)
        elif (record.key, start_ms) not in opened:
            opened.append((record.key, start_ms))
            expected.outputs.append(_first(cause, record, "tumbling", start_ms, end_ms))
    return expected


def _distinct_session(
    records: Sequence[Record], window: Session, graces_ms: Sequence[int]
) -> Expected:
    expected = Expected()
    sessions: list[tuple[bytes, int, int]] = []
    time_ms = NO_TIME_MS
    for cause, record in enumerate(records):
        if record.key is None or record.timestamp_ms < 0:
            continue
        at_ms = record.timestamp_ms
        time_ms = max(time_ms, at_ms)
        closed_before_ms = time_ms - window.gap_ms - graces_ms[cause]
        near = [
            (key, start_ms, end_ms)
            for key, start_ms, end_ms in sessions
            if key == record.key
            and start_ms - window.gap_ms <= at_ms <= end_ms + window.gap_ms
            and end_ms >= closed_before_ms
        ]
        start_ms = min([at_ms, *(start for _, start, _ in near)])
        end_ms = max([at_ms, *(end for _, _, end in near)])
        if end_ms < closed_before_ms:
            expected.late.append(cause)
            continue
        sessions = [session for session in sessions if session not in near]
        sessions.append((record.key, start_ms, end_ms))
        if not near:
            expected.outputs.append(_first(cause, record, "session", at_ms, at_ms))
    return expected


def _first(cause: int, record: Record, kind: str, start_ms: int, end_ms: int) -> Output:
    """The plain record with its window beside it; how both look on the wire is not ours to say."""
    bounds = WindowBounds(kind, start_ms, end_ms)
    return Output(
        cause, record.key, record.value, record.timestamp_ms, record.headers, None, bounds
    )
