"""Compare the records that come out with those that were sent, one by one, while they come."""

from __future__ import annotations

from collections import Counter

from headrace.contracts.record import Record
from headrace.contracts.window import plain_key, window_of
from tests.soak.stream import CLEANED, LATE, WINDOW_MS, Made

_NAMED = 5


class Account:
    """An entry for each count and each late record; it is closed by what comes.

    A minute is counted once all of it was sent, so its entry is whole by then.
    """

    def __init__(self) -> None:
        """Open no entry yet."""
        self.sent: Counter[str] = Counter()
        """Records by kind."""
        self.came: Counter[str] = Counter()
        """Records by topic."""
        self._counts: Counter[tuple[bytes, int]] = Counter()
        self._late: set[bytes | None] = set()
        self._wrong: list[str] = []

    def open(self, one: Made) -> None:
        """Note what a record asks for."""
        self.sent[one.kind] += 1
        if one.kind == "late":
            self._late.add(one.record.headers[0][1])
        elif one.kind == "first":
            key = one.record.key
            assert key is not None
            self._counts[key, one.record.timestamp_ms // WINDOW_MS * WINDOW_MS] += 1

    def close(self, topic: str, record: Record) -> None:
        """Take what came out; each entry closes once."""
        self.came[topic] += 1
        if topic == LATE:
            is_right = record.headers[0][1] in self._late
            self._late.discard(record.headers[0][1])
        else:
            is_right = topic == CLEANED and self._is_right(record)
        if not is_right:
            self._wrong.append(f"{topic} has {record.key!r} at {record.timestamp_ms}, which is")

    def _is_right(self, record: Record) -> bool:
        window = window_of(record.headers)
        if window is None or record.key is None or record.value is None:
            return False
        place = plain_key(record.key, window), window.start_ms
        return self._counts.pop(place, None) == int.from_bytes(record.value, "big")

    def problems(self) -> list[str]:
        """Say what is missing, and what came twice or wrong."""
        found = [f"{one} wrong or there twice" for one in self._wrong[:_NAMED]]
        if len(self._wrong) > _NAMED:
            found.append(f"and {len(self._wrong) - _NAMED:,} more")
        if self._counts:
            found.append(f"{len(self._counts):,} counts are missing")
        if self._late:
            found.append(f"{len(self._late):,} late records are missing")
        return found
