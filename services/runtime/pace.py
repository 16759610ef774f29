"""When a task commits, and how much it takes at once: all that is time and amount.

A part of a batch is small enough to let others in, in records and in time: a user's function may
take a second a record, and its transaction must not be over meanwhile.
"""

from __future__ import annotations

import time

from contracts.hops import Hop
from contracts.policies import ReorderPolicy
from services.settings import Settings

RECORDS_MAX = 500
"""How many records operators take at once: enough to be fast, and a core's cache holds them."""
_SHORT_S, _LONG_S = 0.05, 0.2


class Pace:
    """One task's; its clock only goes forward."""

    def __init__(self, settings: Settings, hop: Hop) -> None:
        """Nothing is open."""
        self._settings = settings
        self._interval_s = settings.commit_interval_ms / 1000
        self._opened_at = 0.0
        self._commit_began_at = 0.0
        self._commit_took_s = self._interval_s
        self._records = 1
        self.idle_s = _idle_s(hop)
        self._quiet_since = time.monotonic()

    def records_at_once(self) -> int:
        """How many records to process before anybody else has a turn."""
        return min(self._records, self._settings.commit_records_max)

    def processed(self, records: int, began_at: float) -> None:
        """So many records took from then until now."""
        took_s = time.monotonic() - began_at
        if took_s > _LONG_S:
            self._records = max(1, int(records * _LONG_S / took_s))
        elif took_s < _SHORT_S and records >= self._records:
            self._records = min(2 * self._records, RECORDS_MAX)

    def heard(self) -> None:
        """The source was not silent until now, or what waits for its silence was let go."""
        self._quiet_since = time.monotonic()

    def quiet_until_s(self) -> float | None:
        """When the source has been silent for long enough, None where nothing waits for that."""
        return None if self.idle_s is None else self._quiet_since + self.idle_s

    def opened(self) -> None:
        """The first record since the last commit was taken."""
        self._opened_at = time.monotonic()

    def commit_begins(self) -> None:
        """A commit begins."""
        self._commit_began_at = time.monotonic()

    def committed(self) -> float:
        """It counts; how long it took."""
        self._commit_took_s = time.monotonic() - self._commit_began_at
        return self._commit_took_s

    def is_due(self, *, records: int, sent_bytes: int, records_wait: bool) -> bool:
        """Whether to commit what is open."""
        return (
            records >= self._settings.commit_records_max
            or sent_bytes >= self._settings.commit_bytes_max
            or self.due_in_s(records_wait=records_wait) <= 0
        )

    def due_in_s(self, *, records_wait: bool) -> float:
        """When the interval is over, from the beginning of one commit to that of the next.

        As long as the last commit took, records have their turn: a slow broker is not given commits
        alone. Who is behind lets the whole interval pass between two, since large ones cost less.
        """
        due_at = self._opened_at + self._interval_s
        if not records_wait:
            begun = self._opened_at + min(self._interval_s, self._commit_took_s)
            due_at = max(begun, self._commit_began_at + self._interval_s)
        return max(0.0, due_at - time.monotonic())


def _idle_s(hop: Hop) -> float | None:
    """After how long a silence the first operator lets go, None where none ever does."""
    idles_ms = [
        policy.idle_ms
        for policy in hop.operators
        if isinstance(policy, ReorderPolicy) and policy.idle_ms is not None
    ]
    return min(idles_ms) / 1000 if idles_ms else None
