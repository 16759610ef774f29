"""An instance's lanes, and which partition is in which."""

from __future__ import annotations

import asyncio

from aiokafka.structs import TopicPartition

from headrace.services.kafka.unfinished import Told
from headrace.services.runtime.output.lane import Lane, Ours, Seat, Shared

LANES = 2
"""One processes while another commits; more would be more transactions, and no more speed."""


class Lanes:
    """All lanes of one instance."""

    def __init__(self, shared: Shared, prefix: str) -> None:
        """Their names begin so, and are no other instance's."""
        self._lanes = [Lane(shared, f"{prefix}{number}") for number in range(LANES)]
        self._of: dict[TopicPartition, Lane] = {}

    @property
    def names(self) -> frozenset[str]:
        """Their transactional ids."""
        return frozenset(lane.name for lane in self._lanes)

    async def told(self, name: str) -> list[Told]:
        """Of transactions that a lane of ours had before; it begins, and has ended them."""
        (lane,) = (one for one in self._lanes if one.name == name)
        return (await lane.life()).told

    def seat(self, source: TopicPartition, ours: Ours) -> Seat:
        """A partition's place, in the lane where it was, or in the one with the most room."""
        if source not in self._of:
            self._of[source] = min(self._lanes, key=lambda lane: lane.seats)
        return Seat(self._of[source], ours)

    async def stop(self) -> None:
        """Let go of all producers."""
        await asyncio.gather(*(lane.stop() for lane in self._lanes))
