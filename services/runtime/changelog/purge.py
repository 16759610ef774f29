"""Deletes what nobody needs any more, so that no topic of a pipeline grows for ever.

Two kinds of topics are headrace's alone, and keep records whose time is over: a repartition topic,
whose records nobody reads again once the hop behind it has committed them, and a changelog, whose
beginning `services/state/purging.py` vouches for. Tasks say after a commit what may go; whoever
owned the partition then sends it, now and then, and once more when it stops. No task waits for it,
and nothing is lost if it fails: it is logged, and tried again.

A reset deletes these topics and makes them anew under the same names. An instance that was frozen
meanwhile still knows offsets of the old ones, so a topic is purged only while it is the one that
this instance opened.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping

from aiokafka.structs import TopicPartition

from headrace.contracts.errors import HeadraceError, KafkaRefused, YourFault
from headrace.services.kafka.cluster import Cluster, connected
from headrace.services.kafka.identities import Identity
from headrace.services.observe.logs import logger as logger_of
from headrace.services.settings import Settings

EVERY_S = 30.0
_LAST_WITHIN_S = 5.0
logger = logger_of(__name__)


class Purges:
    """The records that may be deleted, by partition, until they are."""

    def __init__(self, settings: Settings) -> None:
        """Delete nothing yet."""
        self._settings = settings
        self._wanted: dict[TopicPartition, int] = {}
        self._done: dict[TopicPartition, int] = {}
        self._ids: dict[str, str | None] = {}
        """The topics that tasks opened, by name."""
        self._forbidden: set[str] = set()
        """Topics that the brokers do not let us delete from."""

    def opened(self, topics: Mapping[str, Identity]) -> None:
        """Hear which topics a task has opened; offsets of earlier ones say nothing of them."""
        for name, (topic_id, _) in topics.items():
            if self._ids.setdefault(name, topic_id) != topic_id:
                self._forget(name)
                self._ids[name] = topic_id

    def _forget(self, topic: str) -> None:
        for offsets in (self._wanted, self._done):
            for partition in [one for one in offsets if one.topic == topic]:
                del offsets[partition]

    def let_go(self, partition: TopicPartition, offset: int) -> None:
        """Records before this offset may go; what says so is committed."""
        if partition.topic not in self._forbidden and offset > self._done.get(partition, 0):
            self._wanted[partition] = offset

    def is_waiting(self, partition: TopicPartition) -> bool:
        """Whether something of a partition may go and is still there."""
        return partition in self._wanted

    async def keep_purging(self) -> None:
        """Delete now and then, for ever."""
        while True:
            await asyncio.sleep(EVERY_S)
            await self._purge()

    async def purge_last(self) -> None:
        """Delete what may go, if that is soon done."""
        try:
            async with asyncio.timeout(_LAST_WITHIN_S):
                await self._purge()
        except TimeoutError:
            logger.warning("what may be deleted stays until somebody runs again")

    async def _purge(self) -> None:
        topics: defaultdict[str, dict[int, int]] = defaultdict(dict)
        for partition, offset in self._wanted.items():
            if partition.topic not in self._forbidden:
                topics[partition.topic][partition.partition] = offset
        if not topics:
            return
        try:
            async with connected(self._settings) as cluster:
                for topic, offsets in topics.items():
                    await self._purge_topic(cluster, topic, offsets)
        except HeadraceError as problem:
            logger.warning("not purged, and tried again", why=str(problem))

    async def _purge_topic(self, cluster: Cluster, topic: str, offsets: dict[int, int]) -> None:
        try:
            if topic in self._ids and (await cluster.identity(topic)).id != self._ids[topic]:
                logger.warning("not purged: the topic was made anew", topic=topic)
                self._forget(topic)
                return
            await cluster.delete_records(topic, offsets)
        except KafkaRefused as problem:
            logger.warning(
                "not purged; tried again at the next start", topic=topic, why=str(problem)
            )
            self._forbidden.add(topic)
            return
        except YourFault as problem:
            # Of one topic only; others may be purged.
            logger.warning("not purged, and tried again", topic=topic, why=str(problem))
            return
        for number, offset in offsets.items():
            partition = TopicPartition(topic, number)
            self._done[partition] = offset
            if self._wanted.get(partition) == offset:
                del self._wanted[partition]
        logger.debug("purged", topic=topic, before=offsets)
