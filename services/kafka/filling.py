"""Batches of a producer, filled in one loop: aiokafka's own way costs a future a record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.default_records import (
    DefaultRecordBatchBuilder,
    _DefaultRecordBatchBuilderPy,
)

from headrace.contracts.origin import RUN_RECORD_BYTES, Origin, origin_header, run_headers
from headrace.contracts.record import NO_TIME_MS, Headers, Record

_NOT_PACKED = 0
_NONE: list[tuple[str, bytes]] = []
_RUN_MIN = 4
"""Fewer records cost less with a header each than with a row before them."""
_RUN_MAX = 1_000
_PARTS_OF_BATCH = 16
"""A row takes at most such a part of a batch, whatever its run has announced."""


class Batch(BatchBuilder):  # type: ignore[misc]  # aiokafka has no types
    """A batch of its own size; the producer would make all of one size."""

    def __init__(self, batch_bytes: int, *, is_transactional: bool) -> None:
        super().__init__(batch_bytes, _NOT_PACKED, is_transactional=is_transactional)
        self._made_of = _NOT_PACKED, is_transactional, -1, -1, 0, batch_bytes

    def take_any_names(self) -> None:
        """Write headers from now on whose names are no text; the fast builder takes text alone."""
        self._builder = _DefaultRecordBatchBuilderPy(2, *self._made_of)

    def _set_producer_state(
        self, producer_id: int, producer_epoch: int, base_sequence: int
    ) -> None:
        self._builder.set_producer_state(producer_id, producer_epoch, base_sequence)


class _Name(str):
    """A header's name; a byte that is not UTF-8 is a lone surrogate in it."""

    __slots__ = ()

    def encode(self, encoding: str = "utf-8", _: str = "") -> bytes:
        """As it is written."""
        return super().encode(encoding, "surrogateescape")


def new_batch(batch_bytes: int, *, is_transactional: bool) -> BatchBuilder:
    """Make an empty batch."""
    return Batch(batch_bytes, is_transactional=is_transactional)


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
        try:
            fits = append(offset, timestamp_ms, key, value, wanted) is not None
        except UnicodeEncodeError:
            # A name is no text: such records have a batch of their own.
            if not offset:
                return _fill_with_any_names(batch, rows, start, end)
            fits = False
        if not fits:
            batch._relative_offset = offset
            batch.close()
            return index
        offset += 1
    batch._relative_offset = offset
    if is_untimed:
        batch.close()
    return end


def _fill_with_any_names(batch: Any, rows: Sequence[Record], start: int, end: int) -> int:
    """Append rows to an empty batch, whatever the names of their headers are."""
    batch.take_any_names()
    named = [
        row._replace(headers=tuple((_Name(name), content) for name, content in row.headers))
        for row in rows[start:end]
    ]
    filled = start + fill(batch, named, 0)
    batch.close()
    return filled


def fill_with_origins(
    batch: Any, rows: Sequence[Record], start: int, origins: Sequence[Origin], batch_bytes: int
) -> int:
    """The same for records on a repartition topic: each is told where it came from.

    A row stands before a run of them. A record that does not fit beside a row has a header.
    """
    run_max = min(_RUN_MAX, batch_bytes // _PARTS_OF_BATCH // RUN_RECORD_BYTES)
    end = min(len(rows), start + run_max)
    if end - start < _RUN_MIN:
        return start + fill(batch, _with_headers(rows, origins, start, start + _RUN_MIN), 0)
    first = rows[start]
    row = first._replace(key=None, value=None, headers=run_headers(origins[start:end]))
    if batch.size() + _bytes_at_most(row) + _bytes_at_most(first) > batch_bytes:
        if batch.record_count() == 0:
            return start + fill(batch, _with_headers(rows, origins, start, start + 1), 0)
        batch.close()
        return start
    fill(batch, [row], 0)
    return start + fill(batch, rows[start:end], 0)


def _with_headers(
    rows: Sequence[Record], origins: Sequence[Origin], start: int, end: int
) -> list[Record]:
    return [
        row._replace(headers=(*row.headers, origin_header(*origin)))
        for row, origin in zip(rows[start:end], origins[start:end], strict=True)
    ]


def _bytes_at_most(row: Record) -> int:
    headers = list(row.headers)
    size: int = DefaultRecordBatchBuilder.estimate_size_in_bytes(row.key, row.value, headers)
    return size


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
