"""What an outage left open under our name never counts, whatever the broker forgot."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

from aiokafka.structs import TopicPartition

from services.runtime.limits import Limits
from services.runtime.outbox import Outbox
from tests.kafka.clients import FOREVER, Clients
from tests.kafka.fixtures import OwnKafka
from tests.runtime.sidecar import record

PRODUCERS = 4
TOPICS = ("one", "two")
TIMEOUT_MS = 2_000
# Soon enough that a transaction times out while a broker that starts leads no partition yet.
FORGETFUL = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}


def test_records_that_a_broker_forgot_to_abort_are_aborted_before_anything_is_written(
    kafka_own: OwnKafka,
) -> None:
    broker = kafka_own(FORGETFUL)
    clients = Clients(broker.bootstrap_servers)
    for topic in TOPICS:
        clients.make_topic(topic, PRODUCERS, FOREVER)

    async def write(number: int, value: bytes) -> Outbox:
        client = {"bootstrap_servers": clients.servers}
        outbox = Outbox(client, "group", f"producer-{number}", TIMEOUT_MS, Limits({}))
        await outbox.start()
        await outbox.abort_unfinished(TOPICS)
        await outbox.begin()
        for topic in TOPICS:
            await outbox.send(topic, number, [record(b"k", value, 1_000)])
        await outbox.settle()
        return outbox

    async def commit(number: int, value: bytes) -> None:
        outbox = await write(number, value)
        await outbox.tell_offsets({TopicPartition(TOPICS[0], number): 1})
        await outbox.commit()
        await outbox.stop()

    async def each(act: Callable[[int, bytes], Awaitable[object]], value: bytes) -> list[object]:
        return [await act(number, value) for number in range(PRODUCERS)]

    async def outlive_the_broker() -> None:
        await each(commit, b"before")
        left_open = await each(write, b"never committed")
        broker.kill()
        broker.start()
        for outbox in left_open:
            assert isinstance(outbox, Outbox)
            await outbox.stop()
        await each(commit, b"after")

    asyncio.run(outlive_the_broker())
    for topic in TOPICS:
        counts = Counter(one.value for one in clients.consume_all(topic))
        assert counts == {b"before": PRODUCERS, b"after": PRODUCERS}
