"""How a windowed result looks on the wire, for Spark and any other consumer.

key     the record's own key, then the window as Kafka Streams' serdes write it, so that a
        compacted topic keeps one row a window and `TimeWindowedSerde` / `SessionWindowedSerde`
        read it:
            tumbling, hopping, sliding, unlimited     key | start (8 bytes, big-endian)
            session                                   key | end (8 bytes) | start (8 bytes)
header  `headrace.window` = `KIND:START:END` in ASCII decimal milliseconds, for everybody else;
        END is exclusive for tumbling and hopping windows, inclusive for sessions and sliding ones,
        and the largest 64-bit number for unlimited ones.
value   what the aggregate's function says; null is a tombstone.

`suppress` reads the window of any record from that header, whichever program wrote it. Kafka
Streams' byte accounting does not know the header, so it does not count there.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from headrace.contracts.record import Headers

WINDOW_HEADER = "headrace.window"
UNLIMITED_END_MS = (1 << 63) - 1
_start = Struct(">q")
_end_start = Struct(">qq")


class WindowBounds(NamedTuple):
    """One window of one kind."""

    kind: str
    start_ms: int
    end_ms: int


def windowed_key(key: bytes, window: WindowBounds) -> bytes:
    """Return the key of a windowed result."""
    if window.kind == "session":
        return key + _end_start.pack(window.end_ms, window.start_ms)
    return key + _start.pack(window.start_ms)


def plain_key(key: bytes, window: WindowBounds) -> bytes:
    """Return the record's own key of a windowed result."""
    return key[:-16] if window.kind == "session" else key[:-8]


def window_header(window: WindowBounds) -> tuple[str, bytes]:
    """Return the header of a windowed result."""
    return (WINDOW_HEADER, b"%s:%d:%d" % (window.kind.encode(), window.start_ms, window.end_ms))


def parse_window(value: bytes | None) -> WindowBounds | None:
    """Return the window that a header's value names, None where it names none."""
    kind, _, bounds = (value or b"").partition(b":")
    start, _, end = bounds.partition(b":")
    if kind not in _KINDS or not _is_time(start) or not _is_time(end):
        return None
    return WindowBounds(kind.decode(), int(start), int(end))


def window_of(headers: Headers) -> WindowBounds | None:
    """Return the window that a record belongs to, None where its headers name none."""
    for name, value in reversed(headers):
        if name == WINDOW_HEADER:
            return parse_window(value)
    return None


_KINDS = frozenset({b"tumbling", b"hopping", b"session", b"sliding", b"unlimited"})
_DIGITS_MAX = 19


def _is_time(text: bytes) -> bool:
    """Return whether it is a whole number that 64 bits hold, as keys and rows have it."""
    digits = text.removeprefix(b"-")
    if not digits.isdigit() or len(digits) > _DIGITS_MAX:
        return False
    return -(1 << 63) <= int(text) < 1 << 63
