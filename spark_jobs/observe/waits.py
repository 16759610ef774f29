"""Find the partition that a query waits for, since when, and how many records wait."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from headrace.contracts.record import NO_TIME_MS
from headrace.spark_jobs.write.transaction import Note

SAY_AFTER_S = 60.0
"""How long the same partition may hold records back before the log warns; it warns again each time
the wait has doubled."""


class Lowest(NamedTuple):
    """The partition with the lowest progress."""

    topic: str
    partition: str
    progress_ms: int | None
    """None if no progress of it was ever read."""

    @classmethod
    def of(cls, place: str, progress_ms: int | None) -> Lowest:
        """Split a place as operators name it; an input without a pipeline has no partition."""
        topic, _, partition = place.rpartition(":")
        return cls(topic, partition, progress_ms) if topic else cls(place, "", progress_ms)

    def __str__(self) -> str:
        """Return its name, and how far it is."""
        name = f"partition {self.partition} of `{self.topic}`" if self.partition else self.topic
        if self.progress_ms is None:
            return f"{name}, of which no progress was seen yet"
        if self.progress_ms <= NO_TIME_MS:
            return f"{name}, which has nothing yet"
        return f"{name}, which is at {time_text(self.progress_ms)}"


def time_text(time_ms: int) -> str:
    """Format a time for people, as a number where no calendar has it."""
    try:
        return datetime.fromtimestamp(time_ms / 1_000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"


def lowest_of(known: list[tuple[str, int | None]]) -> Lowest | None:
    """Return the lowest of several tasks' places; a place without any progress comes first."""
    if not known:
        return None
    return Lowest.of(*min(known, key=lambda one: (one[1] is not None, one[1] or 0, one[0])))


class Waits:
    """Tracks the partition that each task of a query waits for."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._tasks: dict[int, tuple[str | None, int | None]] = {}
        self._held: dict[int, int] = {}
        self.lowest: Lowest | None = None
        """None if no task waits."""
        self.since_s = clock()
        """Since when this partition is the lowest and its progress is the same."""
        self._say_at_s = self.since_s + SAY_AFTER_S

    @property
    def held(self) -> int:
        """How many records wait."""
        return sum(self._held.values())

    def take(self, note: Note) -> None:
        """Take the note of one task behind a micro-batch."""
        self._tasks[note.task] = note.reason, note.number
        self._held[note.task] = note.added
        known = [(place, number) for place, number in self._tasks.values() if place is not None]
        lowest = lowest_of(known)
        if lowest != self.lowest:
            self.lowest = lowest
            self.since_s = self._clock()
            self._say_at_s = self.since_s + SAY_AFTER_S

    def sentence(self) -> str | None:
        """Return the sentence to log now, None if there is none."""
        now_s = self._clock()
        if self.lowest is None or not self.held or now_s < self._say_at_s:
            return None
        waited_s = now_s - self.since_s
        self._say_at_s = now_s + waited_s
        return (
            f"{self.held} records wait, {waited_s:.0f} s by now, for {self.lowest}; see whether its"
            " sidecar runs and how far it is behind its source, and whether an older version of it"
            " runs, which does not say that a partition is idle"
        )
