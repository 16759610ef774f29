"""The rows that a job must make, and digests of those it made: of each, or of a key's last one.

Where rows replace each other, systems may differ in those between, as each reads several topics in
turns of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from zlib import crc32

import numpy as np

from tests.bench.spark.cleaned import Made, Records
from tests.bench.spark.topics import Digest, Read

Row = Mapping[str, Any]


def judge_each(read: Iterable[Read]) -> Made:
    """Digest all rows of a topic."""
    made = digest_of((key, json.loads(value)) for key, value, _ in read)
    return Made(made, made.rows)


def judge_last(read: Iterable[Read], may_stay: frozenset[bytes] = frozenset()) -> Made:
    """Digest the last row of each key in a topic; a key whose last one is a tombstone has none.

    The rows of some keys `may_stay`, and are only counted.
    """
    last: dict[bytes, bytes] = {}
    written = 0
    for key, value, _ in read:
        written += 1
        last[key] = value
    left = {key: value for key, value in last.items() if value}
    stayed = left.keys() & may_stay
    made = digest_of((key, json.loads(value)) for key, value in left.items() if key not in stayed)
    return Made(made, written, len(stayed))


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


def met_by(
    stream: Records,
    table: Records,
    key_of: Callable[[bytes], bytes] = lambda key: key,
    before: Callable[[bytes], bytes | None] = lambda _key: None,
) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the place of each of the stream's records, its key, and the row that held then, if any.

    Their times never meet, so one sort orders both. `before` knows the rows that held before these.
    """
    now: dict[bytes, bytes | None] = {}
    order = np.argsort(np.array(table.times_ms + stream.times_ms), kind="stable")
    for place in order.tolist():
        if place < len(table.keys):
            now[table.keys[place]] = table.values[place]
            continue
        at = place - len(table.keys)
        key = key_of(stream.keys[at])
        met = now[key] if key in now else before(key)
        if met is not None:
            yield at, key, met
