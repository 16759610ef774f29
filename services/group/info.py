"""The user data of subscriptions and assignments: tasks, copies and hosts.

The fields of the proposal's version 4 come first, as Kafka Streams wrote them. Ours follow, so a
reader that knows only the proposal's stops before them. `[x]` is a list: its length (4), and so
many x. A task is the number of its hop (4) and its partition (4). A text has its length (2) before
it. A topic's partition is topic (text), partition (4).

SubscriptionInfo
    version (4), latest version supported (4)
    client (16)                   whose copies of state these are
    previous tasks [task]         it runs them, did until it was cut off, or was promised them
    standby tasks [task]          it follows their changelogs, as standby or learner
    endpoint                      length (4), `host:port`; empty for none
    lags [task, lag (8)]          of each copy that it does not run: records that it lacks
    capacity (4)                  consumers that it counts for
    joined at (8)                 in milliseconds of its clock
    reason (text)                 why it joined, for people

AssignmentInfo
    version (4), latest version supported (4): the latest that all in the group can write
    active tasks [task]
    standby tasks [task, changelog partitions [topic's partition]]
                                  all that it follows: as standby, learner, or promoted
    partitions by host [host (text), port (4), [topic's partition]]
    error code (4)
    learner tasks [task]          of the standby tasks: those to ask for once it has caught up
    promoted tasks [task]         of the standby tasks: those that it gets in the next round
    next rebalance (8)            in so many milliseconds; 0 at once, -1 never

A member runs the partitions of the assignment around this; the active tasks repeat them.

A version only adds fields to the end of the one before. So a leader can read the fields that it
knows of a newer member, and assigns tasks by those. It also says which version it can read. The
member then joins again at once and writes that version (the proposal's version probing). When the
last old member is gone, the leader names a later version, and all members switch to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from headrace.services.group.member import NEVER_MS, TaskId
from headrace.services.group.packing import INT32, INT64, Reader, pack_array, pack_bytes, pack_utf
from headrace.services.group.wire import Partition

FIRST_VERSION = 4
"""The version that begins with the proposal's fields."""
ORIGINS_SINCE = 5
"""Adds no field. A member that can write this version reads where a record of a repartition topic
came from, and takes rows of times off it. No member writes either before all in the group can."""
RUNS_SINCE = 6
"""Adds no field. A member that can write this version reads where a run of records came from."""
INFO_VERSION = 6
"""The latest version."""
CLIENT_BYTES = 16
_PORT_MAX = 65_535
_PORT_DIGITS = 5


class GroupError(IntEnum):
    """Why the leader could not assign tasks as asked; the numbers are Kafka Streams'."""

    NONE = 0
    VERSION_PROBING = 2
    """The member wrote a version of which the leader does not know all fields."""


class Endpoint(NamedTuple):
    """The address at which a member answers queries."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class SubscriptionInfo:
    """A member's report about its tasks and copies."""

    client: bytes
    previous: frozenset[TaskId]
    following: frozenset[TaskId]
    lags: Mapping[TaskId, int]
    capacity: int = 1
    endpoint: Endpoint | None = None
    joined_at_ms: int = 0
    reason: str = ""
    version: int = INFO_VERSION
    latest_supported: int = INFO_VERSION


@dataclass(frozen=True, slots=True)
class AssignmentInfo:
    """The leader's answer about a member's tasks and copies."""

    active: frozenset[TaskId]
    following: Mapping[TaskId, frozenset[Partition]]
    learners: frozenset[TaskId]
    promoted: frozenset[TaskId]
    next_rebalance_ms: int
    by_host: Mapping[Endpoint, frozenset[Partition]]
    error: GroupError = GroupError.NONE
    version: int = INFO_VERSION
    latest_supported: int = INFO_VERSION


def agreed_version(latest_supported: Iterable[int]) -> int:
    """Return the version that every member writes: the latest that all can."""
    return min(INFO_VERSION, *latest_supported)


def error_for(version: int) -> GroupError:
    """Return the error code for a member that wrote this version."""
    return GroupError.VERSION_PROBING if version > INFO_VERSION else GroupError.NONE


def pack_subscription_info(info: SubscriptionInfo) -> bytes:
    """Pack a member's report."""
    endpoint = "" if info.endpoint is None else f"{info.endpoint.host}:{info.endpoint.port}"
    assert len(info.client) == CLIENT_BYTES
    return b"".join(
        (
            INT32.pack(info.version),
            INT32.pack(info.latest_supported),
            info.client,
            _pack_tasks(info.previous),
            _pack_tasks(info.following),
            pack_bytes(endpoint.encode()),
            pack_array(
                _pack_task(task) + INT64.pack(lag) for task, lag in sorted(info.lags.items())
            ),
            INT32.pack(info.capacity),
            INT64.pack(info.joined_at_ms),
            pack_utf(info.reason),
        )
    )


