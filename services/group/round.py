"""A round of the group as bytes: what members report, what the leader decides, what they hear.

    describe     a member, before it joins: its holdings as the metadata of JoinGroup
    lead         the leader: everybody's metadata to everybody's assignment in SyncGroup
    hear         a member, with its assignment: its share, for its holdings

On the wire, a hop has a number made from its topic's name. In memory it has its place in the
pipeline. So instances before and after a hop was added to the pipeline understand each other: each
reads about the hops that it has, and ignores others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple
from zlib import crc32

from headrace.contracts.errors import MemberForeign
from headrace.contracts.hops import Hop
from headrace.services.group.assign import assign
from headrace.services.group.holdings import Holdings
from headrace.services.group.info import (
    INFO_VERSION,
    AssignmentInfo,
    Endpoint,
    GroupError,
    SubscriptionInfo,
    agreed_version,
    error_for,
    pack_assignment_info,
    pack_subscription_info,
    unpack_assignment_info,
    unpack_subscription_info,
)
from headrace.services.group.member import AT_ONCE_MS, Member, Rules, Share, TaskId
from headrace.services.group.wire import (
    Assignment,
    Partition,
    Subscription,
    pack_assignment,
    pack_subscription,
    unpack_assignment,
    unpack_subscription,
)

MEMBER_CALLED = "the group called"
"""Why a member joins that did not ask for it: another member did, or left."""
_INT32_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Instance:
    """The properties of a member that do not change while it lives."""

    client: bytes
    """16 bytes that stay with the folder of its state."""
    hops: Sequence[Hop]
    endpoint: Endpoint | None = None
    capacity: int = 1
    rack: str | None = None


class Led(NamedTuple):
    """The result of a round for its leader."""

    assignments: dict[str, bytes]
    shares: dict[str, Share]


class Heard(NamedTuple):
    """The result of a round for one member."""

    share: Share
    partitions: frozenset[Partition]
    """The partitions that it runs."""
    by_host: Mapping[Endpoint, frozenset[Partition]]
    """The partitions that each member with an endpoint runs."""
    version: int
    """The version to write from now on."""
    joins_at_once: bool
    """Whether to join again as soon as the revoked tasks are closed."""


class Joining(NamedTuple):
    """When and why a member joins."""

    at_ms: int
    reason: str


UNSAID = Joining(0, "")


def describe(
    instance: Instance,
    holdings: Holdings,
    generation: int,
    version: int = INFO_VERSION,
    joining: Joining = UNSAID,
) -> bytes:
    """Pack a member's report for JoinGroup."""
    assert holdings.is_settled
    owned = holdings.owned
    info = SubscriptionInfo(
        client=instance.client,
        previous=_all_to_wire(holdings.previous, instance.hops),
        following=_all_to_wire(holdings.following, instance.hops),
        lags={_to_wire(task, instance.hops): lag for task, lag in holdings.lags.items()},
        capacity=instance.capacity,
        endpoint=instance.endpoint,
        joined_at_ms=joining.at_ms,
        reason=joining.reason,
        version=version,
    )
    subscription = Subscription(
        topics=tuple(hop.topic for hop in instance.hops),
        user_data=pack_subscription_info(info),
        owned=partitions_of(owned, instance.hops),
        generation=generation,
        rack=instance.rack,
    )
    return pack_subscription(subscription)


def lead(
    metadata: Mapping[str, bytes],
    hops: Sequence[Hop],
    partitions: Mapping[str, int],
    rules: Rules,
) -> Led:
    """Assign the tasks for all members; `partitions` is how many each topic has."""
    subscriptions = {name: unpack_subscription(raw, _named(name)) for name, raw in metadata.items()}
    infos = {name: info_of(name, subscription) for name, subscription in subscriptions.items()}
    tasks = [
        TaskId(number, partition)
        for number, hop in enumerate(hops)
        for partition in range(partitions.get(hop.topic, 0))
    ]
    members = {
        name: member_of(subscription, infos[name], hops)
        for name, subscription in subscriptions.items()
    }
    shares = assign(tasks, members, rules)
    by_host = {
        endpoint: partitions_of(shares[name].active, hops)
        for name, info in infos.items()
        if (endpoint := info.endpoint) is not None
    }
    version = agreed_version(info.latest_supported for info in infos.values())
    assignments = {}
    for name, share in shares.items():
        info = AssignmentInfo(
            active=_all_to_wire(share.active, hops),
            following=_following(share, hops),
            learners=_all_to_wire(share.learners, hops),
            promoted=_all_to_wire(share.promoted, hops),
            next_rebalance_ms=share.next_rebalance_ms,
            by_host=by_host,
            error=error_for(infos[name].version),
            version=version,
            latest_supported=version,
        )
        assignment = Assignment(partitions_of(share.active, hops), pack_assignment_info(info))
        assignments[name] = pack_assignment(assignment)
    return Led(assignments, shares)


