"""A cluster's answers beside records: topics, their settings and ends, consumer groups.

aiokafka's admin client has a broker make the topics it asks about, and cannot delete a group; so
this speaks Kafka's requests over aiokafka's plain client.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    GroupIdNotFound,
    InvalidReplicationFactorError,
    KafkaError,
    LeaderNotAvailableError,
    NonEmptyGroup,
    NotControllerError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.protocol.admin import (
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
)
from aiokafka.protocol.api import Request
from aiokafka.protocol.commit import OffsetFetchRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from headrace.contracts.errors import GroupBusy, KafkaRefused, KafkaUnreachable, TopicRefused
from headrace.contracts.topic_rules import Setting
from headrace.services.group.view import Described
from headrace.services.kafka.identities import DescribeTopics, Identity, identities_in
from headrace.services.kafka.new_topic import BROKERS_DEFAULT, NewTopic, to_be_made
from headrace.services.kafka.patience import PATIENCE_S, PAUSE_S, patient
from headrace.services.kafka.reach import reachable
from headrace.services.kafka.requests import UNSTABLE, OffsetsUnstableError, StableOffsets
from headrace.services.kafka.security import client_options, user_of
from headrace.services.settings import Settings

_REST_S = 10.0
_TIMEOUT_MS = 20_000
_TOPIC = 2
"""A topic, among what may have settings."""
_SET_ON_TOPIC = 1
"""A setting that somebody gave to the topic itself."""
_EARLIEST, _LATEST = -2, -1
_READ_COMMITTED = 1
_FENCED = "All brokers are currently fenced"
"""A controller says so, with no code of its own for it, until a broker that starts counts."""
_DENIED = (
    TopicAuthorizationFailedError,
    GroupAuthorizationFailedError,
    ClusterAuthorizationFailedError,
)


class GroupNow(NamedTuple):
    """A group, as its coordinator describes it."""

    state: str
    """Kafka's word: Empty, Stable, PreparingRebalance, CompletingRebalance, Dead."""
    protocol: str
    members: list[Described]


class _Answered(NamedTuple):
    state: str
    protocol: str
    members: list[tuple[str, str, str, bytes, bytes]]


class Ends(NamedTuple):
    """Where a partition begins, and where it ends for those who read what is committed."""

    first: int
    end: int


@asynccontextmanager
async def connected(settings: Settings) -> AsyncIterator[Cluster]:
    """A connection to the cluster; what goes wrong with it leaves as one of our errors."""
    await reachable(settings)
    client = AIOKafkaClient(**client_options(settings, "admin"))
    try:
        await client.bootstrap()
        yield Cluster(client, settings)
    except _DENIED as error:
        message = f"the brokers do not let {user_of(settings)} do this: {error}"
        raise KafkaRefused(message) from error
    except (KafkaError, TimeoutError) as error:
        message = (
            f"the brokers at {settings.bootstrap_servers} answered, and then failed"
            f" ({error!r}); check that they are well, and try again"
        )
        raise KafkaUnreachable(message) from error
    finally:
        await client.close()


async def group_now(group: str, settings: Settings) -> GroupNow:
    """A group, in rest; or as it is, where a rebalance takes long."""
    give_up_at_s = time.monotonic() + _REST_S
    async with connected(settings) as cluster:
        while True:
            now = await cluster.described(group)
            if not now.state.endswith("Rebalance") or time.monotonic() >= give_up_at_s:
                return now
            await asyncio.sleep(PAUSE_S)


