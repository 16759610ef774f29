"""Verdicts on records and their reasons: the words of counters, decisions topic and `explain`.

At every operator each record gets exactly one final verdict or is held. So at any moment

    taken = forwarded + dropped + merged + late + dead + held

The results of an aggregate are counted separately (`emitted`): they are new records, and did not
come in.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from headrace.contracts.record import Record


class Verdict(StrEnum):
    """The outcome for a record at one operator."""

    FORWARDED = "forwarded"
    """The record left for the next operator as itself."""
    DROPPED = "dropped"
    """The record ends here; the reason says why."""
    MERGED = "merged"
    """The record lives on in an aggregate, or a later update of its key took its place."""
    LATE = "late"
    """The record left for the late topic."""
    DEAD = "dead"
    """The record left for the dead-letter topic."""
    HELD = "held"
    """The record waits here; its final verdict is still to come."""


class Reason(StrEnum):
    """Why a record got its verdict."""

    FIRST = "first"
    """The operator knows no duplicate of the record."""
    DUPLICATE = "duplicate"
    """A record with the same id, within the interval or window, came before."""
    REPLAY = "replay"
    """The operator saved this very record: the same offset, read again after a crash."""
    NULL_ID = "null-id"
    """The record has no id, so nothing can be its duplicate."""
    NULL_KEY = "null-key"
    NULL_VALUE = "null-value"
    PAST_INTERVAL = "past-interval"
    """The record is older than the deduplication interval, and no duplicate is known."""
    PAST_GRACE = "past-grace"
    """The record is older than stream time less grace."""
    WITHIN_GRACE = "within-grace"
    """Earlier records may still come."""
    GRACE_OVER = "grace-over"
    """No earlier record can come in time any more."""
    NO_GRACE = "no-grace"
    """Grace is zero, so the operator waits for nothing."""
    IDLE = "idle"
    """The source was silent for as long as the policy allows."""
    UPDATED = "updated"
    """A later update of the same key took the record's place in the buffer, or in the table."""
    WAITING = "waiting"
    """The time limit is not reached, or the window is not closed."""
    TIME_LIMIT = "time-limit"
    WINDOW_CLOSED = "window-closed"
    BUFFER_FULL = "buffer-full"
    EMPTY_WINDOW = "empty-window"
    """The final result of the window is a tombstone, so there is nothing to emit."""
    AGGREGATED = "aggregated"
    FILTERED = "filtered"
    SAMPLED_OUT = "sampled-out"
    """The sample does not keep the record's key."""
    KEPT = "kept"
    """The filter, or the sample, lets the record pass."""
    UNDECODABLE = "undecodable"
    FAILED = "failed"
    """The operator, or a user's function in it, failed on this record."""
    TOO_LARGE = "too-large"
    """The record is larger than a topic on its way accepts."""
    FUTURE_TIMESTAMP = "future-timestamp"
    """The record is further ahead of the clock than the source allows."""
    NEGATIVE_TIMESTAMP = "negative-timestamp"
    NO_WINDOW = "no-window"
    """The record does not say which window it belongs to."""


class Decision(NamedTuple):
    """One verdict with its evidence, as `explain` shows it."""

    operator: str
    record: Record
    verdict: Verdict
    reason: Reason
    evidence: tuple[tuple[str, int | str], ...]
    """The values that were compared, by name: `stream_time_ms`, `grace_ms`, `first_offset`."""
    cause: int
    """Index, in the batch, of the record that caused this verdict."""
