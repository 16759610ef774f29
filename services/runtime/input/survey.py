"""How far a source partition was, and how much of it was here, when somebody last looked."""

from __future__ import annotations

from typing import NamedTuple


class Surveyed(NamedTuple):
    """A source partition, as the broker and the consumer knew it a moment ago."""

    fetched: int | None
    """The consumer's position."""
    end: int | None
    """Behind the last record, those of open transactions included."""
    readable_end: int | None
    """Before the first record of an open transaction; else the end, or what it was just before."""
    at_s: float
    """When the broker was asked, by a clock that only goes forward."""
    brought: int = 0
    """The offset behind the last record that the consumer has handed on by then."""
    at_ms: int = 0
    """When the broker was asked, by the clock on the wall."""

    def is_all_decided(self, position: int) -> bool:
        """Whether the partition had nothing that is not decided, by a task at a position.

        The consumer's position alone does not tell: it is ahead of what is on its way to the task.
        """
        fetched, end = self.fetched, self.end
        is_fetched = fetched is not None and end is not None and fetched >= end
        return is_fetched and position >= self.brought


UNSEEN = Surveyed(None, None, None, 0.0)
