"""Aggregations whose results tell the order of their calls, and changes to fold by them."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from headrace.contracts.record import Record
from headrace.spark_jobs.operators.columns import PART
from headrace.spark_jobs.versioned.arrival import Arrival
from headrace.spark_jobs.versioned.totals import Aggregation, Form
from tests.properties.messages import sent

OWN, OTHER = 0, 1
BUCKETS = 2
HEADERS = ((), (("n", b"1"),))


class Drawn(NamedTuple):
    """How many different things a test draws."""

    arrivals: int
    rows: int
    groups: int
    times: int


FEW, MANY = Drawn(12, 3, 2, 30), Drawn(600, 150, 25, 400)


def group_of(key: bytes, value: bytes) -> tuple[bytes, bytes] | None:
    """Take the first two bytes for the group; a value with a sign is in none."""
    if value == b"poison":
        raise ValueError(key)
    return None if value.startswith(b"-") else (value[:2], value[2:])


def _nothing() -> bytes:
    return b"="


def _add(group: bytes, value: bytes, total: bytes) -> bytes:
    if value == b"unaddable":
        raise ValueError(group)
    return b"%s%s," % (total, value)


def _subtract(group: bytes, value: bytes, total: bytes) -> bytes | None:
    """Take the value out; a group of none is no more, even where another value comes then."""
    if value == b"indelible":
        raise ValueError(group)
    head, found, tail = total.partition(value + b",")
    return (head + tail if found else total + b"!") if total != b"=%s," % value else None


# The order of values is seen in the aggregate, and so is a value that was never added.
LISTED = Aggregation(_nothing, _add, _subtract)
JOINED = Aggregation(None, _add, _subtract)


def _add_part(group: bytes, value: bytes, parts: list[bytes]) -> list[bytes]:
    if value == b"unaddable":
        raise ValueError(group)
    parts.append(value)
    return parts


def _subtract_part(group: bytes, value: bytes, parts: list[bytes]) -> list[bytes] | None:
    if value == b"indelible":
        raise ValueError(group)
    if value in parts:
        parts.remove(value)
        return parts or None
    parts.append(b"!")
    return parts


def _read_parts(stored: bytes) -> list[bytes]:
    return stored.split(b",")


# Its functions change what they are given.
KEPT_APART = Aggregation(list, _add_part, _subtract_part, Form(_read_parts, b",".join))


def _value(random: Random, drawn: Drawn) -> bytes | None:
    if random.random() < 0.15:
        return None
    sign = b"-" if random.random() < 0.1 else b""
    return b"%s%02d%d" % (sign, random.randrange(drawn.groups), random.randrange(9))


def _record(random: Random, drawn: Drawn, offset: int) -> Record:
    key = None if random.random() < 0.03 else b"row%d" % random.randrange(drawn.rows)
    time_ms = random.randrange(-3, drawn.times)
    return Record(key, _value(random, drawn), time_ms, random.choice(HEADERS), "t", 0, offset)


def rows_in(random: Random, drawn: Drawn) -> list[Arrival]:
    """Draw rows of a table, and some of another input."""
    return [
        Arrival(random.choice((OWN, OWN, OWN, OTHER)), _record(random, drawn, offset))
        for offset in range(random.randrange(drawn.arrivals // 2, drawn.arrivals + 1))
    ]


def parts_in(random: Random, drawn: Drawn) -> list[Arrival]:
    """Parts that may say anything of what was before, as behind rows that failed."""
    parts = []
    for _, origin in rows_in(random, drawn):
        group = b"%02d" % random.randrange(drawn.groups)
        old, new = (random.choice((None, b"%d" % random.randrange(4))) for _ in range(2))
        if old is None and new is None:
            new = origin.value or b""
        message = sent(origin, old, new, b"row%d" % random.randrange(drawn.rows))
        time_ms = random.randrange(drawn.times)
        parts.append(origin._replace(key=group, value=message, timestamp_ms=time_ms))
    return [Arrival(random.choice((-PART, -PART, -PART, OTHER)), part) for part in parts]
