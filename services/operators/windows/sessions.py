"""Session windows: `[first, last]` of records of a key that are no further apart than the gap.

State
    0x00 0x01               how long a segment is (8)
    0x01 segment (8) key    the key's sessions that end in the segment, in order of their ends:
                            start (8, signed) | end (8, signed) | length (4), -1 for none |
                            aggregate

A segment is a stretch of time a little longer than the gap. If an eighth of the time for which a
session can still change is longer, it is as long as that. A segment's length stays as the pipeline
began; a new gap or grace moves no row. So a record on time touches one or two rows, a row stays
small however many sessions a key has, and sessions that are over leave as whole segments. Rule C2.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from headrace.contracts.policies import Session as SessionPolicy
from headrace.contracts.record import Record
from headrace.services.operators.functions import Aggregated
from headrace.services.operators.operator import View
from headrace.services.operators.rows import RowReader, pack_length_ms, pack_time, unpack_length_ms
from headrace.services.operators.sweep import Sweep

_LENGTH_KEY = b"\x00\x01"
_SPACE = b"\x01"
_session = Struct(">qqi")
_SEGMENT_MS_MIN = 1_000
_SEGMENTS = 8


class Session(NamedTuple):
    """One session of a key; ends first, because sessions are ordered by them."""

    end_ms: int
    start_ms: int
    aggregate: Aggregated


Place = tuple[int, bytes]
"""A segment and a key: the place of one row."""


class Sessions:
    """The sessions of one partition, a batch at a time."""

    def __init__(self, policy: SessionPolicy, retention_ms: int | None, view: View) -> None:
        """Keep sessions for as long as they can change, or longer if asked."""
        self._view = view
        self._space = view.prefix + _SPACE
        self._gap_ms = policy.gap_ms
        self._change_ms = policy.gap_ms + policy.grace_ms
        self._keep_ms = max(retention_ms or 0, self._change_ms)
        self._segment_ms = max(policy.gap_ms + 1, self._change_ms // _SEGMENTS + 1, _SEGMENT_MS_MIN)
        length_key = view.prefix + _LENGTH_KEY
        length = view.get_many([length_key])[0]
        if length is None:
            view.put_many({length_key: pack_length_ms(self._segment_ms)})
        else:
            self._segment_ms = unpack_length_ms(length)
        self._sweep = Sweep(view, self._space)
        self._rows: dict[Place, list[Session]] = {}
        self._changed: set[Place] = set()

    def recall(self, records: list[Record], time_ms: int) -> None:
        """Look up the sessions that these records can touch; none ends after stream time."""
        last = time_ms // self._segment_ms
        places = list(
            {
                (segment, record[0])
                for record in records
                if record[0] is not None
                for segment in range(self._first_segment(record[2], time_ms), last + 1)
            }
        )
        rows = self._view.get_many([self._row_key(place) for place in places])
        self._rows = {
            place: [] if row is None else list(decode_sessions(row))
            for place, row in zip(places, rows, strict=True)
        }

    def _first_segment(self, timestamp_ms: int, time_ms: int) -> int:
        return max(timestamp_ms - self._gap_ms, time_ms - self._change_ms) // self._segment_ms

    def _row_key(self, place: Place) -> bytes:
        segment, key = place
        return self._space + pack_time(segment * self._segment_ms) + key

    def near(self, key: bytes, timestamp_ms: int, time_ms: int) -> list[Session]:
        """Return the sessions that a record joins, the earliest first, without closed ones."""
        found: list[Session] = []
        first_end_ms = max(timestamp_ms - self._gap_ms, time_ms - self._change_ms)
        last_start_ms = timestamp_ms + self._gap_ms
        first = self._first_segment(timestamp_ms, time_ms)
        for segment in range(first, time_ms // self._segment_ms + 1):
            for session in self._rows.get((segment, key), ()):
                # A closed session may lie within an open one that has grown since.
                if session.end_ms < first_end_ms:
                    continue
                if session.start_ms > last_start_ms:
                    return found
                found.append(session)
        return found

    def is_closed(self, end_ms: int, time_ms: int) -> bool:
        """Return whether a session that ends then can change no more."""
        return end_ms < time_ms - self._change_ms

    def replace(self, key: bytes, merged: list[Session], by: Session) -> None:
        """Replace some sessions by one."""
        for session in merged:
            place = (session.end_ms // self._segment_ms, key)
            self._rows[place].remove(session)
            self._changed.add(place)
        place = (by.end_ms // self._segment_ms, key)
        insort(self._rows.setdefault(place, []), by, key=_end_of)
        self._changed.add(place)

    def save(self, time_ms: int) -> None:
        """Put the rows that changed; drop the segments that no record may need any more."""
        self._view.put_many(
            {self._row_key(place): _encode(self._rows[place]) for place in self._changed}
        )
        self._sweep.count(len(self._changed))
        self._changed = set()
        last = (time_ms - self._keep_ms) // self._segment_ms
        self._sweep.up_to(self._space + pack_time(last * self._segment_ms))


def joined(near: list[Session], timestamp_ms: int) -> tuple[int, int]:
    """Return start and end of the session that a record makes of those near it."""
    start_ms = end_ms = timestamp_ms
    for session in near:
        start_ms = min(start_ms, session.start_ms)
        end_ms = max(end_ms, session.end_ms)
    return start_ms, end_ms


def _end_of(session: Session) -> int:
    return session.end_ms


def _encode(sessions: list[Session]) -> bytes | None:
    if not sessions:
        return None
    parts = []
    for end_ms, start_ms, aggregate in sessions:
        length = -1 if aggregate is None else len(aggregate)
        parts.append(_session.pack(start_ms, end_ms, length))
        parts.append(aggregate or b"")
    return b"".join(parts)


def decode_sessions(row: bytes) -> Iterator[Session]:
    """Yield the sessions in a row."""
    reader = RowReader(row, 0)
    while reader.has_more():
        start_ms, end_ms, length = _session.unpack(reader.take(_session.size))
        yield Session(end_ms, start_ms, reader.take_nullable(length))
