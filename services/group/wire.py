"""Kafka's consumer protocol: what any member of any group reports and is assigned.

Kafka's tools and the broker read it, so `kafka-consumer-groups --describe` shows who has what.

Subscription        version (2), topics [STRING], user data NULLABLE_BYTES,
    from version 1  partitions owned [topic STRING, partitions [4]],
    from version 2  generation (4) in which it was told to own them; -1 for none
    from version 3  rack NULLABLE_STRING
Assignment          version (2), partitions [topic STRING, partitions [4]],
                    user data NULLABLE_BYTES

Square brackets are a list: its length (4), and so many of these. A version only adds fields to the
end of the one before, so a reader takes the fields that it knows of a newer one and ignores the
rest. `services/group/info.py` describes the user data.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from headrace.services.group.packing import (
    INT16,
    INT32,
    Reader,
    pack_array,
    pack_bytes,
    pack_string,
)

WIRE_VERSION = 3
NO_GENERATION = -1
_OWNED_SINCE, _GENERATION_SINCE, _RACK_SINCE = 1, 2, 3


class Partition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Subscription:
    """A member's report when it joins."""

    topics: tuple[str, ...]
    user_data: bytes | None
    owned: frozenset[Partition] = frozenset()
    generation: int = NO_GENERATION
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """A member's assignment."""

    partitions: frozenset[Partition]
    user_data: bytes | None


def pack_subscription(subscription: Subscription, version: int = WIRE_VERSION) -> bytes:
    """Pack a subscription."""
    packed = INT16.pack(version)
    packed += pack_array(pack_string(topic) for topic in subscription.topics)
    packed += pack_bytes(subscription.user_data)
    if version >= _OWNED_SINCE:
        packed += _pack_partitions(subscription.owned)
    if version >= _GENERATION_SINCE:
        packed += INT32.pack(subscription.generation)
    if version >= _RACK_SINCE:
        packed += pack_string(subscription.rack)
    return packed


def unpack_subscription(raw: bytes, sender: str) -> Subscription:
    """Unpack a subscription; `sender` names the member in an error."""
    reader = Reader(raw, f"the subscription of {sender}")
    version = reader.natural(INT16, "its version")
    topics = tuple(reader.array(reader.name))
    user_data = reader.blob()
    owned: frozenset[Partition] = frozenset()
    generation, rack = NO_GENERATION, None
    if version >= _OWNED_SINCE:
        owned = _unpack_partitions(reader)
    if version >= _GENERATION_SINCE:
        generation = reader.number(INT32)
        if generation < NO_GENERATION:
            reader.refuse(f"its generation is {generation}")
    if version >= _RACK_SINCE:
        rack = reader.string()
    return Subscription(topics, user_data, owned, generation, rack)


def pack_assignment(assignment: Assignment) -> bytes:
    """Pack an assignment."""
    packed = INT16.pack(WIRE_VERSION) + _pack_partitions(assignment.partitions)
    return packed + pack_bytes(assignment.user_data)


def unpack_assignment(raw: bytes) -> Assignment:
    """Unpack an assignment."""
    reader = Reader(raw, "the assignment by the group's leader")
    reader.natural(INT16, "its version")
    return Assignment(_unpack_partitions(reader), reader.blob())


def _pack_partitions(partitions: Iterable[Partition]) -> bytes:
    by_topic = groupby(sorted(partitions), key=lambda partition: partition.topic)
    return pack_array(
        pack_string(topic) + pack_array(INT32.pack(each.partition) for each in of_topic)
        for topic, of_topic in by_topic
    )


def _unpack_partitions(reader: Reader) -> frozenset[Partition]:
    def of_topic() -> list[Partition]:
        topic = reader.name()
        numbers = reader.array(lambda: reader.natural(INT32, f"a partition of `{topic}`"))
        return [Partition(topic, number) for number in numbers]

    return frozenset(partition for topic in reader.array(of_topic) for partition in topic)
