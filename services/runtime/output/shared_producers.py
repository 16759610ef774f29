"""An instance's producers, and which partition sends by which."""

from __future__ import annotations

import asyncio

from aiokafka.structs import TopicPartition

from headrace.services.kafka.unfinished import Told
from headrace.services.runtime.output.shared_producer import Common, Ours, Seat, SharedProducer

PRODUCERS = 2
"""One processes while another commits; more would be more transactions, and no more speed."""


class SharedProducers:
    """All producers of one instance."""

    def __init__(self, common: Common, prefix: str) -> None:
        """Their names begin so, and are no other instance's."""
        self._producers = [
            SharedProducer(common, f"{prefix}{number}") for number in range(PRODUCERS)
        ]
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
        """A partition's place, with the producer that it had, or the one with the fewest."""
        if source not in self._of:
            self._of[source] = min(self._producers, key=lambda producer: producer.seats)
        return Seat(self._of[source], ours)

    async def stop(self) -> None:
        """Let go of all producers."""
        await asyncio.gather(*(producer.stop() for producer in self._producers))
