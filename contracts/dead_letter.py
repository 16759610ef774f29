"""How the dead-letter topic stores a dead record, and how a record comes back from it.

A letter keeps the record's own key, value, headers and timestamp byte for byte. Our headers follow
its own, in the order below. A reader takes the last such block. So a record that died before, here
or in Kafka Streams, keeps the older block as headers of its own.

    __streams.errors.exception     the class of what was raised      names and meaning as in
    __streams.errors.message       one clause for people             Kafka Streams (KIP-1034), so
    __streams.errors.stacktrace    empty where nothing was raised    that its tools read ours,
    __streams.errors.topic         where the record stood            and ours read its
    __streams.errors.partition     in ASCII decimals
    __streams.errors.offset        in ASCII decimals; empty if it never stood in a topic
    headrace.operator              which operator gave it up; `intake` before all of them, `sink`
                                   behind them
    headrace.reason                a word of headrace.contracts.decision

A header whose name is not UTF-8 would stop many readers of this topic as well. The letter therefore
writes each byte that is not UTF-8 as a backslash, an x and two digits. `headrace.names` then holds
the bytes of all names, in hexadecimal, separated by spaces. A record that is put back has the names
that it had.

A letter that is too large for its topic is cut. It loses its value first, then its own headers,
then its key, and no more of them than it must. For each part that was cut, these headers follow the
others:

    headrace.value.bytes           its length before; likewise `key` and `headers`
    headrace.value.sha256          its digest before, in hexadecimal; of headers, that of names and
                                   values with a zero byte behind each

A record that is put back into its source carries `headrace.replays`, the number of times that this
was done. So a record that dies again and again does not go round for ever.
"""

from __future__ import annotations

from hashlib import sha256
from typing import NamedTuple

from headrace.contracts.decision import Reason
from headrace.contracts.record import Headers, Record

EXCEPTION_HEADER = "__streams.errors.exception"
MESSAGE_HEADER = "__streams.errors.message"
STACKTRACE_HEADER = "__streams.errors.stacktrace"
TOPIC_HEADER = "__streams.errors.topic"
PARTITION_HEADER = "__streams.errors.partition"
OFFSET_HEADER = "__streams.errors.offset"
OPERATOR_HEADER = "headrace.operator"
REASON_HEADER = "headrace.reason"
NAMES_HEADER = "headrace.names"
REPLAYS_HEADER = "headrace.replays"
INTAKE, SINK = "intake", "sink"
_CUT = tuple(f"headrace.{part}" for part in ("value", "headers", "key"))
_AROUND_BYTES = 1_024
"""Room for the batch, the record, and the headers that describe the parts that were cut."""
_AROUND_HEADER_BYTES = 12
_MESSAGE_BYTES = 200
"""The length to which a message is shortened where there is no room for more."""


class DeadLetter(NamedTuple):
    """A dead record, and why it is dead."""

    record: Record
    """As it stood in its topic, before our headers were added."""
    operator: str
    reason: Reason | None
    """None in a letter that Kafka Streams wrote."""
    detail: str
    exception: str = ""
    stacktrace: str = ""
    is_cut: bool = False
    """True if a part of the record is missing from the letter."""


def dead_headers(letter: DeadLetter) -> Headers:
    """Return the headers that a dead record has in the dead-letter topic."""
    record = letter.record
    offset = "" if record.offset is None else str(record.offset)
    ours = (
        (EXCEPTION_HEADER, letter.exception),
        (MESSAGE_HEADER, letter.detail),
        (STACKTRACE_HEADER, letter.stacktrace),
        (TOPIC_HEADER, record.topic),
        (PARTITION_HEADER, str(record.partition)),
        (OFFSET_HEADER, offset),
        (OPERATOR_HEADER, letter.operator),
        (REASON_HEADER, letter.reason or ""),
    )
    own = record.headers
    if not all(map(_is_text, own)):
        names = b" ".join(_bytes_of(name).hex().encode() for name, _ in own)
        own = (*((_legible(name), value) for name, value in own), (NAMES_HEADER, names))
    return (*own, *((name, text.encode(errors=_LOSSLESS)) for name, text in ours))