def hear(raw: bytes, hops: Sequence[Hop]) -> Heard:
    """Read a member's assignment; raise MemberForeign if another program leads the group."""
    assignment = unpack_assignment(raw)
    if assignment.user_data is None:
        message = "the group's leader says nothing about tasks: another program leads it; stop that"
        raise MemberForeign(message)
    info = unpack_assignment_info(assignment.user_data)
    share = Share(
        active=tasks_of(assignment.partitions, hops),
        promoted=_all_from_wire(info.promoted, hops),
        learners=_all_from_wire(info.learners, hops),
        standbys=_all_from_wire(info.following.keys() - info.learners - info.promoted, hops),
        next_rebalance_ms=info.next_rebalance_ms,
    )
    return Heard(
        share,
        assignment.partitions,
        info.by_host,
        agreed_version([info.latest_supported]),
        joins_at_once=(
            info.next_rebalance_ms == AT_ONCE_MS or info.error is GroupError.VERSION_PROBING
        ),
    )


def member_of(subscription: Subscription, info: SubscriptionInfo, hops: Sequence[Hop]) -> Member:
    """Return a member as the leader sees it."""
    return Member(
        client=info.client.hex(),
        hops=frozenset(place for place, hop in enumerate(hops) if hop.topic in subscription.topics),
        owned=tasks_of(subscription.owned, hops),
        generation=subscription.generation,
        previous=_all_from_wire(info.previous, hops),
        following=_all_from_wire(info.following, hops),
        lags=lags_of(info, hops),
        capacity=info.capacity,
    )


def lags_of(info: SubscriptionInfo, hops: Sequence[Hop]) -> dict[TaskId, int]:
    """Return how many records a member's copies lack, by task."""
    tasks = {task: _from_wire(task, hops) for task in info.lags}
    return {task: info.lags[sent] for sent, task in tasks.items() if task is not None}


def partitions_of(tasks: Iterable[TaskId], hops: Sequence[Hop]) -> frozenset[Partition]:
    """Return tasks as topics and partitions."""
    return frozenset(Partition(hops[task.hop].topic, task.partition) for task in tasks)


def tasks_of(partitions: Iterable[Partition], hops: Sequence[Hop]) -> frozenset[TaskId]:
    """Return topics and partitions as tasks, without those of topics that are in no hop."""
    places = {hop.topic: place for place, hop in enumerate(hops)}
    return frozenset(
        TaskId(places[topic], partition) for topic, partition in partitions if topic in places
    )


@cache
def hop_number(topic: str) -> int:
    """Return the number of a hop on the wire."""
    return crc32(topic.encode()) & _INT32_MAX


def _to_wire(task: TaskId, hops: Sequence[Hop]) -> TaskId:
    return TaskId(hop_number(hops[task.hop].topic), task.partition)


def _from_wire(sent: TaskId, hops: Sequence[Hop]) -> TaskId | None:
    places = (place for place, hop in enumerate(hops) if hop_number(hop.topic) == sent.hop)
    place = next(places, None)
    return None if place is None else TaskId(place, sent.partition)


def _all_to_wire(tasks: Iterable[TaskId], hops: Sequence[Hop]) -> frozenset[TaskId]:
    return frozenset(_to_wire(task, hops) for task in tasks)


def _all_from_wire(sent: Iterable[TaskId], hops: Sequence[Hop]) -> frozenset[TaskId]:
    tasks = (_from_wire(task, hops) for task in sent)
    return frozenset(task for task in tasks if task is not None)


def _named(name: str) -> str:
    return f"member `{name}`"


def info_of(name: str, subscription: Subscription) -> SubscriptionInfo:
    """Unpack a member's report of its tasks; raise MemberForeign if it has none."""
    if subscription.user_data is None:
        message = (
            f"{_named(name)} says nothing about tasks: another program is in the group of this"
            " pipeline; stop it, or give it a group of its own"
        )
        raise MemberForeign(message)
    return unpack_subscription_info(subscription.user_data, _named(name))


def _following(share: Share, hops: Sequence[Hop]) -> dict[TaskId, frozenset[Partition]]:
    """Return the tasks that a member follows, with their changelog partitions."""
    return {
        _to_wire(task, hops): frozenset({Partition(hops[task.hop].changelog.name, task.partition)})
        for task in share.standbys | share.learners | share.promoted
    }
