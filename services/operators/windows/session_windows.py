"""Session windows under an aggregate: records that are near each other share one result.

A record joins every session near it. The results of those sessions are merged in order and
withdrawn (a tombstone each), then the joined session's result follows. Rule C2.
"""

from __future__ import annotations

from typing import Any

from headrace.contracts.policies import Session as SessionPolicy
from headrace.contracts.record import Record
from headrace.contracts.window import WindowBounds
from headrace.services.operators.functions import Function
from headrace.services.operators.operator import Batch, View
from headrace.services.operators.windows.frame import (
    Frame,
    Grown,
    WindowsOneByOne,
    append_result,
    frame_of,
)
from headrace.services.operators.windows.sessions import Session, Sessions, joined


class SessionWindows(WindowsOneByOne):
    """Sessions with an aggregate each."""

    def __init__(
        self, policy: SessionPolicy, retention_ms: int | None, view: View, function: Function
    ) -> None:
        """Make sessions by the policy, and their results by `function`."""
        self._function = function
        self._sessions = Sessions(policy, retention_ms, view)
        self.recall = self._sessions.recall
        self.save = self._sessions.save

    @property
    def has_formers(self) -> bool:
        """Whether sessions are looked for in segments of former lengths as well."""
        return self._sessions.has_formers

    def take_one(self, record: Record, content: Any, time_ms: int, cause: int, into: Batch) -> int:
        """Join the record and the sessions near it."""
        key, timestamp_ms = record[0], record[2]
        assert key is not None
        near = self._sessions.near(key, timestamp_ms, time_ms)
        start_ms, end_ms = joined(near, timestamp_ms)
        if self._sessions.is_closed(end_ms, time_ms):
            return 1
        aggregate = self._function.initial()
        for session in near:
            aggregate = self._function.merge(aggregate, session.aggregate)
        aggregate = self._function.add(aggregate, content)
        self._sessions.replace(key, near, Session(end_ms, start_ms, aggregate))
        if start_ms < end_ms:
            for old in near:
                frame = _frame(old.start_ms, old.end_ms)
                append_result(into, cause, record, frame, Grown(old.aggregate, None, old.end_ms))
        frame = _frame(start_ms, end_ms)
        append_result(into, cause, record, frame, Grown(None, aggregate, end_ms))
        return 0


def _frame(start_ms: int, end_ms: int) -> Frame:
    return frame_of(WindowBounds("session", start_ms, end_ms))