def cut(dead: Record, bytes_max: int) -> Record:
    """Cut a dead record to so many bytes, and add length and digest of each part that was cut.

    The key is kept first, then the record's own headers, all or none, then the value.
    """
    start = _start_of_ours(dead) or 0
    own, ours = dead.headers[:start], dead.headers[start:]
    room = bytes_max - _AROUND_BYTES
    if _size_of(ours) > room:
        short = {STACKTRACE_HEADER: 0, MESSAGE_HEADER: _MESSAGE_BYTES}
        ours = tuple((name, (value or b"")[: short.get(name)]) for name, value in ours)
    room -= _size_of(ours)
    key, room = _within(dead.key, room)
    kept = own if _size_of(own) <= room else ()
    value, _ = _within(dead.value, room - _size_of(kept))
    whole = b"".join(name.encode() + b"\0" + (text or b"") + b"\0" for name, text in own)
    parts = (dead.value, value), (whole, whole if kept else b""), (dead.key, key)
    for name, (before, left) in zip(_CUT, parts, strict=True):
        if before is not None and left != before:
            digest = sha256(before).hexdigest().encode()
            ours += ((f"{name}.bytes", b"%d" % len(before)), (f"{name}.sha256", digest))
    return dead._replace(key=key, value=value, headers=(*kept, *ours))


def _within(some: bytes | None, room: int) -> tuple[bytes | None, int]:
    """Return as much as there is room for, and the room that is left."""
    left = None if some is None else some[: max(0, room)]
    return left, room - len(left or b"")


def _size_of(headers: Headers) -> int:
    return sum(
        len(name.encode()) + len(value or b"") + _AROUND_HEADER_BYTES for name, value in headers
    )


def _start_of_ours(dead: Record) -> int | None:
    """Return the index at which the last block of a letter's headers begins."""
    names = [name for name, _ in dead.headers]
    if EXCEPTION_HEADER not in names:
        return None
    return len(names) - 1 - names[::-1].index(EXCEPTION_HEADER)


def read_dead(dead: Record) -> DeadLetter | None:
    """Return the letter in a record of a dead-letter topic, None where there is none."""
    start = _start_of_ours(dead)
    if start is None:
        return None
    ours = {name: (value or b"").decode(errors=_LOSSLESS) for name, value in dead.headers[start:]}
    partition, offset = ours.get(PARTITION_HEADER, ""), ours.get(OFFSET_HEADER, "")
    reason = ours.get(REASON_HEADER, "")
    if not _is_number(partition) or TOPIC_HEADER not in ours:
        return None
    record = dead._replace(
        headers=dead.headers[:start],
        topic=ours[TOPIC_HEADER],
        partition=int(partition),
        offset=int(offset) if _is_number(offset) else None,
    )
    return DeadLetter(
        record,
        operator=ours.get(OPERATOR_HEADER, ""),
        reason=Reason(reason) if reason in _REASONS else None,
        detail=ours.get(MESSAGE_HEADER, ""),
        exception=ours[EXCEPTION_HEADER],
        stacktrace=ours.get(STACKTRACE_HEADER, ""),
        is_cut=any(f"{name}.bytes" in ours for name in _CUT),
    )


def replays(record: Record) -> int:
    """Return how often a record was put back into its source."""
    for name, value in reversed(record.headers):
        if name == REPLAYS_HEADER:
            text = (value or b"").decode(errors=_LOSSLESS)
            return int(text) if _is_number(text) else 0
    return 0


def replay_headers(record: Record) -> Headers:
    """Return the headers for putting a record back once more: its own, and the new count."""
    own = (header for header in _as_they_came(record.headers) if header[0] != REPLAYS_HEADER)
    return (*own, (REPLAYS_HEADER, b"%d" % (replays(record) + 1)))


def _as_they_came(headers: Headers) -> Headers:
    """Return a letter's own headers under the names that they had, bytes that are no text too."""
    if not headers or headers[-1][0] != NAMES_HEADER:
        return headers
    *own, (_, names) = headers
    try:
        raw = [bytes.fromhex(name.decode()) for name in (names or b"").split(b" ")]
    except ValueError:
        return headers
    came = [name.decode(errors=_LOSSLESS) for name in raw]
    # A record may have come with a header of that name.
    if list(map(_legible, came)) != [name for name, _ in own]:
        return headers
    return tuple((name, content) for name, (_, content) in zip(came, own, strict=True))


_LOSSLESS = "surrogateescape"
"""Bytes that are not UTF-8 survive decoding and encoding."""
_REASONS = frozenset(Reason)


def _bytes_of(name: str) -> bytes:
    return name.encode(errors=_LOSSLESS)


def _legible(name: str) -> str:
    return _bytes_of(name).decode(errors="backslashreplace")


def _is_text(header: tuple[str, bytes | None]) -> bool:
    return header[0].isascii() or _legible(header[0]) == header[0]


_DIGITS_MAX = 19
"""An offset has no more digits."""


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
