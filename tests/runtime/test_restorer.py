"""Reads changelogs of a real broker: several at once, committed records alone, and to the end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.structs import TopicPartition

from headrace.contracts.errors import StateCorrupt, StateTruncated
from headrace.contracts.record import Record, offset_of
from headrace.services.kafka.records import record_of
from headrace.services.kafka.security import client_options
from headrace.services.runtime.changelog.restorer import Restorer, Take
from headrace.services.settings import Settings
from headrace.services.state.changelog import POSITION, Restoration
from headrace.services.state.partition import PartitionState
from headrace.services.state.rocks import RocksMemory
from tests.kafka.clients import fresh_name
from tests.kafka.fixtures import SharedKafka
from tests.runtime.sidecar import record

PATIENCE_S = 120.0
ROWS = [record(b"%d" % number, b"row", 1_000, (), number % 2) for number in range(2_000)]


@pytest.fixture(scope="module")
def changelog(kafka: SharedKafka) -> str:
    """A topic of two partitions: 1,000 rows each, and a marker behind them."""
    topic = kafka.clients.make_topic(fresh_name("changelog"), 2, {"retention.ms": "-1"})
    kafka.clients.produce_committed(topic, ROWS, fresh_name("owner"))
    # The broker answers a commit before its markers are written.
    kafka.clients.consume(topic, len(ROWS))
    return topic


@asynccontextmanager
async def restoring(kafka: SharedKafka) -> AsyncIterator[Restorer]:
    """A restorer that has not failed."""
    failures: list[BaseException] = []
    settings = Settings(bootstrap_servers=kafka.bootstrap_servers)
    restorer = Restorer(client_options(settings, "restore"), failures.append)
    await restorer.start()
    try:
        yield restorer
    finally:
        await restorer.stop()
    assert failures == []


def with_restorer(
    kafka: SharedKafka, act: Callable[[Restorer], Coroutine[None, None, None]]
) -> None:
    async def run() -> None:
        async with restoring(kafka) as restorer:
            await act(restorer)

    asyncio.run(run())


class Taken:
    """The rows that were handed on, and the threads that did it."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.threads: set[str] = set()

    def __call__(self, records: list[Record], _counts_before: int) -> int:
        """Take the next ones."""
        self.offsets += map(offset_of, records)
        self.threads.add(threading.current_thread().name)
        return 0


def test_each_partition_is_read_from_its_position_to_its_end(
    kafka: SharedKafka, changelog: str
) -> None:
    one, other, late = Taken(), Taken(), Taken()

    async def act(restorer: Restorer) -> None:
        first, second = TopicPartition(changelog, 0), TopicPartition(changelog, 1)
        ends = await asyncio.gather(
            restorer.restore(first, 0, one, is_last=True),
            restorer.restore(second, 990, other, is_last=True),
        )
        # Behind the rows stands a marker.
        assert list(ends) == [1_001, 1_001]
        assert await restorer.restore(first, 1_001, late, is_last=True) == 1_001
        assert not restorer.lag(first)
        assert not restorer.lag(second)

    with_restorer(kafka, act)
    assert one.offsets == list(range(1_000))
    assert other.offsets == list(range(990, 1_000))
    assert late.offsets == []
    assert one.threads == {"restorer"}


def test_a_copy_that_has_more_than_its_changelog_is_corrupt(
    kafka: SharedKafka, changelog: str
) -> None:
    async def act(restorer: Restorer) -> None:
        with pytest.raises(StateCorrupt, match="ends at offset 1001, and was read up to 1002"):
            await restorer.follow(TopicPartition(changelog, 0), 1_002, Taken())

    with_restorer(kafka, act)


def test_a_caller_that_is_cancelled_is_handed_no_more_rows(
    kafka: SharedKafka, changelog: str
) -> None:
    is_called, may_return, has_returned = threading.Event(), threading.Event(), threading.Event()
    other = Taken()

    def take(_records: list[Record], _counts_before: int) -> int:
        assert not has_returned.is_set()
        is_called.set()
        may_return.wait()
        return 0

    async def act(restorer: Restorer) -> None:
        first = TopicPartition(changelog, 0)
        restored = asyncio.ensure_future(restorer.restore(first, 0, take, is_last=True))
        await asyncio.to_thread(is_called.wait)
        restored.cancel()
        await asyncio.sleep(0)
        # It may not go before the last row was taken: its state is closed next.
        assert not restored.done()
        may_return.set()
        with pytest.raises(asyncio.CancelledError):
            await restored
        has_returned.set()
        await restorer.restore(TopicPartition(changelog, 1), 0, other, is_last=True)

    with_restorer(kafka, act)
    assert other.offsets == list(range(1_000))


