"""A group's offsets are read while transactions of many members are on their way."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest
from aiokafka import AIOKafkaClient
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from headrace.services.kafka import patience
from headrace.services.kafka.cluster import Cluster
from headrace.services.kafka.requests import UNSTABLE, OffsetsUnstableError, StableOffsets
from headrace.services.settings import Settings

PLACES = [TopicPartition("raw", number) for number in range(3)]


class _Client:
    """A coordinator that answers for some partitions, each time for others."""

    def __init__(self, unstable: list[set[int]]) -> None:
        self._unstable = unstable
        self.asked: list[list[int]] = []

    async def coordinator_lookup(self, *_: object) -> int:
        return 1

    async def send(self, _node: int, request: StableOffsets) -> Any:
        (numbers,) = request._numbers.values()  # noqa: SLF001 - as they go out
        self.asked.append(numbers)
        unstable = self._unstable[min(len(self.asked), len(self._unstable)) - 1]
        partitions: list[Any] = [
            (number, -1, -1, "", UNSTABLE, {})
            if number in unstable
            else (number, number - 1, -1, "ours", 0, {})
            for number in numbers
        ]
        return SimpleNamespace(error_code=0, topics=[("raw", partitions, {})])


def _committed(client: _Client) -> dict[TopicPartition, OffsetAndMetadata]:
    cluster = Cluster(cast("AIOKafkaClient", client), Settings(bootstrap_servers="127.0.0.1:1"))
    with patch.object(patience, "PAUSE_S", 0.0):
        return asyncio.run(cluster.committed("clicks", PLACES))


def test_offsets_are_read_though_some_transaction_is_always_on_its_way() -> None:
    # Of each partition it is known at some time, and of all of them never at once.
    client = _Client([{0, 1}, {0, 2}, {1, 2}])
    found = _committed(client)
    assert found == {
        PLACES[1]: OffsetAndMetadata(0, "ours"),
        PLACES[2]: OffsetAndMetadata(1, "ours"),
    }
    assert client.asked == [[0, 1, 2], [0, 1], [0]]


def test_an_offset_that_is_never_known_is_an_error() -> None:
    with patch.object(patience, "PATIENCE_S", 0.0), pytest.raises(OffsetsUnstableError):
        _committed(_Client([{1}]))
