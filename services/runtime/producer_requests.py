"""Kafka's requests about the producers of a partition, which aiokafka does not speak.

    DescribeProducers v0   who writes to partitions, and where an open transaction of theirs begins
    WriteTxnMarkers v1     the end of a transaction, written where the coordinator did not

Field by field as in the protocol's own description of the messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)

_NAME = CompactString("utf-8")
_NO_TAGS: dict[int, bytes] = {}


class DescribeProducersResponse(Response):  # type: ignore[misc]
    """The producers of each partition."""

    API_KEY = 61
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            CompactArray(
                ("name", _NAME),
                (
                    "partitions",
                    CompactArray(
                        ("partition_index", Int32),
                        ("error_code", Int16),
                        ("error_message", _NAME),
                        (
                            "active_producers",
                            CompactArray(
                                ("producer_id", Int64),
                                ("producer_epoch", Int32),
                                ("last_sequence", Int32),
                                ("last_timestamp", Int64),
                                ("coordinator_epoch", Int32),
                                ("current_txn_start_offset", Int64),
                                ("tags", TaggedFields),
                            ),
                        ),
                        ("tags", TaggedFields),
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class DescribeProducersStruct(RequestStruct):  # type: ignore[misc]
    """Version 0 on the wire."""

    API_KEY = 61
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = DescribeProducersResponse
    SCHEMA = Schema(
        (
            "topics",
            CompactArray(
                ("name", _NAME), ("partition_indexes", CompactArray(Int32)), ("tags", TaggedFields)
            ),
        ),
        ("tags", TaggedFields),
    )


class DescribeProducers(Request[DescribeProducersStruct]):  # type: ignore[misc]
    """Who writes to these partitions."""

    API_KEY = 61

    def __init__(self, partitions: Mapping[str, Iterable[int]]) -> None:
        """All of them led by the broker that is asked."""
        self._partitions = partitions

    def build(self, request_struct_class: type[DescribeProducersStruct]) -> DescribeProducersStruct:
        """As it goes out."""
        topics = [(name, [*numbers], _NO_TAGS) for name, numbers in self._partitions.items()]
        return request_struct_class(topics, _NO_TAGS)


class WriteTxnMarkersResponse(Response):  # type: ignore[misc]
    """What became of each marker."""

    API_KEY = 27
    API_VERSION = 1
    SCHEMA = Schema(
        (
            "markers",
            CompactArray(
                ("producer_id", Int64),
                (
                    "topics",
                    CompactArray(
                        ("name", _NAME),
                        (
                            "partitions",
                            CompactArray(
                                ("partition_index", Int32),
                                ("error_code", Int16),
                                ("tags", TaggedFields),
                            ),
                        ),
                        ("tags", TaggedFields),
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
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
                (
                    "topics",
                    CompactArray(
                        ("name", _NAME),
                        ("partition_indexes", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("coordinator_epoch", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class AbortInPartition(Request[WriteTxnMarkersStruct]):  # type: ignore[misc]
    """End a producer's open transaction in one partition: none of it counts."""

    API_KEY = 27

    def __init__(
        self, topic: str, partition: int, producer_id: int, producer_epoch: int, coordinator: int
    ) -> None:
        """As the partition describes the producer; `coordinator` is the epoch of the last one."""
        self._marker: tuple[Any, ...] = (
            producer_id,
            producer_epoch,
            False,
            [(topic, [partition], _NO_TAGS)],
            coordinator,
            _NO_TAGS,
        )

    def build(self, request_struct_class: type[WriteTxnMarkersStruct]) -> WriteTxnMarkersStruct:
        """As it goes out."""
        return request_struct_class([self._marker], _NO_TAGS)
