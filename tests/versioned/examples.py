"""Short ways to write records and rows that count what is read and written."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.contracts.record import Headers, Record
from headrace.spark_jobs.versioned.arrival import Arrival
from headrace.spark_jobs.versioned.state import MemoryRows

FIRST, SECOND = 0, 1


def record(  # noqa: PLR0913 (a record has that many fields)
    key: bytes | None,
    value: bytes | None,
    time_ms: int,
    *,
    headers: Headers = (),
    topic: str = "topic",
    partition: int = 0,
    offset: int | None = 0,
) -> Record:
    """A record of which only the first three matter."""
    return Record(key, value, time_ms, headers, topic, partition, offset)


def first(key: bytes | None, value: bytes | None, time_ms: int) -> Arrival:
    """A record of the first input: the table, or the left one."""
    return Arrival(FIRST, record(key, value, time_ms))


def second(key: bytes | None, value: bytes | None, time_ms: int) -> Arrival:
    """A record of the second input: the stream, or the right table."""
    return Arrival(SECOND, record(key, value, time_ms))


class CountedRows(MemoryRows):
    """Rows that remember which of them were read and written."""

    def __init__(self) -> None:
        super().__init__()
        self.was_read: set[str] = set()
        self.was_written: set[str] = set()
        self.scans = 0

    def scan(self, names: Sequence[str]) -> list[bytes | None]:
        """The rows of these names."""
        self.scans += 1
        return super().scan(names)

    def get(self, name: str, _: object = None) -> bytes | None:  # type: ignore[override]
        """The row of that name."""
        self.was_read.add(name)
        return super().get(name)

    def put(self, name: str, row: bytes) -> None:
        """Set a row."""
        self.was_written.add(name)
        super().put(name, row)

    def remove(self, name: str) -> None:
        """Forget a row."""
        self.was_written.add(name)
        super().remove(name)

    def forget_counts(self) -> None:
        """Count anew."""
        self.scans = 0
        self.was_read.clear()
        self.was_written.clear()
