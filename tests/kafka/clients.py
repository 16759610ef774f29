"""A test's requests to a broker: make a topic, write records, read all of them back.

Synchronous outside, aiokafka inside; each call opens its own connections, as few as it can, and
closes them, so nothing is left behind that a later restart of the broker could disturb.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.consumer.fetcher import READ_COMMITTED
from aiokafka.errors import (
    CoordinatorLoadInProgressError,
    GroupCoordinatorNotAvailableError,
    NotCoordinatorForGroupError,
    for_code,
)

from headrace.contracts.record import Record
from headrace.services.kafka.requests import UNSTABLE, OffsetsUnstableError, StableOffsets
from tests.kafka.making import client_of, described_in, make, wait_for_leaders

FOREVER = {"retention.ms": "-1"}
"""For topics whose records tell of long ago: Kafka deletes by the records' own time."""
WITHIN_S = 180.0
_POLL_MS = 100
_ASK_AGAIN_S = 0.02
_BATCH_BYTES = 256 << 10
_COMES_SOON = (
    CoordinatorLoadInProgressError,
    GroupCoordinatorNotAvailableError,
    NotCoordinatorForGroupError,
)
"""A young broker makes the topic of groups' offsets when first asked, and an older one loads it."""
_COMMITTED, _UNCOMMITTED = "read_committed", "read_uncommitted"


def fresh_name(word: str) -> str:
    """A topic, group or transaction that no other test of this run uses."""
    return f"{word}-{secrets.token_hex(4)}"


class _Transaction(NamedTuple):
    """Around the records that are written, and how it shall end."""

    transactional_id: str
    commits: bool


