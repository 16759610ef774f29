"""Session windows: `[first, last]` of records of a key that are no further apart than the gap.

State
    0x00 0x01               how long a segment is (8), and the lengths that it had before, as
                            `deduplicate` has them
    0x01 segment (8) key    the key's sessions that end in the segment, in order of their ends:
                            start (8, signed) | end (8, signed) | length (4), -1 for none |
                            aggregate

A segment is a stretch of time a little longer than the gap. If an eighth of the time for which a
session can still change is longer, it is as long as that. A segment's length stays as the pipeline
began; a new gap or grace moves no row (see `segments`). So a record on time touches one or two
rows, a row stays small however many sessions a key has, and sessions that are over leave as whole
segments. Rule C2.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from headrace.contracts.policies import Session as SessionPolicy
from headrace.contracts.record import NO_TIME_MS, Record
from headrace.services.operators.functions import Aggregated
from headrace.services.operators.operator import View
from headrace.services.operators.rows import RowReader, pack_time, unpack_time
from headrace.services.operators.segments import (
    GROWTH_MAX,
    Segments,
    pack_segments,
    unpack_segments,
)
from headrace.services.operators.sweep import Sweep

_TIME_KEY = b"\x00"
"""The operator's own header, stream time."""
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
"""A segment's start and a key: the place of one row."""


class Sessions:
    """The sessions of one partition, a batch at a time."""

    def __init__(self, policy: SessionPolicy, retention_ms: int | None, view: View) -> None:
        """Keep sessions for as long as they can change, or longer if asked."""
        self._view = view
        self._space = view.prefix + _SPACE
        self._gap_ms = policy.gap_ms
        self._change_ms = policy.gap_ms + policy.grace_ms
        self._keep_ms = max(retention_ms or 0, self._change_ms)
        self._segments = self._open()
        self._segment_ms = self._segments.length_ms
        self.has_formers = bool(self._segments.formers)
        self._sweep = Sweep(view, self._space)
        self._rows: dict[Place, list[Session]] = {}
        self._changed: set[Place] = set()

    def _open(self) -> Segments:
        """Return the segments of the state, and put them where they are new."""
        segment_ms = max(self._gap_ms + 1, self._change_ms // _SEGMENTS + 1, _SEGMENT_MS_MIN)
        time_key, length_key = self._view.prefix + _TIME_KEY, self._view.prefix + _LENGTH_KEY
        time, written = self._view.get_many([time_key, length_key])
        if written is None:
            segments = Segments(segment_ms)
        else:
            segments = unpack_segments(written, 0)
            time_ms = NO_TIME_MS if time is None else unpack_time(time)
            # So long a session could change at most, if its segments had not to be longer yet.
            change_ms = _SEGMENTS * GROWTH_MAX * segments.length_ms
            first_ms = time_ms - change_ms - segments.length_ms
            segments = segments.going_on(segment_ms, time_ms - self._change_ms, first_ms, time_ms)
        row = pack_segments(segments)
        if row != written:
            self._view.put_many({length_key: row})
        return segments

    def recall(self, records: list[Record], time_ms: int) -> None:
        """Look up the sessions that these records can touch; none ends after stream time."""
        places = list(
            {
                (start_ms, record[0])
                for record in records
                if record[0] is not None
                for start_ms in self._starts_near(record[2], time_ms)
            }
        )
        rows = self._view.get_many([self._row_key(place) for place in places])
        self._rows = {
            place: [] if row is None else list(decode_sessions(row))
            for place, row in zip(places, rows, strict=True)
        }

    def _starts_near(self, timestamp_ms: int, time_ms: int) -> Sequence[int]:
        """Return where segments start in which sessions near a record may end."""
        first_ms = max(timestamp_ms - self._gap_ms, time_ms - self._change_ms)
        if self.has_formers:
            return self._segments.starts(first_ms, time_ms)
        segment_ms = self._segment_ms
        return range(first_ms // segment_ms * segment_ms, time_ms + 1, segment_ms)

    def _row_key(self, place: Place) -> bytes:
        start_ms, key = place
        return self._space + pack_time(start_ms) + key

    def near(self, key: bytes, timestamp_ms: int, time_ms: int) -> list[Session]:
        """Return the sessions that a record joins, the earliest first, without closed ones."""
        found: list[Session] = []
        first_end_ms = max(timestamp_ms - self._gap_ms, time_ms - self._change_ms)
        last_start_ms = timestamp_ms + self._gap_ms
        for start_ms in self._starts_near(timestamp_ms, time_ms):
            for session in self._rows.get((start_ms, key), ()):
                # A closed session may lie within an open one that has grown since.
                if session.end_ms < first_end_ms:
                    continue
                if session.start_ms > last_start_ms:
                    break
                found.append(session)
        if self.has_formers:
            found.sort(key=_end_of)
        return found

    def is_closed(self, end_ms: int, time_ms: int) -> bool:
        """Return whether a session that ends then can change no more."""
        return end_ms < time_ms - self._change_ms

    def replace(self, key: bytes, merged: list[Session], by: Session) -> None:
        """Replace some sessions by one."""
        for session in merged:
            place = (session.end_ms - session.end_ms % self._segment_ms, key)
            if self.has_formers:
                place = self._place_of(session, key)
            self._rows[place].remove(session)
            self._changed.add(place)
        place = (by.end_ms - by.end_ms % self._segment_ms, key)
        insort(self._rows.setdefault(place, []), by, key=_end_of)
        self._changed.add(place)

    def _place_of(self, session: Session, key: bytes) -> Place:
        """Return the place of a session that was found."""
        for start_ms in self._segments.starts(session.end_ms, session.end_ms):
            if session in self._rows.get((start_ms, key), ()):
                return start_ms, key
        message = "a session that was found has no place"
        raise AssertionError(message)

    def save(self, time_ms: int) -> None:
        """Put the rows that changed; drop the segments that no record may need any more."""
        self._view.put_many(
            {self._row_key(place): _encode(self._rows[place]) for place in self._changed}
        )
        self._sweep.count(len(self._changed))
        self._changed = set()
        first_ms = self._segments.first_start(time_ms - self._keep_ms)
        self._sweep.up_to(self._space + pack_time(first_ms))


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
