"""Forgets rows whose time is over, a whole stretch at a time.

Rows that are swept stand in order of time, so one range deletion forgets all that are over. A
range deletion costs every later look-up something until the store has compacted it away, and rows
of the past cost disk; so a sweep waits until many rows were put since the last one. Rows that wait
to be swept are over for their operator already: when it sweeps shows in nothing it puts out.
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
        """So many rows were put."""
        self._rows += rows

    def up_to(self, end: bytes) -> None:
        """Forget every row before `end`, if it is worth it."""
        if self._rows >= SWEEP_AFTER_ROWS:
            self._rows = 0
            self._view.drop(self._space, end)
