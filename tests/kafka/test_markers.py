"""Ends of transactions and values, read out of a partition's own log, whatever a broker answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from struct import pack, pack_into
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaError, OffsetOutOfRangeError
from aiokafka.protocol.fetch import FetchRequest, FetchResponse_v11
from aiokafka.protocol.offset import OffsetRequest_v3, OffsetResponse_v3
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.structs import TopicPartition

from headrace.services.kafka.markers import Marker, last_marker, last_value

PLACE = TopicPartition("changelog", 0)
PRODUCER = 7
_ATTRIBUTES, _COUNT, _HEADER = 21, 57, 61
_CONTROL = 0x30
THROTTLED = FetchResponse_v11(1, 0, 0, [])


def batch(offset: int, key: bytes, value: bytes, *, epoch: int = 0) -> bytes:
    """A batch of one record at an offset."""
    made = DefaultRecordBatchBuilder(2, 0, 1, PRODUCER, epoch, 0, 1 << 10)
    assert made.append(0, 1_000, key, value, []) is not None
    return pack(">q", offset) + bytes(made.build())[8:]


def marker(offset: int, *, epoch: int, commits: bool) -> bytes:
    """The batch that ends a transaction."""
    made = bytearray(batch(offset, pack(">hh", 0, commits), pack(">hi", 0, 0), epoch=epoch))
    pack_into(">h", made, _ATTRIBUTES, _CONTROL)
    return bytes(made)


def emptied(whole: bytes) -> bytes:
    """Return a batch as compaction leaves the last one of a producer: without records."""
    made = bytearray(whole[:_HEADER])
    pack_into(">i", made, 8, _HEADER - 12)
    pack_into(">i", made, _COUNT, 0)
    return bytes(made)


class Log:
    """A client of the partition's leader, which answers each fetch with the next of these."""

    def __init__(self, end: int, *fetched: Any) -> None:
        """Its log begins at 0."""
        self.cluster = SimpleNamespace(leader_for_partition=lambda _: 1)
        self._end = end
        self._fetched: Iterator[Any] = iter(fetched)

    async def send(self, _: int, request: Any) -> Any:
        """Answer."""
        if isinstance(request, FetchRequest):
            return next(self._fetched)
        ((topic, ((number, when),)),) = request.build(OffsetRequest_v3).topics
        offset = self._end if when == -1 else 0
        return OffsetResponse_v3(0, [(topic, [(number, 0, -1, offset)])])


def read(shown_to: int, *batches: bytes) -> FetchResponse_v11:
    """The answer of a leader that knows so many records to be on all replicas."""
    row: tuple[Any, ...] = 0, 0, shown_to, shown_to, 0, [], -1, b"".join(batches)
    return FetchResponse_v11(0, 0, 0, [(PLACE.topic, [row])])


def last_end(log: Log) -> Marker | None:
    return asyncio.run(last_marker(log, PLACE, PRODUCER))


def value_of(log: Log) -> bytes | None:
    return asyncio.run(last_value(log, PLACE, PRODUCER, b"key", 0))


def test_a_throttled_fetch_is_made_again() -> None:
    whole = read(2, batch(0, b"key", b"value"), marker(1, epoch=3, commits=True))
    assert last_end(Log(2, THROTTLED, whole)) == Marker(3, commits=True)
    assert value_of(Log(2, THROTTLED, THROTTLED, whole)) == b"value"


def test_a_leader_that_has_not_caught_up_with_its_predecessor_is_asked_again() -> None:
    with pytest.raises(KafkaError) as raised:
        value_of(Log(2, read(1, batch(0, b"key", b"old")), read(1)))
    assert raised.value.retriable


def test_a_log_whose_last_batches_were_compacted_away_ends_before_its_end() -> None:
    assert value_of(Log(9, read(9, batch(0, b"key", b"value")), read(9))) == b"value"


def test_a_marker_that_compaction_emptied_says_nothing() -> None:
    empty = emptied(marker(2, epoch=5, commits=False))
    assert last_end(Log(3, read(3, marker(1, epoch=4, commits=True), empty))) == Marker(
        4, commits=True
    )
    assert last_end(Log(3, read(3, empty))) is None


def test_a_log_that_begins_later_by_now_is_asked_again() -> None:
    row: tuple[Any, ...] = 0, OffsetOutOfRangeError.errno, -1, -1, -1, [], -1, b""
    cut = FetchResponse_v11(0, 0, 0, [(PLACE.topic, [row])])
    with pytest.raises(OffsetOutOfRangeError) as raised:
        last_end(Log(2, cut))
    assert raised.value.retriable
