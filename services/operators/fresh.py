"""Records that came since the last save, until their turn: those that come and go are quick.

Each batch is one stretch, sorted by turns (`turns`), so that a record costs its share of a sort and
of a slice. No record here has a row or a place. `take_all` hands those that are left to the buffer
that writes rows.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter

from headrace.contracts.record import Record
from headrace.services.operators.turns import Arrived, time_of

_STRETCHES_MAX = 32
"""More of them are made one, since each release looks into all."""
_turn_of = itemgetter(0)


class Fresh:
    """The records of some batches, each batch in the order of turns."""

    def __init__(self) -> None:
        """Begin without records."""
        self._stretches: list[list[Arrived]] = []
        self._arrivals = 0
        self.first_of_batch = 0
        """The number of the first arrival of the last batch; earlier ones are less."""
        self.count = 0

    def add(self, turns: list[int], records: list[Record]) -> int:
        """Take the records of a batch, in the order in which they came; return the last turn."""
        self.first_of_batch = self._arrivals
        self._arrivals += len(records)
        arrivals = range(self.first_of_batch, self._arrivals)
        stretch = sorted(zip(turns, records, arrivals, strict=True), key=_turn_of)
        last = stretch[-1][0]
        self._stretches.append(stretch)
        self.count += len(stretch)
        if len(self._stretches) > _STRETCHES_MAX:
            self._stretches = [self.take_all()]
            self.count = len(self._stretches[0])
        return last

    @property
    def first_ms(self) -> int | None:
        """Return the time of the first turn; None without records."""
        if not self.count:
            return None
        return time_of(min(stretch[0][0] for stretch in self._stretches))

    def release_through(self, turn: int) -> list[Arrived]:
        """Release all records up to and with a turn, in order."""
        released: list[Arrived] = []
        left: list[list[Arrived]] = []
        pieces = end = 0
        for stretch in self._stretches:
            end = bisect_right(stretch, turn, key=_turn_of)
            if end:
                released += stretch[:end]
                pieces += 1
                del stretch[:end]
            if stretch:
                left.append(stretch)
        self._stretches = left
        self.count -= len(released)
        if pieces > 1:
            released.sort(key=_turn_of)
        return released

    def take_all(self) -> list[Arrived]:
        """Release all records, in order."""
        arrived = [one for stretch in self._stretches for one in stretch]
        arrived.sort(key=_turn_of)
        self._stretches, self.count = [], 0
        return arrived
