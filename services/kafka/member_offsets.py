"""A group's offsets within a transaction, told by a member of the group (KIP-447).

The group takes them from a member that it knows, and of its generation alone, so whoever was thrown
out cannot commit. aiokafka speaks version 0, which names no member, and which the group takes from
anybody.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from aiokafka.errors import (
    CommitFailedError,
    IllegalGenerationError,
    InvalidProducerEpoch,
    ProducerFenced,
    RebalanceInProgressError,
    UnknownMemberIdError,
    for_code,
)
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    CompactArray,
    Int16,
    Int32,
    Int64,
    Schema,
)
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from headrace.services.kafka.flexible import NAME, NO_TAGS, TAGS, by_partition
from headrace.services.kafka.heartbeats import FENCED_INSTANCE_ID
from headrace.services.kafka.requests import Identity

_UNKNOWN_EPOCH = -1
_AGAIN_S = 0.02


class Member(NamedTuple):
    """The member that tells the offsets, as the group knows it."""

    member_id: str
    generation: int


class MemberOffsetsResponse(Response):  # type: ignore[misc]
    """An error code for each partition."""

    API_KEY = 28
    API_VERSION = 3
    SCHEMA = Schema(("throttle_time_ms", Int32), ("topics", by_partition()), TAGS)


class MemberOffsetsStruct(RequestStruct):  # type: ignore[misc]
    """TxnOffsetCommit, version 3 on the wire."""

    API_KEY = 28
    API_VERSION = 3
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = MemberOffsetsResponse
    SCHEMA = Schema(
        ("transactional_id", NAME),
        ("group_id", NAME),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        ("generation_id", Int32),
        ("member_id", NAME),
        ("group_instance_id", NAME),
        (
            "topics",
            CompactArray(
                ("name", NAME),
                (
                    "partitions",
                    CompactArray(
                        ("partition_index", Int32),
                        ("committed_offset", Int64),
                        ("committed_leader_epoch", Int32),
                        ("committed_metadata", NAME),
                        TAGS,
                    ),
                ),
                TAGS,
            ),
        ),
        TAGS,
    )


class Teller(NamedTuple):
    """The transaction that offsets are part of, and the group that they are of."""

    transactional_id: str
    identity: Identity
    group: str
    began_as: str
    """Which member the instance was when it began."""


Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class MemberOffsets(Request[MemberOffsetsStruct]):  # type: ignore[misc]
    """Offsets that a transaction reaches."""

    API_KEY = 28

    def __init__(self, teller: Teller, member: Member, offsets: Offsets) -> None:
        """Told by a member of the group."""
        self._teller = teller
        self._member = member
        self._topics: dict[str, list[tuple[Any, ...]]] = {}
        for (topic, number), (offset, metadata) in sorted(offsets.items()):
            one = (number, offset, _UNKNOWN_EPOCH, metadata, NO_TAGS)
            self._topics.setdefault(topic, []).append(one)

    def build(self, request_struct_class: type[MemberOffsetsStruct]) -> MemberOffsetsStruct:
        """As it goes out."""
        transactional_id, identity, group, _ = self._teller
        topics = [(name, partitions, NO_TAGS) for name, partitions in self._topics.items()]
        member_id, generation = self._member
        return request_struct_class(
            transactional_id, group, *identity, generation, member_id, None, topics, NO_TAGS
        )


async def tell_offsets(
    send: Callable[[MemberOffsets], Awaitable[Any]],
    teller: Teller,
    member: Callable[[], Member | None],
    offsets: Offsets,
    within_s: float,
) -> None:
    """Tell a group's coordinator, through `send`, what a transaction reaches.

    A generation changes while partitions stay where they are, and a member hears of it later than
    the group. So the offsets are told again as the same member, for so long.

    Raises CommitFailedError where the group does not count this member any more.
    """
    give_up_at_s = time.monotonic() + within_s
    while True:
        known_as = member()
        if known_as is None or known_as.member_id != teller.began_as:
            message = "this instance is not the member of its group that it was"
            raise CommitFailedError(message)
        answer = await send(MemberOffsets(teller, known_as, offsets))
        codes = {code for _, partitions, _ in answer.topics for _, code, _ in partitions}
        codes.discard(0)
        if not codes:
            return
        code = min(codes)
        error = for_code(code)
        if error is UnknownMemberIdError or code == FENCED_INSTANCE_ID:
            message = "the group does not know this instance any more"
            raise CommitFailedError(message)
        if error is InvalidProducerEpoch:
            raise ProducerFenced
        is_stale = error in {IllegalGenerationError, RebalanceInProgressError}
        if not is_stale or time.monotonic() >= give_up_at_s:
            raise error
        await asyncio.sleep(_AGAIN_S)
