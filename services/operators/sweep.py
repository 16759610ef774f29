"""Drop rows whose time is over, a whole stretch at a time.

Such rows are in order of time, so one range deletion drops all that are over. A range deletion
slows every later look-up until the store has compacted it away, and rows of the past take disk
space. So a sweep waits until many rows were put since the last one. Rows that wait to be swept are
over for their operator already, so the time of a sweep never shows in its output.
"""

from __future__ import annotations

from headrace.services.operators.operator import View

SWEEP_AFTER_ROWS = 100_000


class Sweep:
    """The past of one operator's rows."""

    def __init__(self, view: View, space: bytes) -> None:
        """Sweep rows that begin with `space`."""
        self._view = view
        self._space = space
        self._rows = 0

    def count(self, rows: int) -> None:
        """Note that so many rows were put."""
        self._rows += rows

    def up_to(self, end: bytes) -> None:
        """Drop every row before `end`, if it is worth it."""
        if self._rows >= SWEEP_AFTER_ROWS:
            self._rows = 0
            self._view.drop(self._space, end)
