"""How long an instance may send on its group's last word, without a fence at the brokers.

The group gives partitions to others once it has not heard of their owner for a session timeout. It
counts from the last heartbeat that it received, and an answered heartbeat was received after it was
sent. So nobody else has a partition before that moment has come, and until then less a margin the
owner may send:

    sent .......... received ............................ may send until | margin | given away
    |<------------------------ session timeout ------------------------------------>|

The margin is for what was sent at the last moment and is still on its way. The group also puts out
a member that has not joined a rebalance in time, though its heartbeats are answered. A rebalance
that is going on began after the last heartbeat that was answered without a word of it. So the same
holds for that heartbeat and the rebalance timeout.

Neither bound needs a clock that shows the time of anybody else.
"""

from __future__ import annotations

NEVER_S = float("-inf")
_MARGIN = 0.25
"""Of the session timeout."""


class Term:
    """One member's; times are seconds of a clock that only goes forward."""

    def __init__(self, session_timeout_s: float, rebalance_timeout_s: float) -> None:
        """The member may not send before the group has said a word."""
        margin_s = _MARGIN * session_timeout_s
        self._after_answer_s = session_timeout_s - margin_s
        self._after_rest_s = rebalance_timeout_s - margin_s
        self._answered_s = self._rested_s = NEVER_S
        self.ends_at_s = NEVER_S
        """The moment from which on nothing may be sent."""

    def heard(self, sent_at_s: float, *, is_rebalancing: bool) -> None:
        """The group has answered what was sent at a time; whether a rebalance may be going on."""
        self._answered_s = max(self._answered_s, sent_at_s)
        if not is_rebalancing:
            self._rested_s = max(self._rested_s, sent_at_s)
        self.ends_at_s = min(
            self._answered_s + self._after_answer_s, self._rested_s + self._after_rest_s
        )

    def lost(self) -> None:
        """The group does not count this member any more, or will not in a moment."""
        self._answered_s = self._rested_s = self.ends_at_s = NEVER_S
