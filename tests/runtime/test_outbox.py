"""One partition's way out, beside another that has the same transactional id, or had it."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Awaitable, Callable

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.errors import ProducerFenced
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from headrace.services.kafka.limits import Limits
from headrace.services.kafka.takeovers import Takeovers
from headrace.services.kafka.transactions import ConnectionLostError
from headrace.services.kafka.unfinished import Known, Takeover
from headrace.services.runtime.output.outbox import Outbox
from headrace.services.runtime.output.producer import Name, Producer
from tests.kafka.clients import FOREVER, fresh_name
from tests.kafka.fixtures import SharedKafka
from tests.runtime.sidecar import record

TIMEOUT_MS = 10_000
PATIENCE_S = 120.0
ONE = [record(b"k", b"v", 1_000)]


def producer(servers: str, topic: str) -> Producer:
    """A producer under this topic's name."""
    name = Name(f"{topic}/0", TIMEOUT_MS, Known({topic: None}))
    return Producer({"bootstrap_servers": servers}, topic, name)


def outbox(servers: str, topic: str) -> Outbox:
    """A way out to this topic."""
    return Outbox(producer(servers, topic), Limits({}))


async def write(out: Outbox, topic: str) -> None:
    """Send a record, and wait until it is acknowledged."""
    await out.send(topic, 0, ONE)
    await out.settle()


async def begin_with_a_record(out: Outbox, topic: str) -> None:
    """Start, and send a record in a transaction."""
    await out.start()
    await out.begin()
    await write(out, topic)


async def tell(out: Outbox, topic: str) -> None:
    """Make an offset part of the transaction."""
    await out.tell_offsets({TopicPartition(topic, 0): OffsetAndMetadata(1, "")})


async def commit(out: Outbox, _: str) -> None:
    """End the transaction."""
    await out.commit()


@pytest.fixture
def topic(kafka: SharedKafka) -> str:
    return kafka.clients.make_topic(fresh_name("out"), 1, FOREVER)


async def begin(out: Outbox, _: str) -> None:
    """Begin the next one."""
    await out.begin()


@pytest.mark.parametrize("call", [write, tell, commit, begin])
def test_a_fenced_owner_is_told_so_by_every_call(
    kafka: SharedKafka, topic: str, call: Callable[[Outbox, str], Awaitable[None]]
) -> None:
    async def live() -> None:
        first, second = (outbox(kafka.bootstrap_servers, topic) for _ in range(2))
        await begin_with_a_record(first, topic)
        await second.start()
        with pytest.raises(ProducerFenced):
            await tell(first, topic)
        with pytest.raises(ProducerFenced):
            await call(first, topic)
        await first.stop()
        await second.stop()

    asyncio.run(live())


def test_an_owner_that_was_away_while_another_took_over_is_fenced_and_fences_no_other(
    kafka: SharedKafka, topic: str
) -> None:
    async def live() -> None:
        away, successor = (outbox(kafka.bootstrap_servers, topic) for _ in range(2))
        await begin_with_a_record(away, topic)
        await away.commit()
        away._way._lost_connection()  # type: ignore[attr-defined]  # noqa: SLF001 - its client does
        await begin_with_a_record(successor, topic)
        with pytest.raises(ProducerFenced):
            await away.begin()
        await successor.commit()
        for one in (away, successor):
            await one.stop()

    asyncio.run(live())
    assert len(kafka.clients.consume_all(topic)) == 2


async def cut_off(out: Outbox, *groups: ConnectionGroup) -> None:
    """End its connections of these groups, and wait until it has heard of it."""
    for (_, group), connection in out._way.producer.client._conns.items():  # noqa: SLF001
        if group in groups:
            connection._writer.transport.abort()  # noqa: SLF001
    way = out._way  # noqa: SLF001
    assert isinstance(way, Producer)
    while not way._has_lost_connection:  # noqa: ASYNC110, SLF001
        await asyncio.sleep(0)


