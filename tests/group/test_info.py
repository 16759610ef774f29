"""Tasks, copies and hosts, as they stand inside the consumer protocol."""

from __future__ import annotations

from contextlib import suppress
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.errors import MemberForeign
from headrace.services.group.info import (
    FIRST_VERSION,
    INFO_VERSION,
    ORIGINS_SINCE,
    RUNS_SINCE,
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
from headrace.services.group.member import AT_ONCE_MS, TaskId
from headrace.services.group.wire import Partition

# By hand, after the fields that Kafka Streams wrote as version 4.
SUBSCRIPTION_OF_THE_PROPOSAL = (
    "00000004 00000004"
    " 000102030405060708090a0b0c0d0e0f"
    " 00000002 00000000 00000001 00000001 00000000"
    " 00000001 00000000 00000002"
    " 00000006 683a38303830"
)
SUBSCRIPTION = SUBSCRIPTION_OF_THE_PROPOSAL + (
    " 00000001 00000000 00000002 00000000000003e8"  # one lag, of 1000
    " 00000002"
    " 00000000000003e9 0002 6869"  # joined at 1001, because of `hi`
)
SUBSCRIPTION_INFO = SubscriptionInfo(
    client=bytes(range(16)),
    previous=frozenset({TaskId(0, 1), TaskId(1, 0)}),
    following=frozenset({TaskId(0, 2)}),
    lags={TaskId(0, 2): 1_000},
    capacity=2,
    endpoint=Endpoint("h", 8080),
    joined_at_ms=1_001,
    reason="hi",
    version=4,
    latest_supported=4,
)
ASSIGNMENT_OF_THE_PROPOSAL = (
    "00000004 00000004"
    " 00000001 00000000 00000001"
    " 00000001 00000000 00000002 00000001 0001 63 00000002"
    " 00000001 0001 68 00001f90 00000001 0001 74 00000001"
    " 00000000"
)
ASSIGNMENT = ASSIGNMENT_OF_THE_PROPOSAL + (
    " 00000001 00000000 00000002 00000000 00000000000927c0"  # again in 600,000 ms
)
ASSIGNMENT_INFO = AssignmentInfo(
    active=frozenset({TaskId(0, 1)}),
    following={TaskId(0, 2): frozenset({Partition("c", 2)})},
    learners=frozenset({TaskId(0, 2)}),
    promoted=frozenset(),
    next_rebalance_ms=600_000,
    by_host={Endpoint("h", 8080): frozenset({Partition("t", 1)})},
    version=4,
    latest_supported=4,
)

int32 = st.integers(0, 2**31 - 1)
tasks = st.frozensets(st.builds(TaskId, int32, int32), max_size=4)
names = st.text("abc.-", min_size=1, max_size=8)
endpoints = st.builds(Endpoint, names, st.integers(0, 65_535))
partitions = st.frozensets(st.builds(Partition, names, int32), max_size=4)
versions = st.integers(FIRST_VERSION, 2**31 - 1)
subscription_infos = st.builds(
    SubscriptionInfo,
    client=st.binary(min_size=16, max_size=16),
    previous=tasks,
    following=tasks,
    lags=st.dictionaries(st.builds(TaskId, int32, int32), st.integers(0, 2**63 - 1), max_size=4),
    capacity=st.integers(1, 2**31 - 1),
    endpoint=st.none() | endpoints,
    joined_at_ms=st.integers(0, 2**63 - 1),
    reason=names,
)
assignment_infos = st.builds(
    AssignmentInfo,
    active=tasks,
    following=st.dictionaries(st.builds(TaskId, int32, int32), partitions, max_size=3),
    learners=tasks,
    promoted=tasks,
    next_rebalance_ms=st.integers(-1, 2**63 - 1),
    by_host=st.dictionaries(endpoints, partitions, max_size=3),
    error=st.sampled_from(GroupError),
)


def test_golden_subscription_info() -> None:
    assert pack_subscription_info(SUBSCRIPTION_INFO) == bytes.fromhex(SUBSCRIPTION)
    assert unpack_subscription_info(bytes.fromhex(SUBSCRIPTION), "m") == SUBSCRIPTION_INFO


def test_golden_assignment_info() -> None:
    assert pack_assignment_info(ASSIGNMENT_INFO) == bytes.fromhex(ASSIGNMENT)
    assert unpack_assignment_info(bytes.fromhex(ASSIGNMENT)) == ASSIGNMENT_INFO


@given(subscription_infos)
def test_subscription_infos_come_back(info: SubscriptionInfo) -> None:
    assert unpack_subscription_info(pack_subscription_info(info), "m") == info


@given(assignment_infos)
def test_assignment_infos_come_back(info: AssignmentInfo) -> None:
    assert unpack_assignment_info(pack_assignment_info(info)) == info


@given(subscription_infos, versions, st.binary(max_size=20))
def test_a_newer_member_is_read_as_far_as_it_is_known(
    info: SubscriptionInfo, version: int, more: bytes
) -> None:
    raw = pack("!ii", version, version) + pack_subscription_info(info)[8:] + more
    read = unpack_subscription_info(raw, "m")
    assert (read.version, read.latest_supported) == (version, version)
    assert (read.lags, read.capacity, read.client) == (info.lags, info.capacity, info.client)


@given(assignment_infos, versions, st.binary(max_size=20))
def test_a_newer_leader_is_read_as_far_as_it_is_known(
    info: AssignmentInfo, version: int, more: bytes
) -> None:
    read = unpack_assignment_info(
        pack("!ii", version, version) + pack_assignment_info(info)[8:] + more
    )
    assert (read.active, read.next_rebalance_ms) == (info.active, info.next_rebalance_ms)


def test_bytes_that_end_early_are_refused() -> None:
    raw = bytes.fromhex(SUBSCRIPTION)
    for length in range(len(raw)):
        with pytest.raises(MemberForeign, match="the user data of member `x` cannot be read"):
            unpack_subscription_info(raw[:length], "member `x`")
    raw = bytes.fromhex(ASSIGNMENT)
    for length in range(len(raw)):
        with pytest.raises(MemberForeign, match="the user data of the assignment by the group's"):
            unpack_assignment_info(raw[:length])


CLIENT = "00" * 16
NOTHING = "00000000 00000000"


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ("00000003 00000004", "it has version 3, of 4 that its writer knows"),
        ("00000005 00000004", "it has version 5, of 4 that its writer knows"),
        (f"00000004 00000004 {CLIENT} 00000001 ffffffff 00000000", "of a task is below zero"),
        (f"00000004 00000004 {CLIENT} 00000001 00000000 ffffffff", "of a task is below zero"),
        (f"00000004 00000004 {CLIENT} {NOTHING} ffffffff", "the length of the endpoint is -1"),
        (f"00000004 00000004 {CLIENT} {NOTHING} 00000001 68", "its endpoint is not host:port"),
        (f"00000004 00000004 {CLIENT} {NOTHING} 00000003 683a2d", "its endpoint is not host:port"),
        (f"00000004 00000004 {CLIENT} {NOTHING} 00000007 683a3636363636", "a port is 66666"),
        (f"00000004 00000004 {CLIENT} {NOTHING} 00000000 00000001 {NOTHING} {'ff' * 8}", "a lag"),
        (f"00000004 00000004 {CLIENT} {NOTHING} {NOTHING} 00000000", "its capacity is 0"),
        ("80000000 80000000", "it has version -2147483648"),
    ],
)
def test_nonsense_from_a_member_is_refused(raw: str, problem: str) -> None:
    with pytest.raises(MemberForeign, match=problem):
        unpack_subscription_info(bytes.fromhex(raw), "m")


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (f"{NOTHING} 00000000 00000001", "its error code is 1"),
        (f"{NOTHING} 00000000 00000000 {NOTHING} {'ff' * 7}fe", "the next rebalance is in -2 ms"),
        (f"00000000 00000000 00000001 0001 68 00010000 {NOTHING}", "a port is 65536"),
    ],
)
def test_nonsense_from_a_leader_is_refused(raw: str, problem: str) -> None:
    with pytest.raises(MemberForeign, match=problem):
        unpack_assignment_info(bytes.fromhex(f"00000004 00000004 {raw}"))


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    versions = pack("!ii", INFO_VERSION, INFO_VERSION)
    for unpack in (
        lambda: unpack_subscription_info(versions + raw, "m"),
        lambda: unpack_assignment_info(versions + raw),
    ):
        with suppress(MemberForeign):
            unpack()


def test_all_write_the_latest_version_that_all_can() -> None:
    assert agreed_version([4, 4]) == 4
    assert agreed_version([9, 4]) == 4
    assert agreed_version([9, 7]) == INFO_VERSION


def test_a_member_that_writes_a_newer_version_is_told() -> None:
    assert error_for(INFO_VERSION) is GroupError.NONE
    assert error_for(INFO_VERSION + 1) is GroupError.VERSION_PROBING


def test_the_numbers_are_the_proposals() -> None:
    assert (FIRST_VERSION, AT_ONCE_MS, GroupError.VERSION_PROBING) == (4, 0, 2)
    # Since 5 all know where a record of a repartition topic came from, since 6 of a run of them.
    assert (ORIGINS_SINCE, RUNS_SINCE, INFO_VERSION) == (5, 6, 6)
