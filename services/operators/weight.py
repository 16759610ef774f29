"""What held records weigh, as Kafka Streams counts it (rules B7 and D7).

Sizes are those of serialised bytes, null weighs nothing. The header that carries a windowed
result's window weighs nothing either: in Kafka Streams the window is part of the key alone.
"""

from __future__ import annotations

from contracts.record import Headers, Record
from contracts.window import WINDOW_HEADER

_HELD_RECORD = 13 + 8 + 8 + 4
_HELD_UPDATE = 8 + 8 + 8 + 4


def records_weight(records: list[Record]) -> int:
    """The weight of records held for their time."""
    weight = _HELD_RECORD * len(records)
    for key, value, _, headers, topic, _, _ in records:
        weight += len(topic)
        if key is not None:
            weight += len(key)
        if value is not None:
            weight += len(value)
        if headers:
            weight += headers_weight(headers)
    return weight


def update_weight(record: Record, prior: bytes | None, old: bytes | None) -> int:
    """The weight of a held update.

    `prior` is the value before its key entered the buffer, `old` the value before this update.
    """
    key, value, _, headers, topic, _, _ = record
    weight = _HELD_UPDATE + len(key or b"") + len(value or b"") + len(topic)
    if prior is not None:
        weight += len(prior)
    if old is not None and old != prior:
        weight += len(old)
    return weight + headers_weight(headers) if headers else weight


def headers_weight(headers: Headers) -> int:
    """The weight of headers: characters of each name, bytes of each value."""
    return sum(len(name) + len(value or b"") for name, value in headers if name != WINDOW_HEADER)