@pytest.mark.parametrize("group", ConnectionGroup)
def test_within_a_transaction_nothing_is_sent_behind_a_lost_connection(
    kafka: SharedKafka, topic: str, group: ConnectionGroup, caplog: pytest.LogCaptureFixture
) -> None:
    async def live() -> None:
        out = outbox(kafka.bootstrap_servers, topic)
        await begin_with_a_record(out, topic)
        await cut_off(out, group)
        # It might stand behind a transaction that a dead broker has not ended everywhere.
        with pytest.raises(ConnectionLostError):
            await write(out, topic)
        await out.stop()

    asyncio.run(live())
    gc.collect()
    assert [each for each in caplog.records if "never retrieved" in each.getMessage()] == []
    assert len(kafka.clients.consume_all(topic, read_committed=False)) == 1


def test_a_lost_connection_ends_an_epoch(kafka: SharedKafka, topic: str) -> None:
    async def live() -> None:
        out = outbox(kafka.bootstrap_servers, topic)
        await out.start()
        epochs = []
        for is_lost in (False, False, True, False):
            if is_lost:
                await cut_off(out, *ConnectionGroup)
            await out.begin()
            await write(out, topic)
            await out.commit()
            epochs.append(out._way.producer._txn_manager.producer_epoch)  # noqa: SLF001
        await out.stop()
        first = epochs[0]
        assert epochs == [first, first, first + 1, first + 1]

    asyncio.run(live())
    assert len(kafka.clients.consume_all(topic)) == 4


def test_a_former_id_is_ended_once(kafka: SharedKafka, topic: str) -> None:
    former = f"former-{topic}-0"

    async def live() -> None:
        options = {"bootstrap_servers": kafka.bootstrap_servers}
        takeovers = Takeovers(options, [topic], TIMEOUT_MS)
        known = Known({topic: None})
        client = AIOKafkaClient(**options)
        await client.bootstrap()
        takeover = Takeover(client, former, TIMEOUT_MS, known)
        await takeovers.retire(former, known)
        assert await takeover.told() is None
        old = AIOKafkaProducer(**options, transactional_id=former)
        async with old:
            await old.begin_transaction()
            await old.send_and_wait(topic, b"never committed")
            await takeovers.retire(former, known)
            with pytest.raises(ProducerFenced):
                await old.send_and_wait(topic, b"too late")
        ended = await takeover.told()
        await takeovers.retire(former, known)
        assert await takeover.told() == ended
        async with AIOKafkaProducer(**options, transactional_id=former):
            # Somebody went back to an earlier version, and then on again.
            assert await takeover.told() != ended
        await takeovers.retire(former, known)
        await takeovers.close()
        await client.close()

    asyncio.run(live())
    assert kafka.clients.consume_all(topic) == []


def test_a_start_that_is_cancelled_is_over_when_it_says_so() -> None:
    async def live(silent: str) -> None:
        out = outbox(silent, "out")
        starting = asyncio.ensure_future(out.start())
        await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        await out.stop()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    # Connections come about, and nobody answers: so is a broker that is frozen.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        asyncio.run(live(f"127.0.0.1:{listener.getsockname()[1]}"))


def test_a_place_of_the_last_transaction_is_part_of_the_next_before_anything_is_sent(
    kafka: SharedKafka, topic: str
) -> None:
    async def live() -> None:
        out = outbox(kafka.bootstrap_servers, topic)
        await begin_with_a_record(out, topic)
        await out.commit()
        out.closed()
        await out.begin()
        out.announce_as_last()
        transaction = out._way.producer._txn_manager  # noqa: SLF001
        async with asyncio.timeout(PATIENCE_S):
            while TopicPartition(topic, 0) not in transaction.txn_partitions:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        # It had nothing to send there after all.
        await out.commit()
        out.closed()
        await out.begin()
        out.announce_as_last()
        assert not transaction.partitions_to_add()
        await write(out, topic)
        await out.commit()
        await out.stop()

    asyncio.run(live())
    assert len(kafka.clients.consume_all(topic)) == 2
