"""Durations and sizes as people write them, and as headrace counts them: milliseconds and bytes."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, Field, WithJsonSchema

from headrace.contracts.errors import DurationInvalid, SizeInvalid
from headrace.contracts.problem_text import show

_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_UNIT_BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_UNIT_BYTES |= {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_DURATION = re.compile(r"(?:[0-9]{1,19}(?:ms|s|m|h|d|w))+")
_DURATION_PART = re.compile(r"([0-9]+)(ms|s|m|h|d|w)")
_SIZE = re.compile(r"([0-9]{1,19}) ?([KMGT]i?B|B)")
TIME_MS_MAX = (1 << 62) - 1
"""Bound on every duration, so that a timestamp plus a few of them still fits 64 bits."""
EVENT_TIME_MS_MAX = ((1 << 63) - 1) // 1000
"""The latest time of a record: Spark counts microseconds in 64 bits, until the year 294246.

A client that writes nanoseconds where milliseconds belong exceeds it, too.
"""
SIZE_BYTES_MAX = (1 << 62) - 1
COUNT_MAX = (1 << 62) - 1
"""Bound on every number of records or keys, which fits 64 bits as the others do."""


def parse_duration_ms(text: object) -> int:
    """Return `30s`, `1h30m` or a number of milliseconds, in milliseconds."""
    if isinstance(text, int) and not isinstance(text, bool):
        milliseconds = text
    elif isinstance(text, str) and _DURATION.fullmatch(text.strip()):
        parts = _DURATION_PART.findall(text)
        milliseconds = sum(int(count) * _UNIT_MS[unit] for count, unit in parts)
    else:
        message = (
            f"{show(text)} is not a duration; write a number and a unit,"
            " such as 500ms, 30s, 10m, 1h30m or 7d"
        )
        raise DurationInvalid(message)
    if not 0 <= milliseconds <= TIME_MS_MAX:
        message = (
            f"{show(text)} is out of range; a duration is zero or more, at most {TIME_MS_MAX} ms"
        )
        raise DurationInvalid(message)
    return milliseconds


def parse_wait_ms(text: object) -> int | None:
    """Return a duration, or None for `never`."""
    if text is None or text == "never":
        return None
    try:
        return parse_duration_ms(text)
    except DurationInvalid as refused:
        message = f"{refused}, or `never`"
        raise DurationInvalid(message) from None


def format_duration_ms(milliseconds: int) -> str:
    """Return the shortest exact way to write a duration: `90s`, not `90000ms`."""
    for unit in ("w", "d", "h", "m", "s"):
        if milliseconds and milliseconds % _UNIT_MS[unit] == 0:
            return f"{milliseconds // _UNIT_MS[unit]}{unit}"
    return f"{milliseconds}ms"


def parse_size_bytes(text: object) -> int:
    """Return `64MiB` or a number of bytes, in bytes."""
    match = _SIZE.fullmatch(text.strip()) if isinstance(text, str) else None
    if isinstance(text, int) and not isinstance(text, bool):
        size_bytes = text
    elif match is not None:
        size_bytes = int(match[1]) * _UNIT_BYTES[match[2]]
    else:
        message = (
            f"{show(text)} is not a size; write a number and a unit, such as 512KiB, 64MiB or 2GiB"
        )
        raise SizeInvalid(message)
    if not 0 <= size_bytes <= SIZE_BYTES_MAX:
        message = f"{show(text)} is out of range; a size is zero to {SIZE_BYTES_MAX} bytes"
        raise SizeInvalid(message)
    return size_bytes


_DURATION_SCHEMA = {
    "type": ["string", "integer"],
    "examples": ["30s", "10m", "1h30m"],
    "minimum": 0,
}
_SIZE_SCHEMA = {"type": ["string", "integer"], "examples": ["64MiB"], "minimum": 0}

_WAIT_SCHEMA = {"type": ["string", "integer"], "examples": ["10s", "never"]}

DurationMs = Annotated[
    int, BeforeValidator(parse_duration_ms), Field(ge=0), WithJsonSchema(_DURATION_SCHEMA)
]
WaitMs = Annotated[
    int | None, BeforeValidator(parse_wait_ms), WithJsonSchema(_WAIT_SCHEMA | {"minimum": 0})
]
"""A duration, or None for ever."""
SizeBytes = Annotated[
    int, BeforeValidator(parse_size_bytes), Field(ge=0), WithJsonSchema(_SIZE_SCHEMA)
]
