"""Session windows under an aggregate: records that are near each other share one result.

A record joins every session near it: their results are merged in order and withdrawn (a tombstone
each), then the joined session's result follows. Rule C2.
"""

from __future__ import annotations

from typing import Any

from contracts.policies import Session as SessionPolicy
from contracts.record import Record
from contracts.window import WindowBounds
from services.operators.functions import Function
from services.operators.operator import View
from services.operators.sessions import Session, Sessions
from services.operators.windows import Taken, Update


class SessionWindows:
    """Sessions with an aggregate each."""

    def __init__(
        self, policy: SessionPolicy, retention_ms: int | None, view: View, function: Function
    ) -> None:
        """Sessions as the policy says, their results by `function`."""
        self._function = function
        self._sessions = Sessions(policy, retention_ms, view)
        self.recall = self._sessions.recall
        self.save = self._sessions.save

    def take(self, record: Record, read: Any, time_ms: int) -> Taken:
        """Join the record and the sessions near it."""
        key, _, timestamp_ms, _, _, _, _ = record
        assert key is not None
        near = self._sessions.near(key, timestamp_ms, time_ms)
        start_ms = min([timestamp_ms, *(session.start_ms for session in near)])
        end_ms = max([timestamp_ms, *(session.end_ms for session in near)])
        if self._sessions.is_closed(end_ms, time_ms):
            return Taken([], 1)
        aggregate = self._function.initial()
        for session in near:
            aggregate = self._function.merge(aggregate, session.aggregate)
        aggregate = self._function.add(aggregate, read)
        self._sessions.replace(key, near, Session(end_ms, start_ms, aggregate))
        updates = []
        if (start_ms, end_ms) != (timestamp_ms, timestamp_ms):
            updates = [
                Update(_bounds(old.start_ms, old.end_ms), old.aggregate, None, old.end_ms)
                for old in near
            ]
        updates.append(Update(_bounds(start_ms, end_ms), None, aggregate, end_ms))
        return Taken(updates, 0)


def _bounds(start_ms: int, end_ms: int) -> WindowBounds:
    return WindowBounds("session", start_ms, end_ms)
