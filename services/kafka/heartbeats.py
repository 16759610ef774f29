"""Heartbeats, and what answers say; a member that has a name hears whether it is another's.

A broker that knows a name gives it to whoever joined with it last. The one before is refused, and
only a request that says the name hears why; aiokafka's heartbeats do not say it.
"""

from __future__ import annotations

from typing import Any

from aiokafka.errors import (
    GroupLoadInProgressError,
    IllegalGenerationError,
    NoError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    for_code,
)
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.group import JoinGroupRequest
from aiokafka.protocol.types import Int16, Int32, Schema, String

FENCED_INSTANCE_ID = 82
OF_A_MEMBER = (IllegalGenerationError, RebalanceInProgressError)
"""Refusals that only a member hears."""


class NamedHeartbeatResponse(Response):  # type: ignore[misc]
    """Whether the group still knows the member."""

    API_KEY = 12
    API_VERSION = 3
    SCHEMA = Schema(("throttle_time_ms", Int32), ("error_code", Int16))


class NamedHeartbeatStruct(RequestStruct):  # type: ignore[misc]
    """Version 3 on the wire."""

    API_KEY = 12
    API_VERSION = 3
    RESPONSE_TYPE = NamedHeartbeatResponse
    SCHEMA = Schema(
        ("group", String("utf-8")),
        ("generation_id", Int32),
        ("member_id", String("utf-8")),
        ("group_instance_id", String("utf-8")),
    )


class NamedHeartbeat(Request[NamedHeartbeatStruct]):  # type: ignore[misc]
    """A sign of life of the member that has a name."""

    API_KEY = 12

    def __init__(self, group: str, generation: int, member_id: str, name: str) -> None:
        """As the group knows it."""
        self._says = group, generation, member_id, name

    def build(self, request_struct_class: type[NamedHeartbeatStruct]) -> NamedHeartbeatStruct:
        """As it goes out."""
        return request_struct_class(*self._says)


def is_alive(error_code: int) -> bool:
    """Whether a heartbeat was a member's, and has put off the end of its session."""
    return error_code in {NoError.errno, RebalanceInProgressError.errno}


def counts(error_code: int) -> bool:
    """Whether a heartbeat of no generation was a member's, by the answer to it."""
    error = GroupLoadInProgressError if error_code == NoError.errno else for_code(error_code)
    if error is UnknownMemberIdError or error_code == FENCED_INSTANCE_ID:
        return False
    if error not in OF_A_MEMBER:
        raise error
    return True


def check_kept(request: Any, answer: Any) -> None:
    """Raise where brokers could not write down in time that a member with a name has joined.

    It joins again then. aiokafka would take the answer for the end.
    """
    is_unkept = getattr(answer, "error_code", None) == RebalanceInProgressError.errno
    if is_unkept and isinstance(request, JoinGroupRequest):
        raise RebalanceInProgressError
