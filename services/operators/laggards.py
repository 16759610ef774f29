"""The held updates that are earlier than their places.

An update keeps the place of the one that it replaces, though it may be earlier: behind a reorder
that emits early, updates come in any order. So places alone do not say how early the next update
can be that leaves.

Row
    0x03    place (8) | timestamp (8), again and again; both rise

Invariants
    1. An update that leaves no earlier than another and is no later hides it: it alone is kept.
    2. There are at most `_LAGGARDS_MAX`. Of one more, the last two become one, at the later place
       and with the earlier time. So what is said is never too late, and the first goes in its time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from struct import Struct

from headrace.contracts.errors import StateCorrupt
from headrace.services.operators.operator import View
from headrace.services.operators.updates import Update, encode_updates

_KEY = b"\x03"
_LAGGARDS_MAX = 16
_laggard = Struct(">qq")


class Laggards:
    """Those that may be the earliest while they are held."""

    def __init__(self, view: View) -> None:
        """Begin with those that were saved."""
        self._view = view
        self._key = view.prefix + _KEY
        self._places_ms: list[int] = []
        self._times_ms: list[int] = []
        self._is_saved = True
        row = view.get_many([self._key])[0] or b""
        if len(row) % _laggard.size:
            message = f"a row of pairs of 8 bytes has {len(row)}"
            raise StateCorrupt(message)
        for place_ms, time_ms in _laggard.iter_unpack(row):
            self._places_ms.append(place_ms)
            self._times_ms.append(time_ms)

    @property
    def least_ms(self) -> int | None:
        """No saved update is earlier; None where none is earlier than its place."""
        return self._times_ms[0] if self._times_ms else None

    def encode(self, updates: Collection[Update]) -> list[bytes]:
        """Encode updates as rows, and notice those that are earlier than their places."""
        for update in updates:
            if update.record.timestamp_ms < update.due_ms:
                self.add(update.due_ms, update.record.timestamp_ms)
        return encode_updates(updates)

    def add(self, place_ms: int, time_ms: int) -> None:
        """Add an update, by the time of its place and its own, which is earlier."""
        places_ms, times_ms = self._places_ms, self._times_ms
        behind = bisect_left(places_ms, place_ms)
        if behind < len(times_ms) and times_ms[behind] <= time_ms:
            return
        first = bisect_left(times_ms, time_ms, hi=behind)
        behind += places_ms[behind : behind + 1] == [place_ms]
        places_ms[first:behind], times_ms[first:behind] = [place_ms], [time_ms]
        if len(places_ms) > _LAGGARDS_MAX:
            del places_ms[-2], times_ms[-1]
        self._is_saved = False

    def save(self, held_from_ms: int) -> None:
        """Forget those whose places are earlier, which have left, and put the others."""
        left = bisect_left(self._places_ms, held_from_ms)
        if left:
            del self._places_ms[:left], self._times_ms[:left]
            self._is_saved = False
        if not self._is_saved:
            pairs = zip(self._places_ms, self._times_ms, strict=True)
            row = b"".join(_laggard.pack(*pair) for pair in pairs)
            self._view.put_many({self._key: row or None})
            self._is_saved = True
