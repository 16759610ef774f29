"""The race's requests to the broker, apart from records."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import GroupCoordinatorNotAvailableError

from headrace.contracts.topics import cleaned_topic
from tests.bench.race.source import PARTITIONS

Ends = Callable[[], Awaitable[Mapping[int, int]]]


class Cluster:
    """Topics, offsets, and how far a group is."""

    def __init__(self, bootstrap_servers: str, admin: AIOKafkaAdminClient) -> None:
        """Use a client that is started; `opened` starts one."""
        self.bootstrap_servers = bootstrap_servers
        self._admin = admin
        self._coordinators: dict[str, int] = {}

    async def create(self, name: str) -> None:
        """Make a topic as headrace makes the ones that carry event time: age deletes nothing."""
        settings = cleaned_topic(name).settings()
        await self._admin.create_topics([NewTopic(name, PARTITIONS, 1, topic_configs=settings)])

    async def topics(self, prefix: str) -> list[str]:
        """Every topic whose name begins so."""
        return [name for name in await self._admin.list_topics() if name.startswith(prefix)]

    async def delete_all(self, prefix: str) -> None:
        """Delete every topic whose name begins so."""
        names = await self.topics(prefix)
        if names:
            await self._admin.delete_topics(names)

    async def size(self, topic: str) -> int:
        """How many offsets a topic has, marks of transactions included."""
        async with AIOKafkaConsumer(bootstrap_servers=self.bootstrap_servers) as consumer:
            starts = await consumer.beginning_offsets(_partitions(topic))
            ends = await consumer.end_offsets(_partitions(topic))
        return int(sum(ends.values()) - sum(starts.values()))

    async def committed(self, group: str, topic: str) -> int:
        """How many records of a topic a group has committed."""
        if group not in self._coordinators:
            try:
                self._coordinators[group] = await self._admin.find_coordinator(group)
            except GroupCoordinatorNotAvailableError:
                # The first question about any group makes a new broker begin to keep offsets.
                return 0
        offsets = await self._admin.list_consumer_group_offsets(
            group, self._coordinators[group], _partitions(topic)
        )
        return sum(max(0, int(one.offset)) for one in offsets.values())

    @asynccontextmanager
    async def ends(self, topic: str) -> AsyncIterator[Ends]:
        """Asks where each partition ends, records of open transactions included."""
        # A client of its own: one that knew topics which are gone would look for them for ever.
        async with AIOKafkaConsumer(bootstrap_servers=self.bootstrap_servers) as consumer:

            async def ask() -> Mapping[int, int]:
                ends = await consumer.end_offsets(_partitions(topic))
                return {partition.partition: offset for partition, offset in ends.items()}

            yield ask


@asynccontextmanager
async def opened(bootstrap_servers: str) -> AsyncIterator[Cluster]:
    """A cluster, with its client started."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    try:
        await admin.start()
        yield Cluster(bootstrap_servers, admin)
    finally:
        await admin.close()


def _partitions(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
