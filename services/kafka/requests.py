"""Kafka's requests about transactions, which aiokafka does not speak.

    DescribeProducers v0     who writes to partitions, and where a transaction of theirs is open
    DescribeTransactions v0  what became of the last transaction of an id
    ListTransactions v0      under which ids producers write
    InitProducerId v3        a new epoch, for whoever comes or for who had the last (KIP-360)
    WriteTxnMarkers v1       the end of a transaction, written where the coordinator did not
    OffsetFetch v7           what a group has committed, behind transactions on their way (KIP-447)

Field by field as in the protocol's own description of the messages. Before that version, an offset
that a finished transaction committed may be missing for a moment, or an older one be told instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from aiokafka.errors import GroupLoadInProgressError
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    Int16,
    Int32,
    Int64,
    Schema,
)
from aiokafka.structs import TopicPartition

from headrace.services.kafka.flexible import NAME, NO_TAGS, TAGS, by_partition

UNSTABLE = 88
"""The code of a partition where a transaction has still to end."""
_PARTITION_INDEXES = CompactArray(("name", NAME), ("partition_indexes", CompactArray(Int32)), TAGS)
"""Topics, and which of their partitions are asked about."""


class Identity(NamedTuple):
    """A producer, as brokers know it."""

    producer_id: int
    producer_epoch: int


class Writer(NamedTuple):
    """A producer, as a partition describes it."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    """Of the last coordinator that has ended a transaction there."""


class DescribeProducersResponse(Response):  # type: ignore[misc]
    """The producers of each partition."""

    API_KEY = 61
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            by_partition(
                ("error_message", NAME),
                (
                    "active_producers",
                    CompactArray(
                        ("producer_id", Int64),
                        ("producer_epoch", Int32),
                        ("last_sequence", Int32),
                        ("last_timestamp", Int64),
                        ("coordinator_epoch", Int32),
                        ("current_txn_start_offset", Int64),
                        TAGS,
                    ),
                ),
            ),
        ),
        TAGS,
    )


class DescribeProducersStruct(RequestStruct):  # type: ignore[misc]
    """Version 0 on the wire."""

    API_KEY = 61
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = DescribeProducersResponse
    SCHEMA = Schema(("topics", _PARTITION_INDEXES), TAGS)


class DescribeProducers(Request[DescribeProducersStruct]):  # type: ignore[misc]
    """The request for the producers of these partitions."""

    API_KEY = 61

    def __init__(self, partitions: Mapping[str, Iterable[int]]) -> None:
        """All of them led by the broker that is asked."""
        self._partitions = partitions

    def build(self, request_struct_class: type[DescribeProducersStruct]) -> DescribeProducersStruct:
        """As it goes out."""
        topics = [(name, [*numbers], NO_TAGS) for name, numbers in self._partitions.items()]
        return request_struct_class(topics, NO_TAGS)


class DescribeTransactionsResponse(Response):  # type: ignore[misc]
    """The last transaction of each id."""

    API_KEY = 65
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "transaction_states",
            CompactArray(
                ("error_code", Int16),
                ("transactional_id", NAME),
                ("transaction_state", NAME),
                ("transaction_timeout_ms", Int32),
                ("transaction_start_time_ms", Int64),
                ("producer_id", Int64),
                ("producer_epoch", Int16),
                (
                    "topics",
                    CompactArray(("topic", NAME), ("partitions", CompactArray(Int32)), TAGS),
                ),
                TAGS,
            ),
        ),
        TAGS,
    )


class DescribeTransactionsStruct(RequestStruct):  # type: ignore[misc]
    """Version 0 on the wire."""

    API_KEY = 65
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = DescribeTransactionsResponse
    SCHEMA = Schema(("transactional_ids", CompactArray(NAME)), TAGS)


class DescribeTransaction(Request[DescribeTransactionsStruct]):  # type: ignore[misc]
    """The request for the state of the last transaction of an id."""

    API_KEY = 65

    def __init__(self, transactional_id: str) -> None:
        """The id's coordinator is to be asked."""
        self._transactional_id = transactional_id

    def build(
        self, request_struct_class: type[DescribeTransactionsStruct]
    ) -> DescribeTransactionsStruct:
        """As it goes out."""
        return request_struct_class([self._transactional_id], NO_TAGS)


class ListTransactionsResponse(Response):  # type: ignore[misc]
    """The transactions that a broker coordinates."""

    API_KEY = 66
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("unknown_state_filters", CompactArray(NAME)),
        (
            "transaction_states",
            CompactArray(
                ("transactional_id", NAME),
                ("producer_id", Int64),
                ("transaction_state", NAME),
                TAGS,
            ),
        ),
        TAGS,
    )


class ListTransactionsStruct(RequestStruct):  # type: ignore[misc]
    """Version 0 on the wire."""

    API_KEY = 66
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = ListTransactionsResponse
    SCHEMA = Schema(
        ("state_filters", CompactArray(NAME)),
        ("producer_id_filters", CompactArray(Int64)),
        TAGS,
    )


