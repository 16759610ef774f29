"""A member of the group commits while the group rebalances."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.consumer.group_coordinator import CoordinatorGroupRebalance, GroupCoordinator
from aiokafka.errors import (
    CommitFailedError,
    GroupLoadInProgressError,
    IllegalGenerationError,
    NoError,
    NotCoordinatorForGroupError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from aiokafka.protocol.commit import OffsetCommitRequest
from aiokafka.protocol.group import JoinGroupRequest, JoinGroupResponse_v5, LeaveGroupRequest
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from headrace.contracts.hops import Hop
from headrace.contracts.topics import changelog_topic
from headrace.services.group.holdings import Holdings
from headrace.services.group.member import Rules
from headrace.services.group.round import Heard, Instance, describe, hear, lead
from headrace.services.group.term import NEVER_S
from headrace.services.kafka import seams
from headrace.services.kafka.coordinator import CooperativeCoordinator, GroupConsumer
from headrace.services.kafka.heartbeats import counts
from tests.kafka.clients import fresh_name
from tests.kafka.fixtures import SharedKafka

PATIENCE_S = 120.0


class Alone:
    """The membership of a group's only member; it opens its tasks at once."""

    def __init__(self, topic: str, number: int = 0) -> None:
        """Own nothing yet."""
        self._client = bytes([number] * 16)
        self.opened = asyncio.Event()
        self.losses = 0
        self.problems: list[Exception] = []
        self._hops = (Hop("state", topic, (), changelog_topic(topic, "state"), None),)
        self._holdings = Holdings(acceptable_recovery_lag=0)

    async def describe(self, generation: int) -> bytes:
        """Return its report."""
        return describe(Instance(self._client, self._hops), self._holdings, generation)

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


class Slow(Alone):
    """The membership of one that takes its time before it joins again."""

    def __init__(self, topic: str) -> None:
        """Join once, at once."""
        super().__init__(topic, 1)
        self.is_asked, self.may_join = asyncio.Event(), asyncio.Event()
        self.may_join.set()

    async def describe(self, generation: int) -> bytes:
        """Return its report, once it may."""
        self.is_asked.set()
        await self.may_join.wait()
        return await super().describe(generation)


@asynccontextmanager
async def joining(
    servers: str, membership: Alone, topic: str, **options: Any
) -> AsyncIterator[GroupConsumer]:
    """A member of a group, which was not told anything yet."""
    consumer = GroupConsumer(
        membership,
        asyncio.get_running_loop(),
        bootstrap_servers=servers,
        enable_auto_commit=False,
        # Answers are late here on purpose; the group must not count the member out for it.
        session_timeout_ms=60_000,
        **{"group_id": fresh_name("group"), **options},
    )
    consumer.subscribe([topic])
    await consumer.start()
    yield consumer
    await consumer.stop()


@asynccontextmanager
async def consuming(
    servers: str, alone: Alone, topic: str, **options: Any
) -> AsyncIterator[GroupConsumer]:
    """The group's only member, which has opened its task."""
    async with joining(servers, alone, topic, **options) as consumer:
        await alone.opened.wait()
        yield consumer


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


async def commit_that_is_refused_until_it_is_another_member(servers: str, topic: str) -> None:
    """Have a refusal heard once the member was put out, and has joined as another."""
    alone = Alone(topic)
    refused, has_joined = asyncio.Event(), asyncio.Event()

    async def slowly(node: int, request: Any, **options: Any) -> Any:
        if isinstance(request, OffsetCommitRequest):
            await put_out(consumer)
            answer = await send(node, request, **options)
            refused.set()
            await has_joined.wait()
            return answer
        return await send(node, request, **options)

    async with consuming(servers, alone, topic) as consumer:
        coordinator = consumer._coordinator  # noqa: SLF001 (it hears of its removal here)
        client = consumer._client  # noqa: SLF001 (the answer is held there)
        send, client.send = client.send, slowly
        place, before = TopicPartition(topic, 0), coordinator.member_id
        committing = asyncio.ensure_future(consumer.commit({place: OffsetAndMetadata(7, "")}))
        await refused.wait()
        client.send = send
        coordinator.reset_generation()
        assert coordinator.term.ends_at_s == NEVER_S
        while coordinator.term.ends_at_s == NEVER_S:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)
        assert coordinator.member_id != before
        has_joined.set()
        with pytest.raises(CommitFailedError):
            await committing
        assert await consumer.committed(place) is None