@dataclass(frozen=True)
class Clients:
    """Clients of the broker at these servers; `security` goes to aiokafka as it is."""

    servers: str
    security: Mapping[str, Any] = field(default_factory=dict)

    def make_topic(
        self, name: str, partitions: int = 1, settings: Mapping[str, str] | None = None
    ) -> str:
        """Make a topic, and return its name once every broker knows each partition's leader."""
        self.make_topics([name], partitions, settings)
        return name

    def make_topics(
        self, names: Iterable[str], partitions: int = 1, settings: Mapping[str, str] | None = None
    ) -> None:
        """Make topics alike, by one request."""
        # Replicas as the broker has it; aiokafka takes that only with assignments, empty ones too.
        asyncio.run(self._make_topics(names, partitions, dict(settings or {}), {}))

    def make_topic_on(self, broker: int, name: str, settings: Mapping[str, str]) -> str:
        """Make a topic of one partition that one broker alone has."""
        asyncio.run(self._make_topics([name], 1, dict(settings), {0: [broker]}))
        return name

    def produce(self, topic: str, records: Iterable[Record]) -> None:
        """Write records where they say: partition, timestamp, headers, nulls and all; acked."""
        asyncio.run(self._produce(topic, list(records), None))

    def produce_committed(
        self, topic: str, records: Iterable[Record], transactional_id: str
    ) -> None:
        """Write records in one transaction, and commit it."""
        transaction = _Transaction(transactional_id, commits=True)
        asyncio.run(self._produce(topic, list(records), transaction))

    def produce_aborted(self, topic: str, records: Iterable[Record], transactional_id: str) -> None:
        """Write records in one transaction, and abort it."""
        transaction = _Transaction(transactional_id, commits=False)
        asyncio.run(self._produce(topic, list(records), transaction))

    def consume_all(self, topic: str, *, read_committed: bool = True) -> list[Record]:
        """All that there is now, by partition and offset.

        If only what is committed counts, it is waited until no transaction hides any of it: the
        broker answers a commit before its markers are written.
        """
        if read_committed:
            return asyncio.run(self._consume_closed(topic))
        return self.consume(topic, 0, read_committed=False)

    def consume(
        self, topic: str, count: int, *, read_committed: bool = True, within_s: float = WITHIN_S
    ) -> list[Record]:
        """Wait until at least this many records can be read, and return everything that can."""
        level = _COMMITTED if read_committed else _UNCOMMITTED
        return asyncio.run(self._consume(topic, count, level, within_s))

    def end_offsets(self, topic: str, *, read_committed: bool = False) -> dict[int, int]:
        """Where each partition ends; if only what is committed counts, before open transactions."""
        return asyncio.run(self._end_offsets(topic, read_committed=read_committed))

    def committed_offsets(
        self, group: str, topics: Iterable[str] = ()
    ) -> dict[tuple[str, int], int]:
        """Return the offsets that a group has committed, by topic and partition.

        Wait for transactions that are on their way to these topics, and to those where it has some.
        """
        return asyncio.run(self._committed_offsets(group, topics))

    def topics(self) -> set[str]:
        """The topics that there are, Kafka's own left out."""
        return asyncio.run(self._topics())

    async def _make_topics(
        self,
        names: Iterable[str],
        partitions: int,
        settings: dict[str, str],
        replicas: dict[int, list[int]],
    ) -> None:
        count = -1 if replicas else partitions
        wanted = {
            name: NewTopic(name, count, -1, replica_assignments=replicas, topic_configs=settings)
            for name in names
        }
        async with AsyncExitStack() as stack:
            admin = await self._admin(stack)
            async with asyncio.timeout(WITHIN_S):
                await make(admin, wanted)
                for name in wanted:
                    await wait_for_leaders(client_of(admin), name, partitions)

    async def _topics(self) -> set[str]:
        async with AsyncExitStack() as stack:
            names = await (await self._admin(stack)).list_topics()
            return {name for name in names if not name.startswith("__")}

    async def _committed_offsets(
        self, group: str, topics: Iterable[str]
    ) -> dict[tuple[str, int], int]:
        async with AsyncExitStack() as stack:
            admin = await self._admin(stack)
            places: set[TopicPartition] = set()
            for described in await admin.describe_topics([*topics]) if topics else ():
                topic, partitions = described["topic"], described["partitions"]
                places |= {TopicPartition(topic, one["partition"]) for one in partitions}
            async with asyncio.timeout(WITHIN_S):
                while True:
                    try:
                        found = await admin.list_consumer_group_offsets(group)
                        wanted = places | found.keys()
                        client = client_of(admin)
                        coordinator = await coordinator_of(client, group)
                        return await stable_offsets(client, coordinator, group, wanted)
                    except (*_COMES_SOON, OffsetsUnstableError):
                        await asyncio.sleep(_ASK_AGAIN_S)

    async def _produce(
        self, topic: str, records: Sequence[Record], transaction: _Transaction | None
    ) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.servers,
            acks="all",
            enable_idempotence=True,
            max_batch_size=_BATCH_BYTES,
            transactional_id=transaction and transaction.transactional_id,
            **self.security,
        )
        async with AsyncExitStack() as stack:
            await producer.start()
            stack.push_async_callback(producer.stop)
            if transaction is not None:
                await producer.begin_transaction()
            await _send(producer, topic, records)
            if transaction is not None:
                await _end(producer, transaction)

    async def _consume(
        self, topic: str, count: int, isolation_level: str, within_s: float
    ) -> list[Record]:
        read: dict[TopicPartition, list[Any]] = defaultdict(list)
        give_up_at = time.monotonic() + within_s
        async with AsyncExitStack() as stack:
            consumer, places = await self._consumer(stack, topic, isolation_level)
            consumer.assign(places)
            while sum(map(len, read.values())) < count:
                await _read_on(consumer, read)
                so_far = sum(map(len, read.values()))
                if so_far < count and time.monotonic() > give_up_at:
                    message = f"{topic} has {so_far} records after {within_s} s, not {count}"
                    raise AssertionError(message)
            committed = isolation_level == _COMMITTED
            await _read_to(consumer, await consumer.end_offsets(places), read, committed=committed)
        return _sorted(read)

    async def _consume_closed(self, topic: str) -> list[Record]:
        read: dict[TopicPartition, list[Any]] = defaultdict(list)
        async with AsyncExitStack() as stack:
            consumer, places = await self._consumer(stack, topic, _UNCOMMITTED)
            ends = await consumer.end_offsets(places)
            # It has fetched nothing yet. Another consumer would connect once more.
            consumer._fetcher._isolation_level = READ_COMMITTED  # noqa: SLF001
            consumer.assign(places)
            await _wait_until_closed(consumer, topic, ends)
            await _read_to(consumer, await consumer.end_offsets(places), read, committed=True)
        return _sorted(read)

    async def _end_offsets(self, topic: str, *, read_committed: bool) -> dict[int, int]:
        level = _COMMITTED if read_committed else _UNCOMMITTED
        async with AsyncExitStack() as stack:
            consumer, places = await self._consumer(stack, topic, level)
            ends = await consumer.end_offsets(places)
            return {place.partition: end for place, end in sorted(ends.items())}

    async def _admin(self, stack: AsyncExitStack) -> AIOKafkaAdminClient:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.servers, **self.security)
        # It is closed also when it could not start: its metadata task runs already.
        stack.push_async_callback(admin.close)
        await admin.start()
        return admin

    async def _consumer(
        self, stack: AsyncExitStack, topic: str, isolation_level: str
    ) -> tuple[AIOKafkaConsumer, list[TopicPartition]]:
        """A consumer that fetches nothing yet, and what there is to be fetched."""
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.servers,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=4 << 20,
            isolation_level=isolation_level,
            **self.security,
        )
        stack.push_async_callback(consumer.stop)
        await consumer.start()
        client = client_of(consumer)
        described = await described_in(client, client.get_random_node(), topic)
        if described["error_code"]:
            raise for_code(described["error_code"])(topic)
        # Else its first question would find no leader, and come again in a tenth of a second.
        await client.set_topics([topic])
        return consumer, [
            TopicPartition(topic, one["partition"]) for one in described["partitions"]
        ]


