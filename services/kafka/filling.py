"""Batches of a producer, filled in one loop: aiokafka's own way costs a future a record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aiokafka.producer.message_accumulator import BatchBuilder

from headrace.contracts.record import NO_TIME_MS, Headers, Record

_NOT_PACKED = 0
_NONE: list[tuple[str, bytes]] = []


def new_batch(batch_bytes: int, *, is_transactional: bool) -> BatchBuilder:
    """An empty batch of its own size; the producer would make all of one size."""
    return BatchBuilder(batch_bytes, _NOT_PACKED, is_transactional=is_transactional)


def fill(batch: Any, rows: Sequence[Record], start: int) -> int:
    """Append rows from `start` on; the index of the first that did not fit.

    aiokafka takes a first time of -1 for none, and the first that is another for that of all: so a
    batch that begins with such a row is closed behind those that are like it.
    """
    append = batch._builder.append
    offset = batch._relative_offset
    is_untimed = not offset and rows[start][2] == NO_TIME_MS
    end = _untimed_end(rows, start) if is_untimed else len(rows)
    shared: Headers = ()
    wanted: list[Any] = _NONE
    for index in range(start, end):
        key, value, timestamp_ms, headers, _, _, _ = rows[index]
        if headers is not shared:  # all results of one window have the same, as one object
            shared, wanted = headers, list(headers)
        if append(offset, timestamp_ms, key, value, wanted) is None:
            batch._relative_offset = offset
            batch.close()
            return index
        offset += 1
    batch._relative_offset = offset
    if is_untimed:
        batch.close()
    return end


def _untimed_end(rows: Sequence[Record], start: int) -> int:
    timed = (index for index in range(start, len(rows)) if rows[index][2] != NO_TIME_MS)
    return next(timed, len(rows))


def fill_rows(
    batch: Any, rows: Sequence[tuple[bytes, bytes | None]], start: int, timestamp_ms: int
) -> int:
    """The same for rows that have a key and a value alone."""
    append = batch._builder.append
    offset = batch._relative_offset
    for index in range(start, len(rows)):
        key, value = rows[index]
        if append(offset, timestamp_ms, key, value, _NONE) is None:
            batch._relative_offset = offset
            batch.close()
            return index
        offset += 1
    batch._relative_offset = offset
    return len(rows)