class Cluster:
    """A connected cluster, and whom it knows us as."""

    def __init__(self, client: AIOKafkaClient, settings: Settings) -> None:
        self._client = client
        self._servers = settings.bootstrap_servers
        self.user = user_of(settings)

    @patient
    async def partitions(self, names: Collection[str]) -> dict[str, int]:
        """How many partitions each topic has; one that does not exist is left out."""
        return {name: len(leaders) for name, leaders in (await self._leaders(names)).items()}

    @patient
    async def settings(self, names: Collection[str]) -> dict[str, dict[str, Setting]]:
        """The settings that apply to topics; those that we may not see are left out."""
        answer = await self.send(DescribeConfigsRequest([(_TOPIC, name, None) for name in names]))
        found = {}
        for code, message, _, name, entries in _as_asked(answer.resources, names, 3):
            if for_code(code) is TopicAuthorizationFailedError:
                continue
            self._check(
                code, f"read the settings of the topic `{name}`", "DescribeConfigs", message
            )
            found[name] = {
                key: Setting(value, source == _SET_ON_TOPIC)
                for key, value, _, source, *_ in entries
            }
        return found

    @patient
    async def make(self, topics: Collection[NewTopic], replication_factor: int | None) -> None:
        """Make topics, and return when they can be used; one that is there is left as it is."""
        factor = BROKERS_DEFAULT if replication_factor is None else replication_factor
        wanted: list[Any] = [
            (one.name, one.partitions, factor, [], [*one.settings.items()]) for one in topics
        ]
        answer = await self._ask_controller(
            CreateTopicsRequest(wanted, _TIMEOUT_MS, validate_only=False)
        )
        names = [one.name for one in topics]
        forbidden = []
        for name, code, message in _as_asked(answer.topic_errors, names, 0):
            error = for_code(code)
            if error is InvalidReplicationFactorError and _FENCED in (message or ""):
                raise LeaderNotAvailableError(message)
            if error is TopicAuthorizationFailedError:
                forbidden.append(name)
            elif error is not TopicAlreadyExistsError:
                self._check(code, f"make the topic `{name}`", "Create", message)
        if forbidden:
            missing = [one for one in topics if one.name in forbidden]
            raise KafkaRefused(to_be_made(missing, factor, self._servers, self.user))
        await self._wait_for(set(names), there=True)

    @patient
    async def delete(self, names: Collection[str]) -> None:
        """Delete topics, and return when they are gone; one that is not there is no mistake."""
        answer = await self._ask_controller(DeleteTopicsRequest([*names], _TIMEOUT_MS))
        for name, code in answer.topic_error_codes:
            if for_code(code) is not UnknownTopicOrPartitionError:
                self._check(code, f"delete the topic `{name}`", "Delete")
        await self._wait_for(set(names), there=False)

    @patient
    async def identity(self, topic: str) -> Identity:
        """The topic that has this name now; a KafkaError where there is none."""
        return identities_in(await self.send(DescribeTopics([topic])))[topic]

    @patient
    async def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        """Delete a topic's records below an offset, by partition."""
        for leader, led in (await self._led(topic, before)).items():
            offsets = [(number, before[number]) for number in led]
            answer = await self.send(DeleteRecordsRequest([(topic, offsets)], _TIMEOUT_MS), leader)
            for _, partitions, *_ in answer.topics:
                for partition in partitions:
                    # Another instance, or retention, was faster.
                    if for_code(partition[2]) is not OffsetOutOfRangeError:
                        self._check(
                            partition[2], f"delete records of the topic `{topic}`", "Delete"
                        )

    @patient
    async def ends(self, topic: str) -> dict[int, Ends]:
        """Where the partitions of a topic begin and end; nothing where there is no such topic."""
        found: dict[int, list[int]] = defaultdict(list)
        # Asked once: somebody may add a partition meanwhile, and it would have an end alone.
        by_leader = await self._led(topic)
        for at in (_EARLIEST, _LATEST):
            for leader, led in by_leader.items():
                places = [(number, at) for number in led]
                request = OffsetRequest(-1, _READ_COMMITTED, [(topic, places)])
                ((_, partitions),) = (await self.send(request, leader)).topics
                for number, code, _, offset in partitions:
                    self._check(code, f"read the topic `{topic}`", "Describe")
                    found[number].append(offset)
        return {number: Ends(*found[number]) for number in sorted(found)}

    async def committed(
        self, group: str, places: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return a group's committed offsets, behind the transactions that are on their way."""
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        await self._take_committed(group, dict.fromkeys(places), found)
        return found

    @patient
    async def _take_committed(
        self,
        group: str,
        left: dict[TopicPartition, None],
        found: dict[TopicPartition, OffsetAndMetadata],
    ) -> None:
        """Take those that are known, and ask again for the others alone.

        Many instances commit many transactions, and some of them is on its way at any time.
        """
        what = f"read the offsets of the group `{group}`"
        answer = await self.send(StableOffsets(group, left), await self.coordinator(group))
        self._check(answer.error_code, what, "Describe")
        is_unstable = False
        for topic, partitions, _ in answer.topics:
            for number, offset, _, metadata, code, _ in partitions:
                if code == UNSTABLE:
                    is_unstable = True
                    continue
                self._check(code, what, "Describe")
                place = TopicPartition(topic, number)
                left.pop(place, None)
                if offset >= 0:
                    found[place] = OffsetAndMetadata(offset, metadata)
        if is_unstable:
            raise OffsetsUnstableError

    @patient
    async def offsets_count(self, group: str) -> int:
        """Of how many partitions a group has committed something."""
        answer = await self.send(OffsetFetchRequest(group, None), await self.coordinator(group))
        self._check(answer.error_code, f"read the offsets of the group `{group}`", "Describe")
        return sum(len(partitions) for _, partitions in answer.topics)

    async def members(self, group: str) -> list[str]:
        """Return the members of a group now: client and host of each."""
        described = await self._describe(group)
        return sorted(
            f"{client} on {host.removeprefix('/')}" for _, client, host, *_ in described.members
        )

    async def described(self, group: str) -> GroupNow:
        """A group's state, and what its members said and were told."""
        state, protocol, members = await self._describe(group)
        return GroupNow(
            state,
            protocol,
            [
                Described(name, host.removeprefix("/"), said, told)
                for name, _, host, said, told in members
            ],
        )

    @patient
    async def _describe(self, group: str) -> _Answered:
        answer = await self.send(DescribeGroupsRequest([group]), await self.coordinator(group))
        ((code, _, state, _, protocol, members, *_),) = answer.groups
        self._check(code, f"see the group `{group}`", "Describe")
        return _Answered(state, protocol, members)

    @patient
    async def delete_group(self, group: str) -> None:
        """Forget a group and its offsets; one that is not there is no mistake."""
        answer = await self.send(DeleteGroupsRequest([group]), await self.coordinator(group))
        ((_, code),) = answer.results
        if for_code(code) is NonEmptyGroup:
            message = f"somebody joined the group `{group}` meanwhile; stop it, and try again"
            raise GroupBusy(message)
        if for_code(code) is not GroupIdNotFound:
            self._check(code, f"delete the group `{group}`", "Delete")

    async def _leaders(self, names: Collection[str]) -> dict[str, dict[int, int]]:
        """Return the leader of each partition, by topic; a partition without a leader has -1."""
        answer = await self.send(MetadataRequest([*names], allow_auto_topic_creation=False))
        found = {}
        for code, name, _, partitions in _as_asked(answer.topics, names, 1):
            if for_code(code) is not UnknownTopicOrPartitionError:
                self._check(code, f"see the topic `{name}`", "Describe")
                found[name] = {number: leader for _, number, leader, *_ in partitions}
        return found

    async def _led(self, topic: str, only: Collection[int] | None = None) -> dict[int, list[int]]:
        """The partitions of a topic by who leads them."""
        found: dict[int, list[int]] = defaultdict(list)
        for number, leader in (await self._leaders([topic])).get(topic, {}).items():
            if leader < 0:
                raise LeaderNotAvailableError
            if only is None or number in only:
                found[leader].append(number)
        return found

    async def _wait_for(self, names: set[str], *, there: bool) -> None:
        give_up_at_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up_at_s:
            leaders = await self._leaders(names)
            led = {
                name for name, by_partition in leaders.items() if min(by_partition.values()) >= 0
            }
            if led == names if there else not leaders:
                return
            await asyncio.sleep(PAUSE_S)
        state = "have a leader for each partition" if there else "be gone"
        message = f"the topics {', '.join(sorted(names))} should {state} by now; check the brokers"
        raise KafkaUnreachable(message)

    async def coordinator(self, name: str, kind: CoordinationType = CoordinationType.GROUP) -> int:
        """The broker that speaks for a group, or for a transactional id."""
        node: int = await self._client.coordinator_lookup(kind, name)
        return node

    async def send(self, request: Request[Any], node: int | None = None) -> Any:
        """Return the answer of a broker: of this one, or of any."""
        chosen = self._client.get_random_node() if node is None else node
        return await self._client.send(chosen, request)

    async def _ask_controller(self, request: Request[Any]) -> Any:
        # aiokafka's own update would ask for all topics of the cluster, since this client has none.
        metadata = await self.send(MetadataRequest([]))
        cluster = self._client.cluster
        cluster.update_metadata(metadata)
        if cluster.controller is None:
            raise NotControllerError
        return await self.send(request, cluster.controller.nodeId)

    def _check(self, code: int, what: str, permission: str, message: str | None = None) -> None:
        """Raise our own error, or aiokafka's where the trouble may pass."""
        error = for_code(code)
        if not code:
            return
        if issubclass(error, _DENIED):
            sentence = f"the brokers do not let {self.user} {what}; grant {permission}"
            raise KafkaRefused(sentence)
        if error.retriable:
            raise error(message)
        sentence = f"the brokers cannot {what}: {message or error.description}"
        raise TopicRefused(sentence)


def _as_asked(rows: Iterable[Any], names: Collection[str], at: int) -> list[Any]:
    """Answers in the order of the names that were asked for, and not of some hash."""
    order = [*names]
    return sorted(rows, key=lambda row: order.index(row[at]))
