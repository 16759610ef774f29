"""Transactions by a broker's own files: no client ever sees those that were aborted.

A segment is a row of batches (version 2 of the format, big-endian):

    offset (8) length (4) epoch (4) version (1) checksum (4) attributes (2) last delta (4)
    first timestamp (8) last timestamp (8) producer (8) producer's epoch (2) sequence (4) count (4)

A batch of control holds one record, the marker that ends a transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import NamedTuple

_header = Struct(">qiibIhiqqqhii")
_VERSION = 2
_BEFORE_LENGTH_COUNTS = 12
_IS_TRANSACTIONAL, _IS_CONTROL = 0x10, 0x20
_MARKER_TYPE_AT = 8
"""In a marker: five numbers of one byte each, the key's version (2), and its type (2)."""


class _Batch(NamedTuple):
    attributes: int
    timestamp_ms: int
    producer: int
    records: int
    is_commit: bool


@dataclass
class Transactions:
    """The ends of the transactions that touched a topic, partition by partition."""

    committed: int = 0
    aborted: int = 0
    aborted_records: int = 0
    aborted_at: list[float] = field(default_factory=list)
    """When, by the wall clock in seconds; of those that had sent something."""

    def add(self, other: Transactions) -> None:
        """Both together."""
        self.committed += other.committed
        self.aborted += other.aborted
        self.aborted_records += other.aborted_records
        self.aborted_at += other.aborted_at


class Tail:
    """One partition's segments, read on as they grow."""

    def __init__(self, folder: Path) -> None:
        """Make it; `read_on` reads."""
        self._folder = folder
        self._segment = ""
        self._position = 0
        self._open: dict[int, int] = {}
        self.found = Transactions()

    @property
    def is_open(self) -> bool:
        """Whether a transaction has sent something here, and has not ended."""
        return bool(self._open)

    def read_on(self) -> None:
        """Take up what was written since the last time."""
        for batch in self._batches():
            if not batch.attributes & _IS_CONTROL:
                if batch.attributes & _IS_TRANSACTIONAL:
                    records = self._open.get(batch.producer, 0)
                    self._open[batch.producer] = records + batch.records
                continue
            records = self._open.pop(batch.producer, 0)
            if batch.is_commit:
                self.found.committed += 1
            elif records:
                self.found.aborted += 1
                self.found.aborted_records += records
                self.found.aborted_at.append(batch.timestamp_ms / 1000)

    def _batches(self) -> Iterator[_Batch]:
        for segment in sorted(self._folder.glob("*.log")):
            if segment.name < self._segment:
                continue
            if segment.name > self._segment:
                self._segment, self._position = segment.name, 0
            with segment.open("rb") as file:
                file.seek(self._position)
                yield from self._batches_in(file.read())

    def _batches_in(self, content: bytes) -> Iterator[_Batch]:
        start = 0
        while start + _header.size <= len(content):
            (_, length, _, version, _, attributes, _, first_ms, _, producer, _, _, records) = (
                _header.unpack_from(content, start)
            )
            end = start + _BEFORE_LENGTH_COUNTS + length
            # Space that was set aside is filled with zeros; the last batch may be half written; and
            # a segment that was compacted meanwhile has no batch where the old one had it.
            if version != _VERSION or length <= 0 or end > len(content):
                break
            marker = content[start + _header.size + _MARKER_TYPE_AT] if records else 0
            yield _Batch(attributes, first_ms, producer, records, marker == 1)
            self._position += end - start
            start = end


def transactions(data: Path, topic: str, partitions: int) -> Transactions:
    """All transactions of a topic."""
    whole = Transactions()
    for partition in range(partitions):
        tail = Tail(data / f"{topic}-{partition}")
        tail.read_on()
        whole.add(tail.found)
    return whole