async def coordinator_of(client: AIOKafkaClient, group: str) -> int:
    """Look the broker up that keeps a group's offsets."""
    return int(await client.coordinator_lookup(CoordinationType.GROUP, group))


async def stable_offsets(
    client: AIOKafkaClient, coordinator: int, group: str, places: Iterable[TopicPartition]
) -> dict[tuple[str, int], int]:
    """Ask for a group's offsets; OffsetsUnstableError where transactions are on their way."""
    answer = await client.send(coordinator, StableOffsets(group, places))
    if answer.error_code:
        # A broker that has just started still loads what groups have committed.
        raise for_code(answer.error_code)
    found = {}
    for topic, partitions, _ in answer.topics:
        for number, offset, _, _, code, _ in partitions:
            if code == UNSTABLE:
                raise OffsetsUnstableError
            if code:
                raise for_code(code)
            if offset >= 0:
                found[topic, number] = offset
    return found


async def _wait_until_closed(
    consumer: AIOKafkaConsumer, topic: str, ends: Mapping[TopicPartition, int]
) -> None:
    give_up_at = time.monotonic() + WITHIN_S
    while any(stable < ends[place] for place, stable in (await consumer.end_offsets(ends)).items()):
        if time.monotonic() > give_up_at:
            message = f"a transaction in {topic} is still open after {WITHIN_S} s"
            raise AssertionError(message)
        await asyncio.sleep(_ASK_AGAIN_S)


async def _send(producer: AIOKafkaProducer, topic: str, records: Sequence[Record]) -> None:
    """Whole batches: the only way past aiokafka's refusal of a record that is null twice."""
    parts: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        parts[record.partition].append(record)
    sent = []
    for partition, part in parts.items():
        batch = producer.create_batch()
        for record in part:
            if not _append(batch, record):
                sent.append(await producer.send_batch(batch, topic, partition=partition))
                batch = producer.create_batch()
                if not _append(batch, record):
                    message = f"a record of {len(record.value or b'')} bytes fits into no batch"
                    raise AssertionError(message)
        sent.append(await producer.send_batch(batch, topic, partition=partition))
    for one in sent:
        await one


async def _end(producer: AIOKafkaProducer, transaction: _Transaction) -> None:
    if transaction.commits:
        await producer.commit_transaction()
    else:
        await producer.abort_transaction()


def _append(batch: Any, record: Record) -> bool:
    """Whether there was room for it."""
    return (
        batch.append(
            key=record.key,
            value=record.value,
            timestamp=record.timestamp_ms,
            headers=list(record.headers),
        )
        is not None
    )


async def _read_on(consumer: AIOKafkaConsumer, read: dict[TopicPartition, list[Any]]) -> None:
    for place, some in (await consumer.getmany(timeout_ms=_POLL_MS)).items():
        read[place] += some


async def _read_to(
    consumer: AIOKafkaConsumer,
    ends: Mapping[TopicPartition, int],
    read: dict[TopicPartition, list[Any]],
    *,
    committed: bool,
) -> None:
    while not await _all_read(consumer, ends, read_committed=committed):
        await _read_on(consumer, read)


async def _all_read(
    consumer: AIOKafkaConsumer, ends: Mapping[TopicPartition, int], *, read_committed: bool
) -> bool:
    """Whether everything was read that an open transaction does not hide."""
    for place, end in ends.items():
        position = await consumer.position(place)
        stable = consumer.last_stable_offset(place) if read_committed else end
        # Before the first answer, nobody knows of open transactions.
        if position < end and (stable is None or position < stable):
            return False
    return True


def _sorted(read: Mapping[TopicPartition, Sequence[Any]]) -> list[Record]:
    return [_record(one) for place in sorted(read) for one in read[place]]


def _record(one: Any) -> Record:
    return Record(
        one.key, one.value, one.timestamp, tuple(one.headers), one.topic, one.partition, one.offset
    )
