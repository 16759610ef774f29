"""A state knows the last record of its cleaned partition, whoever cleaned it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka.structs import TopicPartition

from headrace.contracts.origin import IDLE
from headrace.contracts.progress import read_progress
from headrace.contracts.record import NO_TIME_MS
from headrace.services.runtime.changelog.restorer import BeginsLaterError, Restorer, Take
from headrace.services.runtime.output.exits import Exits, Reached
from headrace.services.runtime.task.cleaned import check_cleaned
from headrace.services.state.partition import PartitionState
from headrace.services.state.rocks import MEMORY_BYTES, RocksMemory
from headrace.spark_jobs.versioned.progress import ProgressRow, TaskProgress
from headrace.spark_jobs.versioned.state import MemoryRows, TaskState
from tests.runtime.sidecar import record

CLEANED = TopicPartition("cleaned", 0)
READ, WRITE, UNSAID = 1 << 3, 1 << 4, -(1 << 31)
"""Operations as bits, by the numbers that Kafka gives them."""


class _Log:
    """A partition that begins and ends somewhere, with records at some offsets between markers."""

    def __init__(self, first: int, records: list[int], end: int, rights: int = 0) -> None:
        self._first, self._records, self._end = first, records, end
        self._rights = rights
        self.read: list[int] = []

    async def ask(self, _request: Any) -> Any:
        """Tell what we may do with the topic, as a broker does."""
        return SimpleNamespace(topics=[(0, CLEANED.topic, False, [], self._rights)])

    async def end_of_log(self, _: TopicPartition) -> int:
        return self._end

    async def restore(
        self, partition: TopicPartition, start: int, take: Take, *, is_last: bool
    ) -> int:
        assert not is_last
        if start < self._first:
            raise BeginsLaterError(self._first, start)
        for at in (one for one in self._records if one >= start):
            self.read.append(at)
            take([record(b"k", b"v", 1)._replace(topic=partition.topic, offset=at)], 0)
        return self._end


def _known_behind(
    folder: Path, known: int | None, log: _Log, *, may_read: bool = True
) -> int | None:
    """Return the record that a state knows as the last, once it was opened over a log."""
    state = PartitionState(folder / "0", "clicks", RocksMemory(MEMORY_BYTES), 1)
    try:
        if known is not None:
            state.know_cleaned(known)
        restorer = cast("Restorer", log)
        asyncio.run(check_cleaned(restorer, CLEANED, state, may_read=may_read))
        return state.cleaned_offset
    finally:
        state.close()


@pytest.mark.parametrize(
    ("known", "log", "last"),
    [
        # A pipeline that was reset, and has not cleaned anything since.
        (None, _Log(0, [0, 1, 97], 99), 97),
        # Transactions that were aborted fill the end.
        (None, _Log(0, [3], 5_000), 3),
        (None, _Log(40, [41], 5_000), 41),
        (None, _Log(0, [], 0), None),
        # All of it was deleted, or never counted.
        (None, _Log(99, [], 99), None),
        (None, _Log(0, [], 7), None),
        # The topic was made anew, and others have written to it.
        (120, _Log(0, [0, 1], 3), 1),
        (120, _Log(0, [], 0), None),
    ],
)
def test_a_state_finds_the_last_record_of_the_topic_that_there_is(
    tmp_path: Path, known: int | None, log: _Log, last: int | None
) -> None:
    assert _known_behind(tmp_path, known, log) == last


def test_a_state_that_knows_the_last_record_reads_none(tmp_path: Path) -> None:
    log = _Log(0, [0, 1, 97, 98], 100)
    assert _known_behind(tmp_path, 97, log) == 97
    assert log.read == []


@pytest.mark.parametrize(("known", "last"), [(None, None), (120, None), (41, 41)])
def test_a_topic_that_we_may_not_read_is_not_read(
    tmp_path: Path, known: int | None, last: int | None
) -> None:
    log = _Log(0, [0, 41], 43)
    assert _known_behind(tmp_path, known, log, may_read=False) == last
    assert log.read == []


def test_a_state_that_is_kept_at_least_once_finds_the_record_of_an_earlier_life(
    tmp_path: Path,
) -> None:
    log = _Log(0, [0, 41], 43, READ)
    assert _known_behind(tmp_path, None, log, may_read=False) == 41


@pytest.mark.parametrize("rights", [WRITE, UNSAID])
def test_a_topic_is_not_read_where_brokers_do_not_say_that_we_may(
    tmp_path: Path, rights: int
) -> None:
    log = _Log(0, [0, 41], 43, rights)
    assert _known_behind(tmp_path, None, log, may_read=False) is None
    assert log.read == []


def test_readers_do_not_wait_for_an_idle_partition_behind_records_of_an_earlier_life() -> None:
    exits = SimpleNamespace(
        source_state=IDLE,
        _partition=0,
        _hop=SimpleNamespace(topic="raw"),
        _milestone=0,
        _says_who=False,
    )
    last = 250_000
    reached = Reached(0, NO_TIME_MS, NO_TIME_MS, NO_TIME_MS, last)
    # A milestone that earlier rows have said stays as it is.
    ((key, value),) = Exits._about(cast("Exits", exits), reached)  # noqa: SLF001 - of a commit
    row = read_progress(key, value)
    assert row is not None
    reader = TaskProgress(TaskState(MemoryRows()), {"cleaned:0", "other:0"}, {})
    reader.add("cleaned:0", ProgressRow(8_000, last))
    reader.add("other:0", ProgressRow(9_000, None))
    reader.read_up_to("cleaned:0", last)
    assert reader.lowest() == ("cleaned:0", 8_000)
    reader.add("cleaned:0", ProgressRow(row.progress_ms, row.cleaned_offset, row.stream_time_ms))
    assert reader.lowest() == ("other:0", 9_000)
