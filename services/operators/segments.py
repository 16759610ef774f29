"""Segments of time, by which rows of ids and of sessions are found.

A row's key begins with the start of its segment, a multiple of the segments' length. The length
goes by the interval or gap that the pipeline began with, so a look-up asks a few segments. If that
grows far, new rows go into longer segments. The rows that are there stay where they are, and are
looked for until their time is over as well. Otherwise a look-up would ask one segment for each time
that the old interval goes into the new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.contracts.errors import StateCorrupt
from headrace.services.operators.rows import (
    pack_length_ms,
    pack_time,
    unpack_length_ms,
    unpack_time,
)

GROWTH_MAX = 4
"""If new segments would be so many times as long, new rows go into such."""
_FORMER_BYTES = 24


class Former(NamedTuple):
    """Segments to which no more rows go."""

    length_ms: int
    first_ms: int
    """No row that counts is earlier."""
    last_ms: int
    """No row is later."""


class Segments(NamedTuple):
    """The segments of one state."""

    length_ms: int
    """Of those to which new rows go."""
    formers: tuple[Former, ...] = ()

    def starts(self, first_ms: int, last_ms: int) -> Sequence[int]:
        """Return the starts of all segments that may have a row of these times, each once."""
        own = _starts(self.length_ms, first_ms, last_ms)
        if not self.formers:
            return own
        starts: dict[int, None] = {}
        for length_ms, from_ms, until_ms in self.formers:
            some = _starts(length_ms, max(first_ms, from_ms), min(last_ms, until_ms))
            starts |= dict.fromkeys(some)
        return list(starts | dict.fromkeys(own))

    def first_start(self, first_ms: int) -> int:
        """Return a start: no segment before it has a row of this time, or a later one."""
        lengths_ms = (self.length_ms, *(former.length_ms for former in self.formers))
        return min(first_ms // length_ms * length_ms for length_ms in lengths_ms)

    def going_on(self, length_ms: int, over_ms: int, first_ms: int, latest_ms: int) -> Segments:
        """Return the segments to go on with, where a new state would have some of this length.

        Rows before `over_ms` are over. Of the rows that there are, none before `first_ms` counts,
        and none is later than `latest_ms`.
        """
        formers = tuple(one for one in self.formers if one.last_ms >= over_ms)
        if length_ms <= GROWTH_MAX * self.length_ms:
            return Segments(self.length_ms, formers)
        return Segments(length_ms, (*formers, Former(self.length_ms, first_ms, latest_ms)))


def _starts(length_ms: int, first_ms: int, last_ms: int) -> range:
    return range(first_ms // length_ms * length_ms, last_ms + 1, length_ms)


def pack_segments(segments: Segments) -> bytes:
    """Pack the segments of a state."""
    parts = [pack_length_ms(segments.length_ms)]
    for length_ms, first_ms, last_ms in segments.formers:
        parts += [pack_length_ms(length_ms), pack_time(first_ms), pack_time(last_ms)]
    return b"".join(parts)


def unpack_segments(row: bytes, start: int) -> Segments:
    """Unpack the segments that stand at the end of a row."""
    length_ms = unpack_length_ms(row, start)
    behind = range(start + 8, len(row), _FORMER_BYTES)
    if (len(row) - start - 8) % _FORMER_BYTES:
        message = f"a row of {len(row)} bytes ends inside the segments of former lengths"
        raise StateCorrupt(message)
    formers = (
        Former(unpack_length_ms(row, at), unpack_time(row, at + 8), unpack_time(row, at + 16))
        for at in behind
    )
    return Segments(length_ms, tuple(formers))
