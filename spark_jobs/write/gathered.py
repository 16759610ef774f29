"""Gather all rows of a task before the first is written: in memory, and on disk above a bound.

A transaction that is open while rows are computed needs a timeout as long as that may take, and
readers would wait as long if its task dies.
"""

from __future__ import annotations

from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Self

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_IN_MEMORY_BYTES = 64 << 20


class Gathered:
    """Collects tables of one schema, to read once all are there."""

    def __init__(self, in_memory_bytes: int = _IN_MEMORY_BYTES) -> None:
        """Begin empty; the file has no name, and ends with its process."""
        self._file = SpooledTemporaryFile(in_memory_bytes)  # noqa: SIM115 - __exit__ closes it
        self._writer: pa.RecordBatchStreamWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def size_bytes(self) -> int:
        """How many bytes were added."""
        return self._file.tell()

    def add(self, table: pa.RecordBatch) -> None:
        """Append the rows of a table."""
        if table.num_rows:
            if self._writer is None:
                self._writer = pa.ipc.new_stream(self._file, table.schema)
            self._writer.write_batch(table)

    def tables(self) -> Iterator[pa.RecordBatch]:
        """Yield all tables in their order; no more can be added afterwards."""
        if self._writer is not None:
            self._end(self._writer)
            yield from pa.ipc.open_stream(self._file)

    def packed(self) -> bytes:
        """Return all tables in bytes; there must be one, and no more can be added afterwards."""
        assert self._writer is not None, "who has no table has nothing to pack"
        self._end(self._writer)
        return self._file.read()

    def _end(self, writer: pa.RecordBatchStreamWriter) -> None:
        writer.close()
        self._file.seek(0)


def unpacked(packed: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the tables that were packed, in their order."""
    yield from pa.ipc.open_stream(packed)


def joined(tables: Iterable[pa.Table], bytes_max: int) -> Iterator[pa.Table]:
    """Join tables in their order into few, which have about so many bytes each."""
    waiting: list[pa.Table] = []
    size = 0
    for table in tables:
        waiting.append(table)
        size += table.nbytes
        if size >= bytes_max:
            yield pa.concat_tables(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.concat_tables(waiting)
