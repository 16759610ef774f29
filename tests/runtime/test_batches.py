"""Batches as we fill and read them past aiokafka's own ways: what is in them is the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.consumer import fetcher
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.structs import TopicPartition

from headrace.contracts.origin import NO_OFFSET, read_origin, read_run
from headrace.contracts.record import Record
from headrace.services.kafka import filling
from headrace.services.operators.lanes import Lanes
from headrace.services.operators.operator import Batch
from headrace.services.runtime.input.fetched import Fetched, Records
from headrace.services.state.changelog import ABOUT
from headrace.services.state.memory import MemoryStore
from headrace.services.state.overlay import Overlay
from tests.kafka.any_names import builder_of

HEADERS = (("a", b"1"), ("a", None), ("\u00e9", b""))
RECORDS = [
    Record(b"k", b"v" * size, 1_000 + size, HEADERS[: size % 4], "t", 3, 40 + size)
    for size in range(200)
]


def _filled(limit_bytes: int, start: int) -> tuple[bytes, int]:
    batch = BatchBuilder(limit_bytes, 0, is_transactional=False)
    end = filling.fill(batch, RECORDS, start)
    batch.close()
    return bytes(batch._build()), end  # noqa: SLF001 - what a producer calls


def _appended(limit_bytes: int, start: int) -> tuple[bytes, int]:
    batch = BatchBuilder(limit_bytes, 0, is_transactional=False)
    end = start
    while end < len(RECORDS):
        one = RECORDS[end]
        headers = list(one.headers)
        done = batch.append(
            timestamp=one.timestamp_ms, key=one.key, value=one.value, headers=headers
        )
        if done is None:
            break
        end += 1
    batch.close()
    return bytes(batch._build()), end  # noqa: SLF001 - what a producer calls


@pytest.mark.parametrize("limit_bytes", [1, 100, 1_000, 1 << 20])
def test_a_batch_is_filled_as_by_its_own_way(limit_bytes: int) -> None:
    start = 0
    while start < len(RECORDS):
        filled, end = _filled(limit_bytes, start)
        assert (filled, end) == _appended(limit_bytes, start)
        assert end > start, "a record that is too large is a batch by itself"
        start = end


def _read(
    classes: type, batch: bytes, fetch: Callable[[bytes], Any] = MemoryRecords, offset: int = 0
) -> list[Any]:
    memory = fetch(batch)
    place = TopicPartition("t", 3)
    records = classes(
        place,
        memory,
        [],
        offset,
        None,
        None,
        check_crcs=True,
        isolation_level=fetcher.READ_COMMITTED,
    )
    return list(records)


def test_records_come_as_ours_with_everything_in_them() -> None:
    batch, _ = _filled(1 << 20, 0)
    theirs, ours = _read(fetcher.PartitionRecords, batch), _read(Records, batch)
    assert ours == [one._replace(offset=at) for at, one in enumerate(RECORDS)]
    assert [
        (one.key, one.value, one.timestamp, tuple(one.headers), one.offset) for one in theirs
    ] == [(one.key, one.value, one.timestamp_ms, one.headers, one.offset) for one in ours]


@pytest.mark.parametrize("times_ms", [[-1, 5], [-1, -1, 5, -1], [5, -1, 7], [-1], [-1, -(1 << 63)]])
def test_a_record_without_a_time_keeps_none(times_ms: list[int]) -> None:
    records = [Record(b"k", b"v", at_ms, (), "t", 3, 0) for at_ms in times_ms]
    read = []
    start = 0
    while start < len(records):
        batch = BatchBuilder(1 << 20, 0, is_transactional=False)
        start = filling.fill(batch, records, start)
        batch.close()
        built = bytes(batch._build())  # noqa: SLF001 - what a producer calls
        read += [one.timestamp_ms for one in _read(Records, built)]
    assert read == times_ms


def test_a_fetcher_makes_what_was_installed() -> None:
    names = fetcher.Fetcher._proc_fetch_request.__code__.co_names  # noqa: SLF001
    assert {"PartitionRecords", "MemoryRecords"} <= {*names}, "it finds the classes elsewhere now"


def _batch_with_names(first_offset: int, names: list[str], compression: int) -> bytes:
    records = [Record(b"k", b"v", 5, ((name, b"v"),), "t", 3, None) for name in names]
    batch = bytes(builder_of(records, compression).build())
    return first_offset.to_bytes(8) + batch[8:]


@pytest.mark.parametrize("compression", [0, 1, 4])
@pytest.mark.parametrize("offset", [0, 2, 7])
def test_a_name_that_is_not_utf8_harms_nothing_else_that_was_fetched(
    compression: int, offset: int
) -> None:
    names = ["a", "\udcff\x00", "\u00e9", "b", "\udced\udca0\udc80", "c", "d", "e"]
    fetched = b"".join(
        _batch_with_names(first, names[first : first + 2], compression) for first in (0, 2, 4, 6)
    )
    records = _read(Records, fetched, Fetched, offset)
    assert [(one.offset, one.headers) for one in records] == [
        (at, ((name, b"v"),)) for at, name in enumerate(names) if at >= offset
    ]


ORIGINS = [(2, NO_OFFSET if at % 7 == 0 else 3 * at, 900 + at) for at in range(len(RECORDS))]


def _spread(limit_bytes: int) -> list[bytes]:
    """The batches in which records go to a place that is told where they came from."""
    batches, start, end = [], 0, 0
    while start < len(RECORDS):
        batch = filling.new_batch(limit_bytes, is_transactional=False)
        while start < len(RECORDS) and not batch.closed():
            # Small parts and large ones go into the same batch.
            part = slice(start - start % 90, start - start % 90 + 90)
            at = start - part.start
            rows, origins = RECORDS[part], ORIGINS[part]
            start = part.start + filling.fill_with_origins(batch, rows, at, origins, limit_bytes)
        count = batch.record_count()
        batch.close()
        batches.append(end.to_bytes(8) + bytes(batch._build())[8:])  # noqa: SLF001 - as above
        end += count
    return batches


@pytest.mark.parametrize("limit_bytes", [1, 300, 1_000, 5_000, 1 << 20])
def test_a_reader_that_begins_at_any_offset_hears_where_records_came_from(limit_bytes: int) -> None:
    batches = _spread(limit_bytes)
    all_of_it = _read(Records, b"".join(batches))
    in_runs = [one for one in all_of_it if read_run(one) is not None]
    assert bool(in_runs) == (limit_bytes >= 5_000), "a row must not take a large part of a batch"
    expected = [
        (one[:4], lane, time_ms) for one, (lane, _, time_ms) in zip(RECORDS, ORIGINS, strict=True)
    ]
    ends = [_read(Records, batch)[-1].offset + 1 for batch in batches]
    for offset in range(ends[-1]):
        from_batch = sum(end <= offset for end in ends)
        read = _read(Records, b"".join(batches[from_batch:]), offset=offset)
        assert [one.offset for one in read] == list(range(offset, ends[-1]))
        taken = Lanes(Overlay(MemoryStore(), "p").view(ABOUT)).take(Batch.of(read))
        assert taken.origins is not None
        origins = zip(taken.origins.lanes, taken.origins.times_ms, strict=True)
        heard = [(one[:4], *origin) for one, origin in zip(taken.records, origins, strict=True)]
        assert heard == expected[len(expected) - len(heard) :]
        rows_before = sum(one.offset < offset for one in in_runs)
        assert len(heard) == len(expected) - (offset - rows_before)


def test_a_record_that_fills_a_batch_says_itself_where_it_came_from() -> None:
    rows = [one._replace(value=b"v" * (4_900 if at == 5 else 9)) for at, one in enumerate(RECORDS)]
    batches, start = [], 0
    while start < len(rows):
        batch = filling.new_batch(5_000, is_transactional=False)
        end = filling.fill_with_origins(batch, rows, start, ORIGINS, 5_000)
        assert end > start or batch.record_count() == 0, "nobody gets any further"
        batch.close()
        batches.append((start, end, _read(Records, bytes(batch._build()))))  # noqa: SLF001 - as above
        start = end
    (alone,) = next(read for start, end, read in batches if (start, end) == (5, 6))
    assert read_origin(alone.headers) == ORIGINS[5]
    assert read_run(batches[0][2][0]) is not None


@pytest.mark.parametrize("at", [0, 3])
def test_names_that_are_no_text_are_written_as_they_came(at: int) -> None:
    odd = (("a\udcff", b"1"), ("\u00e9", None))
    records = [one._replace(headers=odd) if one.offset == 40 + at else one for one in RECORDS[:6]]
    read: list[Record] = []
    while len(read) < len(records):
        batch = filling.new_batch(1 << 20, is_transactional=True)
        end = filling.fill(batch, records, len(read))
        batch._set_producer_state(7, 1, 2)  # noqa: SLF001 - what a producer calls
        assert batch.record_count() == end - len(read)
        read += _read(Records, bytes(batch._build()), Fetched)  # noqa: SLF001 - what a producer calls
        assert len(read) == end
    assert [one[:4] for one in read] == [one[:4] for one in records]
