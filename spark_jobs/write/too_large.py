"""Set aside rows that are larger than their topic takes, before any of them is sent.

A broker that refuses a row fails its whole transaction, and each attempt after it. So the size is
computed here: that of a batch with this one row, which is what a broker measures. If the client
compresses, only the broker knows the size, and its refusal ends the job.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.contracts.dead_letter import SINK, DeadLetter, cut, dead_headers
from headrace.contracts.decision import Reason
from headrace.contracts.record import Headers, Record
from headrace.contracts.topics import dead_topic_name
from headrace.spark_jobs.headers import decode_headers, encode_headers
from headrace.spark_jobs.write.topics import BATCH_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

_BATCH_BYTES = 61
_RECORD_BYTES = 3
"""Attributes, and the differences of time and offset, which are zero."""
_ROOM_BYTES = 100
"""More than a batch and a record take beside key, value and headers as text."""
_PARTS = ("key", "value", "headers")


class TooLarge:
    """Puts a dead letter in the place of each row that its topic does not take."""

    def __init__(self, takes_bytes: Mapping[str, int]) -> None:
        """Take the largest batch of each topic; a topic that is not among them takes any row."""
        self._takes_bytes = takes_bytes
        self._smallest_bytes = min(takes_bytes.values(), default=0)
        self.said: dict[str, int] = {}
        """How many rows were too large, by the sentence about them."""

    def set_aside(self, table: pa.RecordBatch) -> pa.RecordBatch:
        """Return the table with letters in it."""
        if not self._takes_bytes:
            return table
        sizes = [pc.coalesce(pc.binary_length(table.column(name)), 0) for name in _PARTS]
        size = pc.add(pc.add(sizes[0], sizes[1]), sizes[2])
        large = pc.greater(size, max(0, self._smallest_bytes - _ROOM_BYTES))
        if not pc.any(large).as_py():
            return table
        rows = [
            self._aside(row) if is_large else row
            for row, is_large in zip(table.to_pylist(), large.to_pylist(), strict=True)
        ]
        return pa.RecordBatch.from_pylist(rows, table.schema)

    def _aside(self, row: dict[str, Any]) -> dict[str, Any]:
        headers = decode_headers(row["headers"]) if row["headers"] else ()
        target, takes_bytes = row["target"], self._takes_bytes.get(row["target"], sys.maxsize)
        if batch_bytes(row["key"], row["value"], headers) <= takes_bytes:
            return row
        origin = row["topic"], row["partition"], row["offset"]
        record = Record(row["key"], row["value"], row["timestamp_ms"], headers, *origin)
        dead = dead_topic_name(record.topic)
        if target != dead:
            detail = f"`{target}` takes {takes_bytes} bytes at once, and a row has more"
            sentence = f"{detail}; it is in `{dead}`, and the topic's max.message.bytes decides"
            self.said[sentence] = self.said.get(sentence, 0) + 1
            letter = DeadLetter(record, SINK, Reason.TOO_LARGE, detail)
            record = record._replace(headers=dead_headers(letter))
        left = cut(record, self._takes_bytes.get(dead, BATCH_BYTES))
        parts = {"key": left.key, "value": left.value, "headers": encode_headers(left.headers)}
        return row | parts | {"target": dead}


def batch_bytes(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Return the size of a batch with this one record, without compression."""
    parts = [key, value]
    for name, text in headers:
        parts += [name.encode(), text]
    size = _RECORD_BYTES + _length_bytes(len(headers))
    size += sum(1 if part is None else _length_bytes(len(part)) + len(part) for part in parts)
    return _BATCH_BYTES + _length_bytes(size) + size


def _length_bytes(length: int) -> int:
    """Return how many bytes a length takes: seven bits a byte, one of them for the sign."""
    return length.bit_length() // 7 + 1
