"""Which topics there are now: what has the name of another one need not be the same topic.

Kafka gives a topic that is made anew another id, which Metadata tells since version 10; aiokafka
speaks up to version 5.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any, NamedTuple

from aiokafka.errors import for_code
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    Int16,
    Int32,
    Int64,
    Schema,
)

from headrace.services.kafka.flexible import NAME, NO_TAGS, TAGS

_ID = ("id_high", Int64), ("id_low", Int64)
_HALF = 1 << 64
_FRESH_S = 1.0


class Identity(NamedTuple):
    """A topic, apart from its name."""

    id: str | None
    """None where the cluster gives none."""
    partitions: int


class MetadataResponse(Response):  # type: ignore[misc]
    """Brokers and topics."""

    API_KEY = 3
    API_VERSION = 12
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(("node", Int32), ("host", NAME), ("port", Int32), ("rack", NAME), TAGS),
        ),
        ("cluster_id", NAME),
        ("controller", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("name", NAME),
                *_ID,
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("index", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("in_sync", CompactArray(Int32)),
                        ("offline", CompactArray(Int32)),
                        TAGS,
                    ),
                ),
                ("operations", Int32),
                TAGS,
            ),
        ),
        TAGS,
    )


class MetadataStruct(RequestStruct):  # type: ignore[misc]
    """Version 12 on the wire."""

    API_KEY = 3
    API_VERSION = 12
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = MetadataResponse
    SCHEMA = Schema(
        ("topics", CompactArray(*_ID, ("name", NAME), TAGS)),
        ("makes_topics", Boolean),
        ("tells_operations", Boolean),
        TAGS,
    )


class DescribeTopics(Request[MetadataStruct]):  # type: ignore[misc]
    """The request for the topics of these names."""

    API_KEY = 3

    def __init__(self, topics: Iterable[str]) -> None:
        """Ask for them; a broker makes none of them."""
        self._topics = [(0, 0, name, NO_TAGS) for name in topics]

    def build(self, request_struct_class: type[MetadataStruct]) -> MetadataStruct:
        """As it goes out."""
        return request_struct_class(self._topics, False, False, NO_TAGS)  # noqa: FBT003


def identities_in(answer: Any) -> dict[str, Identity]:
    """The topics that an answer names; a KafkaError where one of them is not there."""
    known = {}
    for code, name, high, low, _, partitions, *_ in answer.topics:
        if code:
            raise for_code(code)(name)
        number = (high % _HALF) << 64 | (low % _HALF)
        known[name] = Identity(f"{number:032x}" if number else None, len(partitions))
    return known


class Identities:
    """The topics of a pipeline, as they are now."""

    def __init__(
        self, topics: Collection[str], ask: Callable[[Request[Any]], Awaitable[Any]]
    ) -> None:
        """Ask a broker in this way, all at once and not for each partition."""
        self._topics = topics
        self._ask = ask
        self._known: dict[str, Identity] = {}
        self._asked_at_s = -_FRESH_S

    async def now(self) -> dict[str, Identity]:
        """By name; a KafkaError where one of them is not there."""
        if time.monotonic() - self._asked_at_s >= _FRESH_S:
            self._known = identities_in(await self._ask(DescribeTopics(self._topics)))
            self._asked_at_s = time.monotonic()
        return self._known
