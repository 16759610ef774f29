"""Partitions of a hop that stand before a repartition commit together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from aiokafka.structs import TopicPartition

from headrace.services.kafka.limits import Limits
from headrace.services.kafka.takeovers import Takeovers
from headrace.services.kafka.unfinished import Known
from headrace.services.runtime.output.shared_producer import Common, Ours
from headrace.services.runtime.output.shared_producers import SharedProducers


async def _check_counted() -> None:
    """Pass."""


@pytest.mark.parametrize(
    ("hops", "expected"),
    [
        (["raw"], {"raw": {"x-0", "x-1"}}),
        (["raw", "by-id"], {"raw": {"x-0"}, "by-id": {"x-1"}}),
        (["raw", "by-id", "again"], {"raw": {"x-0"}, "by-id": {"x-1"}, "again": {"x-0"}}),
    ],
)
def test_a_hop_has_one_producer_where_there_are_several_hops(
    hops: Sequence[str], expected: dict[str, set[str]]
) -> None:
    async def names() -> dict[str, set[str]]:
        takeovers = Takeovers({}, [], 1_000)
        common = Common({}, "group", 1_000, 1_000, lambda: None, takeovers, Known({}), Limits({}))
        shared = SharedProducers(common, "x-", hops)
        ours = Ours(Known({}), (), lambda: None, _check_counted)
        return {
            topic: {shared.seat(TopicPartition(topic, number), ours).name for number in range(4)}
            for topic in hops
        }

    assert asyncio.run(names()) == expected
