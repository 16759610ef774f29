"""A group's offset, out of a broker's answer."""

from __future__ import annotations

import pytest
from aiokafka.errors import (
    CoordinatorLoadInProgressError,
    KafkaError,
    UnknownTopicOrPartitionError,
)
from aiokafka.protocol.commit import OffsetFetchResponse_v3

from headrace.services.kafka.unfinished import committed_in

AT_FIVE = [("raw", [(0, 5, "", 0)])]
UNKNOWN = [("raw", [(0, -1, "", UnknownTopicOrPartitionError.errno)])]


def test_the_offset_is_that_of_the_partition_that_was_asked_for() -> None:
    assert committed_in(OffsetFetchResponse_v3(0, AT_FIVE, 0), "clicks") == 5


@pytest.mark.parametrize(
    ("topics", "code", "error"),
    [
        ([], CoordinatorLoadInProgressError.errno, CoordinatorLoadInProgressError),
        (UNKNOWN, 0, UnknownTopicOrPartitionError),
    ],
    ids=["of the group", "of the partition"],
)
def test_an_error_is_raised_as_what_it_is(
    topics: list[object], code: int, error: type[KafkaError]
) -> None:
    with pytest.raises(error, match="clicks"):
        committed_in(OffsetFetchResponse_v3(0, topics, code), "clicks")
