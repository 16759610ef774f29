"""What a fetch brought, as our records; with aiokafka's reader, which `seams` names and tests pin.

The library's reader makes an object of its own of each record, and gives up a whole fetch for one
header whose name is not UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aiokafka.consumer import fetcher
from aiokafka.record.default_records import _DefaultRecordBatchPy
from aiokafka.structs import TopicPartition

from contracts.record import Record


class Records(fetcher.PartitionRecords):  # type: ignore[misc]
    """Makes our record at once, instead of aiokafka's dataclass and then ours."""

    def __iter__(self) -> Iterator[Record]:
        """The generator itself, which saves a call a record."""
        records: Iterator[Record] = self._records_iterator
        return records

    def _unpack_records(self) -> Iterator[Record]:
        while True:
            try:
                yield from super()._unpack_records()
            except UnicodeDecodeError:
                # A header's name is not UTF-8: it harms its record, and not all that was fetched.
                data = self._records.data  # type: ignore[has-type]
                self._records = _FromOffset(data, self.next_fetch_offset)
            else:
                return

    def _consumer_record(self, tp: TopicPartition, record: Any) -> Record:
        headers = record.headers
        # Half the price of Record(...), which is a Python function.
        return _new_tuple(
            Record,
            (
                record.key,
                record.value,
                record.timestamp,
                tuple(headers) if headers else (),
                tp[0],
                tp[1],
                record.offset,
            ),
        )


_new_tuple = tuple.__new__


class Fetched(fetcher.MemoryRecords):  # type: ignore[misc]
    """What a fetch brought of a partition, kept to be read again."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.data = data


class _FromOffset:
    """The same from the batch on that has an offset; names in that batch may be any bytes."""

    def __init__(self, data: bytes, offset: int) -> None:
        start, end = 0, _batch_end(data, 0)
        self._first: Any = _AnyNames(data[:end])
        while self._first.next_offset <= offset:
            start, end = end, _batch_end(data, end)
            self._first = _AnyNames(data[start:end])
        self._rest = Fetched(data[end:])
        self.data = data

    def has_next(self) -> bool:
        return self._first is not None or self._rest.has_next()

    def next_batch(self) -> Any:
        first, self._first = self._first, None
        return self._rest.next_batch() if first is None else first


def _batch_end(data: bytes, start: int) -> int:
    """Where the batch ends that starts there: its length stands behind its first offset."""
    return start + 12 + int.from_bytes(data[start + 8 : start + 12])


class _AnyNames(_DefaultRecordBatchPy):  # type: ignore[misc]
    """A batch in which a header's name is text, whatever its bytes: those that are none escaped."""

    def __iter__(self) -> Any:
        super().__iter__()
        self._buffer = _AnyText(self._buffer)  # type: ignore[has-type]
        return self


class _AnyText(bytearray):
    """Its slices decode."""

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        return _AnyText(found) if isinstance(at, slice) else found

    def decode(self, encoding: str = "utf-8", errors: str = "surrogateescape") -> str:
        return super().decode(encoding, errors)


def install_records() -> None:
    """From now on every consumer of this process hands out `contracts.record.Record`."""
    fetcher.PartitionRecords = Records
    fetcher.MemoryRecords = Fetched
