"""A topic between two hops, as it was: the service deletes what nobody needs any more.

Deleted records cannot be read by any client. But a broker deletes whole segments alone, never the
one it writes to, and first gives their files another name. So where a segment is rarely full (a
timestamp far ahead begins a new one), and such files stay, all that was ever written is there.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from aiokafka.record.memory_records import MemoryRecords

from headrace.contracts.record import Record

NEVER_FULL = {
    "segment.ms": "604800000",
    "segment.bytes": "1073741824",
    "file.delete.delay.ms": "604800000",
}
"""Settings of such a topic."""
_COMMIT = b"\x00\x00\x00\x01"
"""The key of a marker by which a transaction counts."""


def kept_records(data: Path, topic: str, partition: int) -> list[Record]:
    """Every record of a partition whose transaction was committed, deleted or not."""
    kept: list[Record] = []
    pending: dict[int, list[Record]] = defaultdict(list)
    for segment in sorted((data / f"{topic}-{partition}").glob("*.log*")):
        batches = MemoryRecords(segment.read_bytes())
        while batches.has_next():
            batch = batches.next_batch()
            if batch.is_control_batch:
                (marker,) = batch
                ended = pending.pop(batch.producer_id, [])
                kept += ended if bytes(marker.key) == _COMMIT else []
                continue
            into = pending[batch.producer_id] if batch.is_transactional else kept
            for one in batch:
                headers = tuple(one.headers)
                into.append(
                    Record(one.key, one.value, one.timestamp, headers, topic, partition, one.offset)
                )
    return sorted(kept, key=_offset_of)


def _offset_of(record: Record) -> int:
    return record.offset or 0
