"""What became of a record, and why: the words of counters, of the decisions topic and of `explain`.

At every operator each record gets exactly one final verdict or is held. So at any moment

    taken = forwarded + dropped + merged + late + dead + held

What an aggregate emits is counted apart (`emitted`): it is new, nobody brought it in.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from headrace.contracts.record import Record


class Verdict(StrEnum):
    """What became of a record at one operator."""

    FORWARDED = "forwarded"
    """It left for the next operator as itself."""
    DROPPED = "dropped"
    """It ends here; the reason says why."""
    MERGED = "merged"
    """It lives on in an aggregate, or a later update of its key took its place."""
    LATE = "late"
    """It left for the late topic."""
    DEAD = "dead"
    """It left for the dead-letter topic."""
    HELD = "held"
    """It waits here; its final verdict is still to come."""


class Reason(StrEnum):
    """Why a record got its verdict."""

    FIRST = "first"
    """No duplicate of it is known."""
    DUPLICATE = "duplicate"
    """A record with the same id, within the interval or window, came before."""
    REPLAY = "replay"
    """It is the very record that was saved: the same offset, read again after a crash."""
    NULL_ID = "null-id"
    """It has no id, so nothing can be its duplicate."""
    NULL_KEY = "null-key"
    NULL_VALUE = "null-value"
    PAST_INTERVAL = "past-interval"
    """Older than the deduplication interval, and no duplicate is known."""
    PAST_GRACE = "past-grace"
    """Older than stream time less grace."""
    WITHIN_GRACE = "within-grace"
    """Earlier records may still come."""
    GRACE_OVER = "grace-over"
    """No earlier record can come in time any more."""
    NO_GRACE = "no-grace"
    """Grace is zero: nothing is ever waited for."""
    IDLE = "idle"
    """The source was silent for as long as the policy allows."""
    UPDATED = "updated"
    """A later update of the same key took its place in the buffer, or in the table."""
    WAITING = "waiting"
    """The time limit is not reached, or the window is not closed."""
    TIME_LIMIT = "time-limit"
    WINDOW_CLOSED = "window-closed"
    BUFFER_FULL = "buffer-full"
    EMPTY_WINDOW = "empty-window"
    """The final result of its window is a tombstone, which says nothing."""
    AGGREGATED = "aggregated"
    FILTERED = "filtered"
    SAMPLED_OUT = "sampled-out"
    """Its key is none of those that the sample keeps."""
    KEPT = "kept"
    """The filter, or the sample, lets it pass."""
    UNDECODABLE = "undecodable"
    FAILED = "failed"
    """The operator, or a function of the user's in it, failed on this record."""
    TOO_LARGE = "too-large"
    """A topic that it should go to does not take so much at once."""
    FUTURE_TIMESTAMP = "future-timestamp"
    """Further ahead of the clock than the source allows."""
    NEGATIVE_TIMESTAMP = "negative-timestamp"
    NO_WINDOW = "no-window"
    """It says nowhere which window it belongs to."""


class Decision(NamedTuple):
    """One verdict with its evidence, as `explain` shows it."""

    operator: str
    record: Record
    verdict: Verdict
    reason: Reason
    evidence: tuple[tuple[str, int | str], ...]
    """What was compared, by name: `stream_time_ms`, `grace_ms`, `first_offset`."""
    cause: int
    """Index, in the batch, of the record that caused this verdict."""
