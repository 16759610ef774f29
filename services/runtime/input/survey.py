"""How far a source partition was, and how much of it was here, when somebody last looked."""

from __future__ import annotations

from typing import NamedTuple


class Surveyed(NamedTuple):
    """A source partition, as the broker and the consumer knew it a moment ago."""

    fetched: int | None
    """The consumer's position."""
    end: int | None
    readable_end: int | None
    at_s: float
    """When the broker was asked, by a clock that only goes forward."""
    brought: int = 0
    """The offset behind the last record that the consumer has handed on by then."""


UNSEEN = Surveyed(None, None, None, 0.0)
