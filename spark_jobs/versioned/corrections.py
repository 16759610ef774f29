"""Corrections of joined records by a version that comes late (KIP-914's deferred idea).

A version is valid from its own time until that of the next one. Stream records of that time that
have left meet another value now, if it differs from the one before. So the join keeps records by
key for as long as a version may still come before them: as long as the table's history. No look-up
tells the time before that, so there are no corrections there.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from headrace.spark_jobs.versioned.layout import decode_held, encode_held
from headrace.spark_jobs.versioned.state import Buckets
from headrace.spark_jobs.versioned.table_rows import TableRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.contracts.record import Record
    from headrace.spark_jobs.versioned.arrival import Arrival
    from headrace.spark_jobs.versioned.state import TaskState
    from headrace.spark_jobs.versioned.tables import Table

_time_of = attrgetter("timestamp_ms")


class Correction(NamedTuple):
    """A record that was joined, or found no match, and the value that it meets now."""

    cause: int
    """Index, in the batch, of the table's record that changes it."""
    record: Record
    table_value: bytes | None
    """None where it meets no value any more."""


class Corrections:
    """The stream's records that have left, by key and time."""

    def __init__(self, state: TaskState, name: str, table: Table) -> None:
        """Take a versioned table whose rows are found by the keys of its records."""
        self._table = table
        # A look-up goes to the nearest store.
        self._store = table.versioned_stores()[0]
        self._buckets = Buckets(TableRows(state, name), decode_kept, encode_kept)
        state.add(self)

    def keep(self, records: Sequence[Record]) -> None:
        """Keep leaving records, if a version may still come before them."""
        horizon_ms = self._horizon_ms
        for record in records:
            if record.key is not None and record.timestamp_ms >= horizon_ms:
                kept = self._buckets.to_change(record.key).setdefault(record.key, [])
                insort(kept, record, key=_time_of)

    def take(self, cause: int, arrival: Arrival) -> list[Correction]:
        """Hand a record to the table; return the stream records that it changes, by time."""
        changed = self._kept_from(arrival.record)
        before = self._table.values_as_of(changed)
        self._table.take(cause, arrival)
        after = self._table.values_as_of(changed)
        return [
            Correction(cause, record, new)
            for record, old, new in zip(changed, before, after, strict=True)
            if old != new
        ]

    def save(self) -> None:
        """Write out changed buckets, without records that no version can change any more."""
        self._buckets.save(self._clean)

    def _clean(self, bucket: dict[bytes, list[Record]]) -> None:
        horizon_ms = self._horizon_ms
        for key, kept in list(bucket.items()):
            del kept[: bisect_left(kept, horizon_ms, key=_time_of)]
            if not kept:
                del bucket[key]

    @property
    def _horizon_ms(self) -> int:
        return self._store.time_ms - self._store.retention_ms

    def _kept_from(self, version: Record) -> list[Record]:
        if version.key is None:
            return []
        kept = self._buckets.to_read(version.key).get(version.key, [])
        return kept[bisect_left(kept, version.timestamp_ms, key=_time_of) :]


def encode_kept(bucket: dict[bytes, list[Record]]) -> bytes:
    """Encode a bucket of records that have left, by key."""
    rows = [record for key in sorted(bucket) for record in bucket[key]]
    return encode_held(sorted(enumerate(rows), key=lambda row: (row[1].timestamp_ms, row[0])))


def decode_kept(row: bytes) -> dict[bytes, list[Record]]:
    """Decode the records of one bucket, by key and then by time."""
    bucket: dict[bytes, list[Record]] = {}
    for _, record in decode_held(row):
        assert record.key is not None
        bucket.setdefault(record.key, []).append(record)
    return bucket
