"""A member of the group commits while the group rebalances."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka.errors import (
    GroupLoadInProgressError,
    IllegalGenerationError,
    NoError,
    NotCoordinatorForGroupError,
    UnknownMemberIdError,
)
from aiokafka.protocol.commit import OffsetCommitRequest
from aiokafka.protocol.group import JoinGroupRequest, LeaveGroupRequest
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from headrace.contracts.hops import Hop
from headrace.contracts.topics import changelog_topic
from headrace.services.group.holdings import Holdings
from headrace.services.group.member import Rules
from headrace.services.group.round import Heard, Instance, describe, hear, lead
from headrace.services.kafka import seams
from headrace.services.kafka.coordinator import GroupConsumer, counts
from tests.kafka.clients import fresh_name
from tests.kafka.fixtures import SharedKafka

PATIENCE_S = 120.0


class Alone:
    """The membership of a group's only member; it opens its tasks at once."""

    def __init__(self, topic: str) -> None:
        """Own nothing yet."""
        self.opened = asyncio.Event()
        self.losses = 0
        self.problems: list[Exception] = []
        self._hops = (Hop("state", topic, (), changelog_topic(topic, "state"), None),)
        self._holdings = Holdings(acceptable_recovery_lag=0)

    async def describe(self, generation: int) -> bytes:
        """Return its report."""
        return describe(Instance(bytes(16), self._hops), self._holdings, generation)

    def lead(self, said: Mapping[str, bytes], partitions: Mapping[str, int]) -> dict[str, bytes]:
        """Return everybody's assignment."""
        return lead(said, self._hops, partitions, Rules()).assignments

    def hear(self, raw: bytes) -> Heard:
        """Read an assignment."""
        return hear(raw, self._hops)

    async def told(self, heard: Heard) -> None:
        """Open what is new."""
        for step in self._holdings.told(heard.share):
            self._holdings.opened(step.task)
            self.opened.set()

    async def thrown_out(self) -> None:
        """Count it."""
        self.losses += 1
        for step in self._holdings.thrown_out():
            self._holdings.closed(step.task)

    def fail(self, problem: Exception) -> None:
        """Note the end of the worker."""
        self.problems.append(problem)


@asynccontextmanager
async def consuming(
    servers: str, alone: Alone, topic: str, **options: Any
) -> AsyncIterator[GroupConsumer]:
    """The group's only member, which has opened its task."""
    consumer = GroupConsumer(
        alone,
        asyncio.get_running_loop(),
        bootstrap_servers=servers,
        group_id=fresh_name("group"),
        enable_auto_commit=False,
        # Answers are late here on purpose; the group must not count the member out for it.
        session_timeout_ms=60_000,
        **options,
    )
    consumer.subscribe([topic])
    await consumer.start()
    await alone.opened.wait()
    yield consumer
    await consumer.stop()


async def commit_between_a_generation_and_its_number(servers: str, topic: str) -> Alone:
    """Have a commit refused after the group's new generation began, before the member read it."""
    alone = Alone(topic)
    joined, refused = asyncio.Event(), asyncio.Event()

    async def slowly(request: Any) -> Any:
        answer = await send(request)
        if isinstance(request, JoinGroupRequest):
            joined.set()
            await refused.wait()
        elif isinstance(request, OffsetCommitRequest):
            refused.set()
        return answer

    async with consuming(servers, alone, topic) as consumer:
        coordinator = consumer._coordinator  # noqa: SLF001 (the answers are held there)
        send = coordinator._send_req  # noqa: SLF001
        coordinator._send_req = slowly  # noqa: SLF001
        coordinator.request_rejoin()
        await joined.wait()
        place = TopicPartition(topic, 0)
        await consumer.commit({place: OffsetAndMetadata(7, "")})
        assert await consumer.committed(place) == 7
    return alone


def test_a_commit_with_the_generation_before_is_made_again_and_loses_no_partition(
    kafka: SharedKafka,
) -> None:
    topic = fresh_name("committed")
    kafka.clients.make_topic(topic, 1)
    committed = commit_between_a_generation_and_its_number(kafka.bootstrap_servers, topic)
    alone = asyncio.run(asyncio.wait_for(committed, PATIENCE_S))
    assert (alone.losses, alone.problems) == (0, [])


async def counted_before_and_after_it_was_put_out(servers: str, topic: str) -> list[bool]:
    """Whether the group counts a member, also under an older generation, and behind its removal."""
    # It hears nothing of the group by itself, for so long.
    apart = consuming(servers, Alone(topic), topic, heartbeat_interval_ms=50_000)
    async with apart as consumer:
        coordinator = consumer._coordinator  # noqa: SLF001
        counted = [await coordinator.is_counted()]
        generation = coordinator.generation
        coordinator.generation = generation + 1
        counted.append(await coordinator.is_counted())
        coordinator.generation = generation
        request = LeaveGroupRequest(coordinator.group_id, coordinator.member_id)
        await seams.ask(consumer, request, coordinator.coordinator_id)
        assert coordinator.member is not None, "it has not heard"
        counted.append(await coordinator.is_counted())
    return counted


def test_a_member_that_has_not_heard_that_it_is_none_any_more_is_told_when_it_asks(
    kafka: SharedKafka,
) -> None:
    topic = fresh_name("counted")
    kafka.clients.make_topic(topic, 1)
    counted = counted_before_and_after_it_was_put_out(kafka.bootstrap_servers, topic)
    assert asyncio.run(asyncio.wait_for(counted, PATIENCE_S)) == [True, True, False]


def test_the_word_of_a_coordinator_that_still_reads_its_groups_says_nothing() -> None:
    assert counts(IllegalGenerationError.errno)
    assert not counts(UnknownMemberIdError.errno)
    with pytest.raises(GroupLoadInProgressError):
        counts(NoError.errno)
    with pytest.raises(NotCoordinatorForGroupError):
        counts(NotCoordinatorForGroupError.errno)
