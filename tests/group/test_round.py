"""A round as bytes: members of several kinds, and members that do not belong."""

from __future__ import annotations

from struct import pack

import pytest

from headrace.contracts.errors import MemberForeign
from headrace.services.group.holdings import Holdings
from headrace.services.group.info import INFO_VERSION, Endpoint
from headrace.services.group.member import Rules, Share, TaskId
from headrace.services.group.round import Instance, describe, hear, lead
from headrace.services.group.wire import (
    Partition,
    Subscription,
    pack_subscription,
    unpack_subscription,
)
from tests.group.simulation import hops_of

HOPS = hops_of(2)
PARTITIONS = {"into.state": 2, "into.by-id-1": 1}
CLIENTS = [bytes([number] * 16) for number in range(4)]
ALL = frozenset({TaskId(0, 0), TaskId(0, 1), TaskId(1, 0)})


def running(*tasks: TaskId) -> Holdings:
    """A member that runs these."""
    holdings = Holdings(10)
    holdings.told(Share(active=frozenset(tasks)))
    return holdings


def test_members_hear_the_shares_that_the_leader_made() -> None:
    first = Instance(CLIENTS[0], HOPS, Endpoint("one", 6066))
    second = Instance(CLIENTS[1], HOPS, Endpoint("two", 6066))
    led = lead(
        {
            "a": describe(first, running(*ALL), 3),
            "b": describe(second, Holdings(10), -1),
        },
        HOPS,
        PARTITIONS,
        Rules(standbys=1),
    )
    heard = {name: hear(raw, HOPS) for name, raw in led.assignments.items()}
    assert {name: each.share for name, each in heard.items()} == led.shares
    assert heard["a"].share.active == ALL
    assert heard["b"].share.learners
    assert heard["b"].partitions == frozenset()
    everything = {Partition(topic, n) for topic, count in PARTITIONS.items() for n in range(count)}
    assert heard["a"].partitions == everything
    assert heard["b"].by_host == {
        Endpoint("one", 6066): everything,
        Endpoint("two", 6066): frozenset(),
    }
    assert not heard["a"].joins_at_once


def test_instances_before_and_after_a_hop_was_added_understand_each_other() -> None:
    old_hops = (HOPS[1],)
    old = Instance(CLIENTS[0], old_hops)
    holdings = Holdings(10)
    holdings.told(Share(standbys=frozenset({TaskId(0, 0)})))
    holdings.measured({TaskId(0, 0): 0})
    new = Instance(CLIENTS[1], HOPS)
    metadata = {"new": describe(new, running(*ALL), 3), "old": describe(old, holdings, 3)}
    led = lead(metadata, HOPS, PARTITIONS, Rules(standbys=1))
    assert led.shares["old"].standbys == {TaskId(1, 0)}
    assert not led.shares["old"].learners
    heard = hear(led.assignments["old"], old_hops)
    assert heard.share.standbys == {TaskId(0, 0)}
    led = lead(metadata, old_hops, PARTITIONS, Rules(standbys=1))
    assert led.shares["new"].active == {TaskId(0, 0)}


def test_a_newer_member_is_read_and_asked_to_write_what_all_can_read() -> None:
    instance = Instance(CLIENTS[0], HOPS)
    raw = unpack_subscription(describe(instance, running(*ALL), 3), "m")
    assert raw.user_data is not None
    newer = Subscription(
        raw.topics,
        pack("!ii", INFO_VERSION + 1, INFO_VERSION + 2) + raw.user_data[8:] + b"more",
        raw.owned,
        raw.generation,
    )
    led = lead({"a": pack_subscription(newer)}, HOPS, PARTITIONS, Rules())
    heard = hear(led.assignments["a"], HOPS)
    assert heard.share.active == ALL, "nothing stops for it"
    assert heard.joins_at_once
    assert heard.version == INFO_VERSION


@pytest.mark.parametrize(
    ("user_data", "problem"),
    [
        (None, "member `b` says nothing about tasks"),
        (b"", "the user data of member `b` cannot be read"),
        (b"\x00\x00\x00\x01sticky", "the user data of member `b` cannot be read"),
    ],
)
def test_a_member_of_another_kind_is_refused_by_name(user_data: bytes | None, problem: str) -> None:
    ours = describe(Instance(CLIENTS[0], HOPS), Holdings(10), -1)
    foreign = pack_subscription(Subscription(("into.state",), user_data))
    with pytest.raises(MemberForeign, match=problem):
        lead({"a": ours, "b": foreign}, HOPS, PARTITIONS, Rules())


def test_a_leader_of_another_kind_is_refused() -> None:
    with pytest.raises(MemberForeign, match="another program leads it"):
        hear(bytes.fromhex("0000 00000000 ffffffff"), HOPS)


def test_a_member_does_not_join_while_it_closes_a_task() -> None:
    holdings = running(*ALL)
    holdings.told(Share())
    with pytest.raises(AssertionError):
        describe(Instance(CLIENTS[0], HOPS), holdings, 3)