def test_a_commit_is_not_made_again_as_another_member(kafka: SharedKafka) -> None:
    topic = fresh_name("committed")
    kafka.clients.make_topic(topic, 1)
    committing = commit_that_is_refused_until_it_is_another_member(kafka.bootstrap_servers, topic)
    asyncio.run(asyncio.wait_for(committing, PATIENCE_S))


async def commit_as_no_member(servers: str, topic: str) -> None:
    """Commit after the member was put out of a group that is empty then."""
    async with consuming(servers, Alone(topic), topic, heartbeat_interval_ms=50_000) as consumer:
        place, coordinator = TopicPartition(topic, 0), consumer._coordinator  # noqa: SLF001
        await put_out(consumer)
        coordinator.reset_generation()
        with pytest.raises(CommitFailedError):
            await consumer.commit({place: OffsetAndMetadata(7, "")})
        assert await consumer.committed(place) is None


def test_one_that_is_no_member_commits_nothing_though_the_group_is_empty(
    kafka: SharedKafka,
) -> None:
    topic = fresh_name("committed")
    kafka.clients.make_topic(topic, 1)
    asyncio.run(asyncio.wait_for(commit_as_no_member(kafka.bootstrap_servers, topic), PATIENCE_S))


async def term_of_a_member_that_waits_for_another(servers: str, topic: str) -> None:
    """Join a rebalance that lasts until the other member has joined as well."""
    options = {
        "group_id": fresh_name("group"),
        "heartbeat_interval_ms": 100,
        "rebalance_timeout_ms": 600_000,
    }
    slow = Slow(topic)
    async with (
        consuming(servers, Alone(topic), topic, **options) as consumer,
        joining(servers, slow, topic, **options) as other,
    ):
        coordinator = consumer._coordinator  # noqa: SLF001 (it says what it waits for)
        while other._coordinator.member is None or coordinator._is_joining:  # noqa: ASYNC110, SLF001
            await asyncio.sleep(0.01)
        slow.may_join.clear()
        slow.is_asked.clear()
        coordinator.request_rejoin()
        await slow.is_asked.wait()
        ended_at_s, heard_at_s = coordinator.term.ends_at_s, coordinator.heartbeat_at_s
        while coordinator.term.ends_at_s < ended_at_s + 0.5:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)
        assert coordinator._is_joining  # noqa: SLF001
        assert coordinator.heartbeat_at_s > heard_at_s, (
            "metrics and the watchdog would call it cut off"
        )
        slow.may_join.set()


def test_a_member_that_waits_for_a_slow_one_may_send_meanwhile(kafka: SharedKafka) -> None:
    topic = fresh_name("slow")
    kafka.clients.make_topic(topic, 1)
    waiting = term_of_a_member_that_waits_for_another(kafka.bootstrap_servers, topic)
    asyncio.run(asyncio.wait_for(waiting, PATIENCE_S))


async def put_out(consumer: GroupConsumer) -> None:
    """Have the group count a member out that does not hear of it."""
    coordinator = consumer._coordinator  # noqa: SLF001
    request = LeaveGroupRequest(coordinator.group_id, coordinator.member_id)
    await seams.ask(consumer, request, coordinator.coordinator_id)


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
        await put_out(consumer)
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


def test_a_join_that_brokers_could_not_keep_in_time_is_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that has a name is written down before it is answered (Kafka 3)."""
    answers = [RebalanceInProgressError.errno, GroupLoadInProgressError.errno]

    async def answer(_self: Any, _request: Any) -> Any:
        return JoinGroupResponse_v5(0, answers.pop(0), -1, "", "", "", [])

    async def join_twice() -> list[Any]:
        joining = CoordinatorGroupRebalance(coordinator, "clicks", 1, topics, [assignor], 1, 1)
        return [await joining.perform_group_join(), await joining.perform_group_join()]

    monkeypatch.setattr(GroupCoordinator, "_send_req", answer)
    coordinator = CooperativeCoordinator.__new__(CooperativeCoordinator)
    state = {
        "group_id": "clicks",
        "member_id": "",
        "generation": -1,
        "_group_instance_id": "one",
        "_is_replaced": False,
        "_rebalance_timeout_ms": 1,
    }
    for name, value in state.items():
        setattr(coordinator, name, value)
    topics = SimpleNamespace(topics=["raw"], active=True)
    assignor = SimpleNamespace(name="headrace", metadata=lambda _: b"")
    assert asyncio.run(join_twice()) == [None, None]
