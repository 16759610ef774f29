"""Reads changelogs of a real broker: several at once, committed records alone, and to the end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.structs import TopicPartition

from contracts.errors import StateCorrupt, StateTruncated
from contracts.record import Record, offset_of
from services.runtime.restorer import Restorer
from services.runtime.security import client_options
from services.settings import Settings
from tests.kafka.clients import fresh_name
from tests.kafka.fixtures import SharedKafka
from tests.runtime.sidecar import record

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
    restorer = Restorer(client_options(settings, "restore"), "read_committed", failures.append)
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
    """What was handed on, and in which thread."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.threads: set[str] = set()

    def __call__(self, records: list[Record]) -> None:
        """Take the next ones."""
        self.offsets += map(offset_of, records)
        self.threads.add(threading.current_thread().name)


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
        assert restorer.remaining(first) == restorer.remaining(second) == 0

    with_restorer(kafka, act)
    assert one.offsets == list(range(1_000))
    assert other.offsets == list(range(990, 1_000))
    assert late.offsets == []
    assert one.threads == {"restorer"}


def test_who_is_cancelled_is_handed_nothing_any_more(kafka: SharedKafka, changelog: str) -> None:
    is_called, may_return, has_returned = threading.Event(), threading.Event(), threading.Event()
    other = Taken()

    def take(_records: list[Record]) -> None:
        assert not has_returned.is_set()
        is_called.set()
        may_return.wait()

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

    def take(_records: list[Record]) -> None:
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


def test_what_is_open_is_not_read_and_not_taken_for_truncated(kafka: SharedKafka) -> None:
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
        # Nobody writes any more once the marker stands: the broker answers a commit before it.
        await asyncio.to_thread(kafka.clients.consume, topic, 10)
        assert await restorer.restore(partition, 11, taken, is_last=True) == 12
        with pytest.raises(StateTruncated, match=r"it ends at offset 12, .* up to 13"):
            await restorer.restore(partition, 13, taken, is_last=True)

    with_restorer(kafka, act)
    assert taken.offsets == [0, 1, 2, 3, 4]
