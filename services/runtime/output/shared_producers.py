"""An instance's producers, and which partition sends by which.

    one hop         its partitions are spread over both
    several hops    all partitions of a hop send by one, and those of the next hop by the other

Behind a repartition, records wait until all source partitions have come as far. Partitions that
commit together come as far at once. With two transactions in turn, those of one would wait for the
other's, and a commit in between would write all that waits to the changelog.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aiokafka.structs import TopicPartition

from headrace.services.kafka.unfinished import Told
from headrace.services.runtime.output.shared_producer import Common, Ours, Seat, SharedProducer

PRODUCERS = 2
"""One processes while another commits; more would be more transactions, and no more speed."""


class SharedProducers:
    """All producers of one instance."""

    def __init__(self, common: Common, prefix: str, hops: Sequence[str]) -> None:
        """Their names begin so, and are no other instance's; each hop reads its topic."""
        self._producers = [
            SharedProducer(common, f"{prefix}{number}") for number in range(PRODUCERS)
        ]
        self._hops = hops
        self._of: dict[TopicPartition, SharedProducer] = {}

    @property
    def names(self) -> frozenset[str]:
        """Their transactional ids."""
        return frozenset(producer.name for producer in self._producers)

    async def told(self, name: str) -> list[Told]:
        """Of transactions that a producer of ours had before; it begins, and has ended them."""
        (producer,) = (one for one in self._producers if one.name == name)
        return (await producer.life()).told

    def seat(self, source: TopicPartition, ours: Ours) -> Seat:
        """A partition's place, with the producer that it had, or its hop's, or the emptier one."""
        if source not in self._of:
            self._of[source] = self._choose(source.topic)
        return Seat(self._of[source], ours)

    def _choose(self, topic: str) -> SharedProducer:
        if len(self._hops) > 1:
            return self._producers[self._hops.index(topic) % PRODUCERS]
        return min(self._producers, key=lambda producer: producer.seats)

    async def stop(self) -> None:
        """Let go of all producers."""
        await asyncio.gather(*(producer.stop() for producer in self._producers))
