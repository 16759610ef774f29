"""The record, which enters headrace and leaves it byte for byte the same."""

from __future__ import annotations

from operator import itemgetter
from typing import NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]
"""Kafka's headers: ordered, names may repeat, a value may be null."""

NO_TIME_MS = -1
"""Stream time before the first record, as Kafka Streams counts it."""


class Record(NamedTuple):
    """One Kafka record with its origin; a tuple, because operators handle hundreds of thousands.

    `offset` is None for a record that never stood in a topic; such a record is never a replay.
    """

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers
    topic: str
    partition: int
    offset: int | None


def size_bytes(records: list[Record]) -> int:
    """Return the bytes of keys and values."""
    return sum(
        sum(map(len, filter(None, map(field_of, records)))) for field_of in (_key_of, _value_of)
    )


_key_of, _value_of = itemgetter(0), itemgetter(1)


def offset_of(record: Record) -> int:
    """Return the offset of a record that was read from a topic."""
    assert record.offset is not None
    return record.offset
