"""Digests of a job's rows, which are compared: of each row, or of the last one of each key.

Where rows replace each other, systems may differ in those between, as each reads several topics in
turns of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any
from zlib import crc32

from tests.bench.spark.cleaned import Made, Records
from tests.bench.spark.topics import Digest, Read

Row = Mapping[str, Any]


def judge_each(read: Iterable[Read]) -> Made:
    """Digest all rows of a topic."""
    made = digest_of((key, json.loads(value)) for key, value, _ in read)
    return Made(made, made.rows)


def judge_last(read: Iterable[Read]) -> Made:
    """Digest the last row of each key in a topic; a key whose last one is a tombstone has none."""
    last: dict[bytes, bytes] = {}
    written = 0
    for key, value, _ in read:
        written += 1
        last[key] = value
    made = digest_of((key, json.loads(value)) for key, value in last.items() if value)
    return Made(made, written)


def digest_of(rows: Iterable[tuple[bytes, Row]]) -> Digest:
    """Of keys and rows, in whatever order."""
    count = checksum = 0
    for key, row in rows:
        count += 1
        checksum += crc32(json.dumps(row, sort_keys=True).encode(), crc32(key))
    return Digest(count, checksum)


def latest_of(records: Records) -> dict[bytes, Row]:
    """Return the rows of a table at the end of its topic."""
    last = dict(zip(records.keys, records.values, strict=True))
    return {key: json.loads(value) for key, value in last.items() if value is not None}
