"""The end of each transaction of one producer by a partition's own log, and those that are open.

Consumers are shown neither, so this reads whole batches.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from aiokafka.errors import LeaderNotAvailableError, OffsetOutOfRangeError, for_code
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.record.control_record import COMMIT_MARKER, ControlRecord
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.structs import TopicPartition

_EARLIEST, _LATEST = -2, -1
_READ_UNCOMMITTED = 0
_WAIT_MS = 500
_FETCH_BYTES = 1 << 20
_BACK_OFFSETS = 200
"""How far behind its end a log is searched at first: a marker of its only writer is near."""
_FURTHER = 10


class _CutError(OffsetOutOfRangeError):  # type: ignore[misc]  # aiokafka has no types
    """The log begins or ends elsewhere since its bounds were asked for; ask again."""

    retriable = True


class Marker(NamedTuple):
    """The end of a transaction, as a partition was told."""

    producer_epoch: int
    commits: bool


def leader_of(client: Any, place: TopicPartition) -> int:
    """Return the leader of a partition; raise an error that passes where there is none."""
    leader: int | None = client.cluster.leader_for_partition(place)
    if leader is None or leader < 0:
        raise LeaderNotAvailableError(str(place))
    return leader


async def last_marker(client: Any, place: TopicPartition, producer_id: int) -> Marker | None:
    """The last end of a transaction of this producer that a partition knows of."""
    first, end = await _offset(client, place, _EARLIEST), await _offset(client, place, _LATEST)
    start, back = end, _BACK_OFFSETS
    while start > first:
        end_of_part, start = start, max(first, end - back)
        found = None
        async for batch in _batches(client, place, start, end_of_part):
            if batch.is_control_batch and batch.producer_id == producer_id:
                found = _marker_in(batch) or found
        if found is not None:
            return found
        back *= _FURTHER
    return None


async def last_value(
    client: Any, place: TopicPartition, producer_id: int, key: bytes, first: int
) -> bytes | None:
    """The last value that this producer has written for a key, from an offset on; None if none."""
    value = None
    end = await _offset(client, place, _LATEST)
    async for batch in _batches(client, place, first, end):
        if batch.producer_id == producer_id and not batch.is_control_batch:
            for record in batch:
                value = record.value if record.key == key else value
    return value


def _marker_in(batch: Any) -> Marker | None:
    """The end that a batch tells; None where compaction has left the empty batch alone."""
    for record in batch:
        return Marker(batch.producer_epoch, ControlRecord.parse(record.key) == COMMIT_MARKER)
    return None


async def _offset(client: Any, place: TopicPartition, when: int) -> int:
    asked = [(place.topic, [(place.partition, when)])]
    answer = await client.send(
        leader_of(client, place), OffsetRequest(-1, _READ_UNCOMMITTED, asked)
    )
    ((_, ((_, code, _, offset, *_),)),) = answer.topics
    _check(code, place)
    found: int = offset
    return found


async def _batches(client: Any, place: TopicPartition, start: int, end: int) -> AsyncIterator[Any]:
    """Batches between two offsets; the first may begin earlier, and the last end later."""
    while start < end:
        asked = [(place.topic, [(place.partition, start, _FETCH_BYTES)])]
        request = FetchRequest(_WAIT_MS, 1, _FETCH_BYTES, _READ_UNCOMMITTED, asked)
        answer = await client.send(leader_of(client, place), request)
        if not answer.topics:  # A quota is used up: the broker tells nothing until it may again.
            await asyncio.sleep(answer.throttle_time_ms / 1000)
            continue
        ((_, ((_, code, shown_to, *_, data),)),) = answer.topics
        _check(code, place)
        records = MemoryRecords(data)
        if not records.has_next():
            # A new leader shows the last records once it knows that its predecessor has shown them.
            if shown_to < end:
                raise LeaderNotAvailableError(str(place))
            return
        while records.has_next():
            batch: Any = records.next_batch()
            yield batch
            start = batch.next_offset


def _check(code: int, place: TopicPartition) -> None:
    error = for_code(code)
    if error is OffsetOutOfRangeError:
        raise _CutError(str(place))
    if code:
        raise error(str(place))
