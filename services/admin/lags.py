"""How far a pipeline's group is behind the ends of the topics that it reads."""

from __future__ import annotations

from collections.abc import Sequence

from aiokafka.structs import TopicPartition

from headrace.contracts.hops import Hop
from headrace.services.kafka.cluster import connected
from headrace.services.settings import Settings


async def lags_of(
    group: str, hops: Sequence[Hop], settings: Settings
) -> dict[tuple[str, int], int]:
    """By topic and partition, how many offsets lie between what is committed and the end."""
    async with connected(settings) as cluster:
        ends = {
            TopicPartition(hop.topic, number): found
            for hop in hops
            for number, found in (await cluster.ends(hop.topic)).items()
        }
        committed = await cluster.committed(group, ends)
    positions = {
        place: committed[place].offset if place in committed else found.first
        for place, found in ends.items()
    }
    # A commit that came after the ends were asked for may lie behind them.
    return {
        (place.topic, place.partition): max(0, ends[place].end - position)
        for place, position in positions.items()
    }
