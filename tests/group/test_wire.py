"""The consumer protocol, byte by byte, as Kafka's schema has it."""

from __future__ import annotations

from contextlib import suppress
from struct import pack

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocol
from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.errors import MemberForeign
from headrace.services.group.wire import (
    Assignment,
    Partition,
    Subscription,
    pack_assignment,
    pack_subscription,
    unpack_assignment,
    unpack_subscription,
)

# By hand, after ConsumerProtocolSubscription.json and ConsumerProtocolAssignment.json of Kafka.
SINCE_0 = "00000002 0001 61 0002 6262 00000003 010203"
"""Two topics, `a` and `bb`; three bytes of user data."""
SINCE_1 = "00000001 0001 61 00000002 00000000 00000007"
"""Of one topic, `a`, two partitions: 0 and 7."""
SINCE_2 = "00000005"
SINCE_3 = "0002 7231"
WHOLE = Subscription(
    topics=("a", "bb"),
    user_data=b"\x01\x02\x03",
    owned=frozenset({Partition("a", 0), Partition("a", 7)}),
    generation=5,
    rack="r1",
)
GOLDEN = {
    0: (f"0000 {SINCE_0}", Subscription(WHOLE.topics, WHOLE.user_data)),
    1: (f"0001 {SINCE_0} {SINCE_1}", Subscription(WHOLE.topics, WHOLE.user_data, WHOLE.owned)),
    2: (
        f"0002 {SINCE_0} {SINCE_1} {SINCE_2}",
        Subscription(WHOLE.topics, WHOLE.user_data, WHOLE.owned, 5),
    ),
    3: (f"0003 {SINCE_0} {SINCE_1} {SINCE_2} {SINCE_3}", WHOLE),
}
EMPTY = "0003 00000000 ffffffff 00000000 ffffffff ffff"
GOLDEN_ASSIGNMENT = (
    "0003 00000002 0001 61 00000002 00000000 00000007 0002 6262 00000001 00000001 00000002 0405"
)
ASSIGNMENT = Assignment(
    frozenset({Partition("a", 0), Partition("a", 7), Partition("bb", 1)}), b"\x04\x05"
)

names = st.text(max_size=10)
partitions = st.frozensets(st.builds(Partition, names, st.integers(0, 2**31 - 1)), max_size=5)
user_data = st.none() | st.binary(max_size=10)
subscriptions = st.builds(
    Subscription,
    topics=st.lists(names, max_size=3).map(tuple),
    user_data=user_data,
    owned=partitions,
    generation=st.integers(-1, 2**31 - 1),
    rack=st.none() | names,
)
assignments = st.builds(Assignment, partitions, user_data)


@pytest.mark.parametrize("version", GOLDEN)
def test_golden_subscriptions(version: int) -> None:
    golden, known = GOLDEN[version]
    assert pack_subscription(WHOLE, version) == bytes.fromhex(golden)
    assert unpack_subscription(bytes.fromhex(golden), "m") == known


def test_golden_subscription_of_nothing() -> None:
    assert pack_subscription(Subscription((), None)) == bytes.fromhex(EMPTY)
    assert unpack_subscription(bytes.fromhex(EMPTY), "m") == Subscription((), None)


def test_golden_assignment() -> None:
    assert pack_assignment(ASSIGNMENT) == bytes.fromhex(GOLDEN_ASSIGNMENT)
    assert unpack_assignment(bytes.fromhex(GOLDEN_ASSIGNMENT)) == ASSIGNMENT


@given(subscriptions)
def test_subscriptions_come_back(subscription: Subscription) -> None:
    assert unpack_subscription(pack_subscription(subscription), "m") == subscription


@given(assignments)
def test_assignments_come_back(assignment: Assignment) -> None:
    assert unpack_assignment(pack_assignment(assignment)) == assignment


@given(subscriptions, st.integers(4, 2**15 - 1), st.binary(max_size=20))
def test_a_newer_version_is_read_as_far_as_it_is_known(
    subscription: Subscription, version: int, more: bytes
) -> None:
    raw = pack("!h", version) + pack_subscription(subscription)[2:] + more
    assert unpack_subscription(raw, "m") == subscription


@given(assignments, st.integers(4, 2**15 - 1), st.binary(max_size=20))
def test_a_newer_assignment_is_read_as_far_as_it_is_known(
    assignment: Assignment, version: int, more: bytes
) -> None:
    assert (
        unpack_assignment(pack("!h", version) + pack_assignment(assignment)[2:] + more)
        == assignment
    )


@given(subscriptions)
def test_the_client_reads_what_we_write(subscription: Subscription) -> None:
    decoded = ConsumerProtocol.METADATA.decode(pack_subscription(subscription))
    assert (tuple(decoded.subscription), decoded.user_data) == (
        subscription.topics,
        subscription.user_data,
    )


@given(assignments)
def test_the_client_reads_our_assignments(assignment: Assignment) -> None:
    decoded = ConsumerProtocol.ASSIGNMENT.decode(pack_assignment(assignment))
    assert {Partition(*partition) for partition in decoded.partitions()} == assignment.partitions
    assert decoded.user_data == assignment.user_data


@given(subscriptions)
def test_we_read_what_the_client_writes(subscription: Subscription) -> None:
    metadata = ConsumerProtocol.METADATA(0, list(subscription.topics), subscription.user_data)
    known = Subscription(subscription.topics, subscription.user_data)
    assert unpack_subscription(metadata.encode(), "m") == known


@pytest.mark.parametrize("version", GOLDEN)
def test_a_subscription_that_ends_early_is_refused(version: int) -> None:
    raw = pack_subscription(WHOLE, version)
    for length in range(len(raw)):
        with pytest.raises(MemberForeign, match="subscription of member `x` cannot be read"):
            unpack_subscription(raw[:length], "member `x`")


def test_an_assignment_that_ends_early_is_refused() -> None:
    raw = pack_assignment(ASSIGNMENT)
    for length in range(len(raw)):
        with pytest.raises(MemberForeign, match="assignment by the group's leader cannot be"):
            unpack_assignment(raw[:length])


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ("ffff", "its version is -1"),
        ("0000 ffffffff", "the length of a list is -1"),
        ("0000 7fffffff", "it ends where 2 bytes should follow"),
        ("0000 00000001 ffff", "a length is -1"),
        ("0000 00000001 0001 ff ffffffff", "a text is not UTF-8"),
        ("0000 00000000 fffffffe", "a length is -2"),
        ("0001 00000000 ffffffff 00000001 0001 61 00000001 ffffffff", "a partition of `a` is -1"),
        ("0002 00000000 ffffffff 00000000 fffffffe", "its generation is -2"),
        ("0003 00000000 ffffffff 00000000 00000000 fffe", "a length is -2"),
    ],
)
def test_nonsense_is_refused(raw: str, problem: str) -> None:
    with pytest.raises(MemberForeign, match=problem):
        unpack_subscription(bytes.fromhex(raw), "m")


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    for unpack in (lambda: unpack_subscription(raw, "m"), lambda: unpack_assignment(raw)):
        with suppress(MemberForeign):
            unpack()
