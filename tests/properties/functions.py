"""The functions of aggregates again, as plain callables that share no code with the services'."""

from __future__ import annotations

import json
from typing import Any

from headrace.contracts.record import Record
from tests.oracles.aggregate import Function


def _show_json(found: Any) -> bytes | None:  # JSON is anything
    return None if found is None else json.dumps(found, separators=(",", ":")).encode()


def _number(record: Record) -> int | None:
    return None if record.value is None else int(record.value)


def _some(*numbers: int | None) -> list[int]:
    return [number for number in numbers if number is not None]


def _first(one: bytes | None, other: bytes | None) -> bytes | None:
    return other if one is None else one


def _last(one: bytes | None, other: bytes | None) -> bytes | None:
    return one if other is None else other


FUNCTIONS = {
    "count": Function(
        initial=lambda: 0,
        add=lambda count, _: count + 1,
        merge=lambda one, other: one + other,
        show=lambda count: count.to_bytes(8, "big"),
    ),
    "sum": Function(
        initial=lambda: None,
        add=lambda total, record: (
            sum(_some(total, _number(record))) if _some(total, _number(record)) else None
        ),
        merge=lambda one, other: sum(_some(one, other)) if _some(one, other) else None,
        show=_show_json,
    ),
    "min": Function(
        initial=lambda: None,
        add=lambda least, record: min(_some(least, _number(record)), default=None),
        merge=lambda one, other: min(_some(one, other), default=None),
        show=_show_json,
    ),
    "max": Function(
        initial=lambda: None,
        add=lambda most, record: max(_some(most, _number(record)), default=None),
        merge=lambda one, other: max(_some(one, other), default=None),
        show=_show_json,
    ),
    "first": Function(
        initial=lambda: None,
        add=lambda one, record: _first(one, record.value),
        merge=_first,
        show=lambda one: one,
    ),
    "last": Function(
        initial=lambda: None,
        add=lambda one, record: _last(one, record.value),
        merge=_last,
        show=lambda one: one,
    ),
    "collect": Function(
        initial=list,
        add=lambda all_, record: [*all_, *_some(_number(record))],
        merge=lambda one, other: [*one, *other],
        show=lambda all_: _show_json(all_ or None),
    ),
}
