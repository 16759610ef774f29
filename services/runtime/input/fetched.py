"""The records of a fetch, by aiokafka's reader, which `seams` names and tests pin.

The library's reader makes an object of its own of each record, and gives up a whole fetch for one
header whose name is not UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aiokafka.consumer import fetcher
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import _DefaultRecordBatchPy

from headrace.contracts.origin import Origin, origin_header, read_run, within
from headrace.contracts.record import Headers, Record


class Records(fetcher.PartitionRecords):  # type: ignore[misc]
    """Makes our record at once, in one loop: aiokafka calls two functions and makes two objects."""

    next_fetch_offset: int
    _records: Any

    def __iter__(self) -> Iterator[Record]:
        """The generator itself, which saves a call a record."""
        records: Iterator[Record] = self._records_iterator
        return records

    def _unpack_records(self) -> Iterator[Record]:
        topic, partition = self._tp
        while self._records.has_next():
            batch = self._records.next_batch()
            begun: _Begun | None = None
            try:
                for record in batch if self._is_for_readers(batch) else ():
                    offset, key, value = record.offset, record.key, record.value
                    found = record.headers
                    headers: Headers = tuple(found) if found else ()
                    if value is None and key is None:
                        headers = within(headers, batch.next_offset - offset - 1)
                    if offset < self.next_fetch_offset:
                        # The batch begins before what was asked for.
                        begun = _Begun.behind(begun, key, value, headers, offset)
                        continue
                    if begun is not None:
                        headers = begun.with_origin(offset, headers)
                    self.next_fetch_offset = offset + 1
                    # Half the price of Record(...), which is a Python function.
                    yield _new_tuple(
                        Record,
                        (
                            key,
                            value,
                            record.timestamp,
                            headers,
                            topic,
                            partition,
                            offset,
                        ),
                    )
            except UnicodeDecodeError:
                # A header's name is not UTF-8: it harms its record, and not all that was fetched.
                data = self._records.data
                self._records = _FromOffset(data, self.next_fetch_offset)
            else:
                # Records at the end of a batch may have been compacted away.
                self.next_fetch_offset = batch.next_offset

    def _is_for_readers(self, batch: Any) -> bool:
        """Whether a batch is neither a marker nor of a transaction that was aborted."""
        if self._check_crcs and not batch.validate_crc():
            message = f"a batch of {self._tp} was damaged on its way"
            raise CorruptRecordException(message)
        if self._isolation_level == fetcher.READ_COMMITTED and batch.producer_id is not None:
            self._consume_aborted_up_to(batch.base_offset)
            if batch.is_control_batch and self._contains_abort_marker(batch):
                self._aborted_producers.discard(batch.producer_id)
            if batch.is_transactional and batch.producer_id in self._aborted_producers:
                return False
        return not batch.is_control_batch


_new_tuple = tuple.__new__


class _Begun:
    """A run in which reading begins: its row was read before, so its records say all themselves."""

    def __init__(self, run: list[Origin], first: int) -> None:
        self._run = run
        self._first = first

    @classmethod
    def behind(
        cls, begun: _Begun | None, key: bytes | None, value: bytes | None, headers: Headers, at: int
    ) -> _Begun | None:
        """Return the run that a record begins which is not handed on; else the one before."""
        if value is not None or key is not None:
            return begun
        run = read_run(Record(key, value, 0, headers, "", 0, at))
        return begun if run is None else cls(run, at + 1)

    def with_origin(self, offset: int, headers: Headers) -> Headers:
        """The headers of a record, and its origin if it is one of the run."""
        place = offset - self._first
        if place < len(self._run):
            return (*headers, origin_header(*self._run[place]))
        return headers


class Fetched(fetcher.MemoryRecords):  # type: ignore[misc]
    """A fetch's records of a partition, kept to be read again."""

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
    """From now on every consumer of this process hands out `headrace.contracts.record.Record`."""
    fetcher.PartitionRecords = Records
    fetcher.MemoryRecords = Fetched