def unpack_subscription_info(raw: bytes, sender: str) -> SubscriptionInfo:
    """Unpack a member's report; `sender` names the member in an error."""
    reader = Reader(raw, f"the user data of {sender}")
    version, latest_supported = _unpack_versions(reader)
    client = reader.take(CLIENT_BYTES)
    previous, following = _unpack_tasks(reader), _unpack_tasks(reader)
    endpoint = _unpack_endpoint(reader)
    lags = reader.array(lambda: (_unpack_task(reader), reader.natural(INT64, "a lag")))
    capacity = reader.number(INT32)
    if capacity < 1:
        reader.refuse(f"its capacity is {capacity}")
    joined_at_ms, reason = reader.natural(INT64, "a time"), reader.utf()
    return SubscriptionInfo(
        client,
        previous,
        following,
        dict(lags),
        capacity,
        endpoint,
        joined_at_ms,
        reason,
        version,
        latest_supported,
    )


def pack_assignment_info(info: AssignmentInfo) -> bytes:
    """Pack the leader's answer to a member."""
    return b"".join(
        (
            INT32.pack(info.version),
            INT32.pack(info.latest_supported),
            _pack_tasks(info.active),
            pack_array(
                _pack_task(task) + _pack_partitions(partitions)
                for task, partitions in sorted(info.following.items())
            ),
            pack_array(
                pack_utf(endpoint.host) + INT32.pack(endpoint.port) + _pack_partitions(partitions)
                for endpoint, partitions in sorted(info.by_host.items())
            ),
            INT32.pack(info.error),
            _pack_tasks(info.learners),
            _pack_tasks(info.promoted),
            INT64.pack(info.next_rebalance_ms),
        )
    )


def unpack_assignment_info(raw: bytes) -> AssignmentInfo:
    """Unpack the leader's answer to a member."""
    reader = Reader(raw, "the user data of the assignment by the group's leader")
    version, latest_supported = _unpack_versions(reader)
    active = _unpack_tasks(reader)
    following = reader.array(lambda: (_unpack_task(reader), _unpack_partitions(reader)))
    by_host = reader.array(lambda: (_unpack_host(reader), _unpack_partitions(reader)))
    code = reader.number(INT32)
    if code not in set(GroupError):
        reader.refuse(f"its error code is {code}")
    learners, promoted = _unpack_tasks(reader), _unpack_tasks(reader)
    next_rebalance_ms = reader.number(INT64)
    if next_rebalance_ms < NEVER_MS:
        reader.refuse(f"the next rebalance is in {next_rebalance_ms} ms")
    return AssignmentInfo(
        active,
        dict(following),
        learners,
        promoted,
        next_rebalance_ms,
        dict(by_host),
        GroupError(code),
        version,
        latest_supported,
    )


def _unpack_versions(reader: Reader) -> tuple[int, int]:
    version, latest_supported = reader.number(INT32), reader.number(INT32)
    if not FIRST_VERSION <= version <= latest_supported:
        problem = f"it has version {version}, of {latest_supported} that its writer knows"
        reader.refuse(problem)
    return version, latest_supported


def _pack_task(task: TaskId) -> bytes:
    return INT32.pack(task.hop) + INT32.pack(task.partition)


def _unpack_task(reader: Reader) -> TaskId:
    return TaskId(reader.natural(INT32, "a hop"), reader.natural(INT32, "a partition"))


def _pack_tasks(tasks: Iterable[TaskId]) -> bytes:
    return pack_array(_pack_task(task) for task in sorted(tasks))


def _unpack_tasks(reader: Reader) -> frozenset[TaskId]:
    return frozenset(TaskId(*pair) for pair in reader.pairs("the hop or partition of a task"))


def _pack_partitions(partitions: Iterable[Partition]) -> bytes:
    return pack_array(
        pack_utf(topic) + INT32.pack(partition) for topic, partition in sorted(partitions)
    )


def _unpack_partitions(reader: Reader) -> frozenset[Partition]:
    def one() -> Partition:
        return Partition(reader.utf(), reader.natural(INT32, "a partition"))

    return frozenset(reader.array(one))


def _unpack_host(reader: Reader) -> Endpoint:
    return Endpoint(reader.utf(), _port(reader, reader.number(INT32)))


def _unpack_endpoint(reader: Reader) -> Endpoint | None:
    text = reader.take(reader.natural(INT32, "the length of the endpoint"))
    if not text:
        return None
    host, _, port = text.rpartition(b":")
    if not (port.isdigit() and len(port) <= _PORT_DIGITS and host.isascii()):
        reader.refuse("its endpoint is not host:port")
    return Endpoint(host.decode(), _port(reader, int(port)))


def _port(reader: Reader, port: int) -> int:
    if not 0 <= port <= _PORT_MAX:
        reader.refuse(f"a port is {port}")
    return port