class ListTransactions(Request[ListTransactionsStruct]):  # type: ignore[misc]
    """The transactional ids of these producers, as far as the broker coordinates them."""

    API_KEY = 66

    def __init__(self, producer_ids: Iterable[int]) -> None:
        """In whatever state their transactions are."""
        self._producer_ids = [*producer_ids]

    def build(self, request_struct_class: type[ListTransactionsStruct]) -> ListTransactionsStruct:
        """As it goes out."""
        return request_struct_class([], self._producer_ids, NO_TAGS)


class InitProducerIdResponse(Response):  # type: ignore[misc]
    """The identity of the producer from now on."""

    API_KEY = 22
    API_VERSION = 3
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        TAGS,
    )


class InitProducerIdStruct(RequestStruct):  # type: ignore[misc]
    """Version 3 on the wire."""

    API_KEY = 22
    API_VERSION = 3
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = InitProducerIdResponse
    SCHEMA = Schema(
        ("transactional_id", NAME),
        ("transaction_timeout_ms", Int32),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        TAGS,
    )


class NextEpoch(Request[InitProducerIdStruct]):  # type: ignore[misc]
    """A new epoch of a transactional id; what is open under it is aborted."""

    API_KEY = 22

    def __init__(self, transactional_id: str, timeout_ms: int, last: Identity | None) -> None:
        """Fence the id's owner, but with `last` not one that has come since then."""
        self._transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._last = last or Identity(-1, -1)

    def build(self, request_struct_class: type[InitProducerIdStruct]) -> InitProducerIdStruct:
        """As it goes out."""
        return request_struct_class(self._transactional_id, self._timeout_ms, *self._last, NO_TAGS)


class WriteTxnMarkersResponse(Response):  # type: ignore[misc]
    """The result of each marker."""

    API_KEY = 27
    API_VERSION = 1
    SCHEMA = Schema(
        (
            "markers",
            CompactArray(("producer_id", Int64), ("topics", by_partition()), TAGS),
        ),
        TAGS,
    )


class WriteTxnMarkersStruct(RequestStruct):  # type: ignore[misc]
    """Version 1 on the wire."""

    API_KEY = 27
    API_VERSION = 1
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = WriteTxnMarkersResponse
    SCHEMA = Schema(
        (
            "markers",
            CompactArray(
                ("producer_id", Int64),
                ("producer_epoch", Int16),
                ("transaction_result", Boolean),
                ("topics", _PARTITION_INDEXES),
                ("coordinator_epoch", Int32),
                TAGS,
            ),
        ),
        TAGS,
    )


class EndInPartition(Request[WriteTxnMarkersStruct]):  # type: ignore[misc]
    """End a producer's open transaction in one partition."""

    API_KEY = 27

    def __init__(self, place: TopicPartition, writer: Writer, *, commits: bool) -> None:
        """As the partition describes the producer; what it wrote counts, or does not."""
        self._marker: tuple[Any, ...] = (
            writer.producer_id,
            writer.producer_epoch,
            commits,
            [(place.topic, [place.partition], NO_TAGS)],
            writer.coordinator_epoch,
            NO_TAGS,
        )

    def build(self, request_struct_class: type[WriteTxnMarkersStruct]) -> WriteTxnMarkersStruct:
        """As it goes out."""
        return request_struct_class([self._marker], NO_TAGS)


class OffsetsUnstableError(GroupLoadInProgressError):  # type: ignore[misc]
    """A transaction that commits offsets of these partitions has still to end; ask again."""


class OffsetFetchResponse(Response):  # type: ignore[misc]
    """Offsets by topic and partition; -1 where nothing was committed."""

    API_KEY = 9
    API_VERSION = 7
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
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
                        ("metadata", NAME),
                        ("error_code", Int16),
                        TAGS,
                    ),
                ),
                TAGS,
            ),
        ),
        ("error_code", Int16),
        TAGS,
    )


class OffsetFetchStruct(RequestStruct):  # type: ignore[misc]
    """Version 7 on the wire."""

    API_KEY = 9
    API_VERSION = 7
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = OffsetFetchResponse
    SCHEMA = Schema(
        ("group_id", NAME),
        ("topics", _PARTITION_INDEXES),
        ("require_stable", Boolean),
        TAGS,
    )


class StableOffsets(Request[OffsetFetchStruct]):  # type: ignore[misc]
    """The request for a group's offsets of these partitions, when no transaction is on its way."""

    API_KEY = 9

    def __init__(self, group: str, places: Iterable[TopicPartition]) -> None:
        """Named one by one: asked for all, a broker forgets those whose first commit is coming."""
        self._group = group
        self._numbers: dict[str, list[int]] = {}
        for topic, number in places:
            self._numbers.setdefault(topic, []).append(number)

    def build(self, request_struct_class: type[OffsetFetchStruct]) -> OffsetFetchStruct:
        """As it goes out."""
        topics: list[tuple[Any, ...]] = [
            (name, numbers, NO_TAGS) for name, numbers in self._numbers.items()
        ]
        return request_struct_class(self._group, topics, True, NO_TAGS)  # noqa: FBT003
