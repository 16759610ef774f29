"""The weight of held records, as Kafka Streams counts it (rules B7 and D7).

Sizes are those of serialised bytes; null weighs nothing. The header that carries a windowed
result's window weighs nothing either: in Kafka Streams the window is part of the key alone.
"""

from __future__ import annotations

from headrace.contracts.record import Headers, Record
from headrace.contracts.window import WINDOW_HEADER
from headrace.services.operators.shared import of_each

_HELD_RECORD = 13 + 8 + 8 + 4
_HELD_UPDATE = 8 + 8 + 8 + 4


def records_weight(records: list[Record]) -> int:
    """Return the weight of records held for their time."""
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


def update_weights(records: list[Record]) -> list[int]:
    """Return the weights of held updates, without the values that they replace."""
    of_headers = of_each([record[3] for record in records], headers_weight)
    return [
        _HELD_UPDATE + weight + len(key or b"") + len(value or b"") + len(topic)
        for (key, value, _, _, topic, _, _), weight in zip(records, of_headers, strict=True)
    ]


def replaced_weight(prior: bytes | None, old: bytes | None) -> int:
    """Return the weight of the values that a held update replaces.

    `prior` is the value before its key entered the buffer, `old` the value before this update.
    """
    weight = 0 if prior is None else len(prior)
    return weight if old is None or old == prior else weight + len(old)


def headers_weight(headers: Headers) -> int:
    """Return the weight of headers: characters of each name, bytes of each value."""
    weight = 0
    for name, value in headers:
        if name != WINDOW_HEADER:
            weight += len(name) + len(value or b"")
    return weight
