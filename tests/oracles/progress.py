"""How far readers may take their inputs to be, recomputed from all that was read and told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Row(NamedTuple):
    """A row of progress: the promise, the last record before it, and the stream time if idle."""

    progress_ms: int
    names: int | None
    idle_ms: int | None


@dataclass
class Place:
    """A partition: the last offset that was read of it, and what was told, in that order."""

    read: int = -1
    told: list[Row] = field(default_factory=list)

    def progress_ms(self) -> int | None:
        """The highest promise whose records were all read."""
        counting = [row.progress_ms for row in self.told if _named(row) <= self.read]
        return max(counting, default=None)

    def idle_ms(self) -> int | None:
        """Its stream time, if its last word is that it sleeps, and it has not been read since."""
        last = self.told[-1] if self.told else Row(0, None, None)
        return last.idle_ms if _named(last) == self.read else None


def passed(places: Sequence[Place]) -> int | None:
    """The time that all have passed: the minimum of those awake, the end of all if none is."""
    told = [place.progress_ms() for place in places]
    if None in told:
        return None
    awake = [place.progress_ms() for place in places if place.idle_ms() is None]
    known = [each for each in awake if each is not None]
    if known:
        return min(known)
    ends = [each + 1 for each in (place.idle_ms() for place in places) if each is not None]
    return max(*ends, *(each for each in told if each is not None))


def _named(row: Row) -> int:
    return -1 if row.names is None else row.names