def test_a_row_that_cannot_be_taken_fails_its_own_partition_alone(
    kafka: SharedKafka, changelog: str
) -> None:
    other = Taken()

    def take(_records: list[Record], _counts_before: int) -> int:
        message = "not a row"
        raise StateCorrupt(message)

    async def act(restorer: Restorer) -> None:
        results = await asyncio.gather(
            restorer.restore(TopicPartition(changelog, 0), 0, take, is_last=True),
            restorer.restore(TopicPartition(changelog, 1), 0, other, is_last=True),
            return_exceptions=True,
        )
        assert isinstance(results[0], StateCorrupt)
        assert results[1] == 1_001

    with_restorer(kafka, act)
    assert other.offsets == list(range(1_000))


def test_an_end_far_behind_its_rows_is_looked_for_and_not_waited_for(
    kafka: SharedKafka, tmp_path: Path
) -> None:
    # As compaction leaves it: rows of many commits, the end of the last; and behind it a torn one.
    rows = [_row(number, bytes(1_000)) for number in range(20_000)]
    torn = [_row(number, b"torn") for number in range(300)]
    topic = kafka.clients.make_topic(fresh_name("changelog"), 1, {"retention.ms": "-1"})
    kafka.clients.produce(topic, [*rows, record(POSITION, bytes(16), 1_000), *torn])
    place = TopicPartition(topic, 0)
    waited: list[int] = []

    def taking(restoration: Restoration, upto: int) -> Take:
        def take(records: list[Record], counts_before: int) -> int:
            if offset_of(records[0]) >= upto:
                message = "cut off"
                raise StateCorrupt(message)
            waited.append(restoration.take(map(record_of, records), counts_before))
            return waited[-1]

        return take

    async def act(restorer: Restorer) -> None:
        for upto in (10_000, 100_000):
            state = PartitionState(tmp_path / "0", "clicks", RocksMemory(16 << 20), 0)
            restoration, start = state.restoration(), state.changelog_position
            restoring = restorer.restore(place, start, taking(restoration, upto), is_last=True)
            if upto == 10_000:
                with pytest.raises(StateCorrupt, match="cut off"):
                    await restoring
                # It was told what counts, and goes on there.
                assert state.changelog_position >= 4_000
                assert state.position is None
            else:
                assert start >= 4_000
                assert await restoring == 20_301
                state.check_whole("c/0")
                assert (state.changelog_position, state.position) == (20_001, 0)
                view = state.overlay.view("r")
                found = dict(view.range(view.prefix, view.prefix + b"\xff"))
                assert set(found.values()) == {bytes(1_000)}
                assert len(found) == 20_000
                assert len(restoration.left_open()) == 300
            state.close()

    with_restorer(kafka, act)
    # The most that may wait, and one fetch on top.
    assert max(waited) < 20 << 20


def _row(number: int, row: bytes) -> Record:
    return record(b"\x01r%d" % number, row, 1_000)


def test_an_open_transaction_is_not_read_and_not_taken_for_truncated(kafka: SharedKafka) -> None:
    topic = kafka.clients.make_topic(fresh_name("changelog"))
    kafka.clients.produce_committed(topic, ROWS[:10:2], fresh_name("owner"))
    kafka.clients.consume(topic, 5)
    partition, taken = TopicPartition(topic, 0), Taken()

    async def act(restorer: Restorer) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=kafka.bootstrap_servers, transactional_id=fresh_name("owner")
        )
        async with producer, producer.transaction():
            for number in range(5):
                await producer.send_and_wait(topic, b"open", b"%d" % number, 0)
            # Offsets 6 to 10 are open, and 11 may be what a state reached whose commit was
            # answered and is not marked yet.
            assert await restorer.restore(partition, 0, taken, is_last=False) == 6
            assert await restorer.restore(partition, 11, taken, is_last=False) == 11
        # No write follows once the marker stands: the broker answers a commit before it.
        await asyncio.to_thread(kafka.clients.consume, topic, 10)
        assert await restorer.restore(partition, 11, taken, is_last=True) == 12
        with pytest.raises(StateTruncated, match=r"it ends at offset 12, .* up to 13"):
            await restorer.restore(partition, 13, taken, is_last=True)

    with_restorer(kafka, act)
    assert taken.offsets == [0, 1, 2, 3, 4]
