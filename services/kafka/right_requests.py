"""Kafka's requests about what we may do (KIP-430), which aiokafka does not speak, or reads wrongly.

    Metadata v8        topics, and the operations that we may do on each
    DescribeGroups v3  the same of groups

Operations are bits of one number, by Kafka's own numbers for them.
"""

from __future__ import annotations

from collections.abc import Iterable

from aiokafka.protocol.admin import DescribeGroupsResponse_v3
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Boolean, Int16, Int32, Schema, String

_TEXT = String("utf-8")


class OnTopicsResponse(Response):  # type: ignore[misc]
    """Topics as they are, and what we may do with them."""

    API_KEY = 3
    API_VERSION = 8
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("brokers", Array(("node_id", Int32), ("host", _TEXT), ("port", Int32), ("rack", _TEXT))),
        ("cluster_id", _TEXT),
        ("controller_id", Int32),
        (
            "topics",
            Array(
                ("error_code", Int16),
                ("name", _TEXT),
                ("is_internal", Boolean),
                (
                    "partitions",
                    Array(
                        ("error_code", Int16),
                        ("partition_index", Int32),
                        ("leader_id", Int32),
                        ("leader_epoch", Int32),
                        ("replica_nodes", Array(Int32)),
                        ("isr_nodes", Array(Int32)),
                        ("offline_replicas", Array(Int32)),
                    ),
                ),
                ("authorized_operations", Int32),
            ),
        ),
        ("cluster_authorized_operations", Int32),
    )


class OnTopicsStruct(RequestStruct):  # type: ignore[misc]
    """Version 8 on the wire."""

    API_KEY = 3
    API_VERSION = 8
    RESPONSE_TYPE = OnTopicsResponse
    SCHEMA = Schema(
        ("topics", Array(_TEXT)),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
    )


class OperationsOnTopics(Request[OnTopicsStruct]):  # type: ignore[misc]
    """The request for our rights on these topics."""

    API_KEY = 3

    def __init__(self, topics: Iterable[str]) -> None:
        """One that does not exist is not made."""
        self._topics = [*topics]

    def build(self, request_struct_class: type[OnTopicsStruct]) -> OnTopicsStruct:
        """As it goes out."""
        return request_struct_class(self._topics, False, False, True)  # noqa: FBT003


class OnGroupStruct(RequestStruct):  # type: ignore[misc]
    """Version 3 on the wire; aiokafka's own reads the answer as one of version 2."""

    API_KEY = 15
    API_VERSION = 3
    RESPONSE_TYPE = DescribeGroupsResponse_v3
    SCHEMA = Schema(("groups", Array(_TEXT)), ("include_authorized_operations", Boolean))


class OperationsOnGroup(Request[OnGroupStruct]):  # type: ignore[misc]
    """The request for our rights on a group."""

    API_KEY = 15

    def __init__(self, group: str) -> None:
        """A group that does not exist is described as a dead one."""
        self._group = group

    def build(self, request_struct_class: type[OnGroupStruct]) -> OnGroupStruct:
        """As it goes out."""
        return request_struct_class([self._group], True)  # noqa: FBT003
