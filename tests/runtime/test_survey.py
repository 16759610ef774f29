"""How far source partitions are is told of each that has a leader, whatever others have."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from aiokafka.errors import LeaderNotAvailableError
from aiokafka.structs import TopicPartition

from headrace.services.runtime.input.binding import BatchThread
from headrace.services.runtime.input.survey import Surveyed
from headrace.services.runtime.worker import Worker

LED, LEADERLESS, UNKNOWN = (TopicPartition("clicks", number) for number in range(3))
LEADERS = {LED: 7, LEADERLESS: -1}


class _Consumer:
    """A consumer as aiokafka's: it asks again and again about a partition without a leader."""

    def __init__(self) -> None:
        self._client = SimpleNamespace(
            cluster=SimpleNamespace(leader_for_partition=LEADERS.get), send=self.send
        )

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset({LED, LEADERLESS, UNKNOWN})

    async def end_offsets(self, partitions: set[TopicPartition]) -> dict[TopicPartition, int]:
        if partitions != {LED}:
            raise LeaderNotAvailableError
        return {LED: 40}

    async def send(self, node: int, _request: Any) -> Any:
        assert node == LEADERS[LED]
        return SimpleNamespace(topics=[(LED.topic, [(LED.partition, 0, -1, 41)])])

    async def position(self, partition: TopicPartition) -> int:
        return {LED: 39}[partition]


def test_a_partition_without_a_leader_hides_nothing_of_the_others() -> None:
    thread = SimpleNamespace(
        _ensure_consumer=_Consumer,
        _leases=dict.fromkeys((LED, LEADERLESS, UNKNOWN), 1),
        _brought=dict.fromkeys((LED, LEADERLESS, UNKNOWN), 38),
        app=SimpleNamespace(worker=SimpleNamespace(work=SimpleNamespace(now_ms=lambda: 5_000))),
    )
    surveyed = asyncio.run(BatchThread._survey(cast("BatchThread", thread)))  # noqa: SLF001 - the consumer's thread calls it
    assert surveyed.keys() == {LED}
    told = surveyed[LED]
    assert (told.fetched, told.readable_end, told.end, told.brought) == (39, 40, 41, 38)


def test_a_partition_without_a_leader_is_as_it_was_and_not_unseen() -> None:
    before = {place: Surveyed(10, 10, 10, at_s=1.0) for place in (LED, LEADERLESS, UNKNOWN)}
    led_now = Surveyed(20, 20, 20, at_s=3.0)

    async def survey() -> dict[TopicPartition, Surveyed]:
        return {LED: led_now}

    work = SimpleNamespace(survey=before, surveyed=before.get)
    # One that is opened again begins elsewhere, and what was said of it before tells nothing.
    states = {LED: "running", LEADERLESS: "running", UNKNOWN: "restoring"}
    worker = SimpleNamespace(
        work=work,
        tasks={place: SimpleNamespace(state=state) for place, state in states.items()},
        _the_thread=lambda: SimpleNamespace(survey=survey),
    )
    asyncio.run(Worker.survey(cast("Worker", worker)))
    # A watchdog ends a worker that does not hear where it is for minutes.
    assert work.survey == {LED: led_now, LEADERLESS: before[LEADERLESS]}
