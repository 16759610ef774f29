"""The end of a part that stood open, whatever its partition answers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from aiokafka.errors import TransactionCoordinatorFenced

from headrace.services.kafka.requests import DescribeProducers, EndInPartition
from headrace.services.kafka.unfinished import Known, Takeover, Told

TOPIC, PRODUCER, EPOCH = "cleaned", 7, 3
ABORTED = Told("CompleteAbort", 1_000, PRODUCER, EPOCH)


class Leader:
    """A client of a partition whose coordinator ends the transaction right before we do."""

    def __init__(self) -> None:
        """It stands open so far."""
        self.cluster = SimpleNamespace(leader_for_partition=lambda _: 1)
        self.asked: list[type] = []
        self._first_offset = 5

    async def send(self, _: int, request: Any) -> Any:
        """Answer."""
        self.asked.append(type(request))
        if isinstance(request, DescribeProducers):
            producer: tuple[Any, ...] = PRODUCER, EPOCH, 0, 0, 1, self._first_offset, {}
            return SimpleNamespace(topics=[(TOPIC, [(0, 0, None, [producer], {})], {})])
        self._first_offset = -1
        partition: tuple[Any, ...] = 0, TransactionCoordinatorFenced.errno, {}
        return SimpleNamespace(markers=[(PRODUCER, [(TOPIC, [partition], {})], {})])


def test_a_part_that_a_later_coordinator_has_ended_meanwhile_is_looked_at_again() -> None:
    async def end() -> tuple[Leader, Takeover]:
        leader = Leader()
        takeover = Takeover(leader, "id", 1_000, Known({TOPIC: [0]}))
        await takeover.end([ABORTED])
        return leader, takeover

    leader, takeover = asyncio.run(end())
    assert leader.asked == [DescribeProducers, EndInPartition, DescribeProducers]
    assert takeover.ended == []
