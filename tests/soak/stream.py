"""A stream that is made by number, so that what must come out of it is known as it is made.

A partition's record `n` is one of three kinds:

late    each 200th: ten minutes behind, which is more than the grace of the reorder
twin    each 20th: the record 12 before it once more, which the deduplicate drops
first   all others: up to 89 s behind, and counted in the minute of its timestamp
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headrace.contracts.record import Record

PIPELINE = """\
pipeline: soak
source: {topic: raw}
operators:
  - reorder: {grace: 2m, late: topic}
  - deduplicate: {by: key+id, id: header.id, interval: 6h}
  - aggregate: {function: count, window: {kind: tumbling, size: 1m, grace: 0s}}
  - suppress: {until: window-closes}
sink: {topic: cleaned}
"""
RAW, CLEANED, LATE, DEAD = "raw", "cleaned", "cleaned.late", "cleaned.dead"
WINDOW_MS = 60_000
_BEGIN_MS = 1_767_225_600_000
_KEYS = 100
_LATE_EACH, _LATE_AT, _LATE_BY_MS = 200, 100, 600_000
_TWIN_EACH, _TWIN_AT, _TWIN_BEHIND = 20, 19, 12
_DISORDER_S = 90
_VALUE = bytes(range(100))
_ENDING_MS = 600_000
"""More than the grace and a window: behind the end, one record releases and one closes."""


class Made(NamedTuple):
    """A record, and what must become of it."""

    record: Record
    kind: str
    """`first`, `twin` or `late`."""


def made(partition: int, number: int, step_ms: int) -> Made:
    """Return one record of a partition, whose time goes on by a step each record."""
    kind = "first"
    if number % _TWIN_EACH == _TWIN_AT:
        kind, number = "twin", number - _TWIN_BEHIND
    now_ms = _BEGIN_MS + number * step_ms
    at_ms = now_ms - number * 7_919 % _DISORDER_S * 1_000
    if number % _LATE_EACH == _LATE_AT:
        kind, at_ms = "late", now_ms - _LATE_BY_MS
    key = b"%d-%d" % (partition, number * 31 % _KEYS)
    headers = (("id", b"%d-%d" % (partition, number)),)
    return Made(Record(key, _VALUE, at_ms, headers, RAW, partition, None), kind)


def endings(partition: int, number: int, step_ms: int) -> Iterator[Record]:
    """Make the two records that let everything before them leave; they do not leave themselves."""
    for count in (1, 2):
        at_ms = _BEGIN_MS + number * step_ms + count * _ENDING_MS
        yield Record(b"end", b"", at_ms, (("id", b"end-%d" % count),), RAW, partition, None)
