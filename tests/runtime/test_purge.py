"""Topics that would grow for ever do not, and nothing that counts is lost by it."""

from __future__ import annotations

import asyncio
import shutil
import time

import pytest
from aiokafka.structs import TopicPartition

from contracts.record import Record
from services.runtime import purge
from services.runtime.cluster import Cluster, Ends, connected
from services.runtime.purge import Purges
from services.settings import Settings
from tests.kafka.clients import fresh_name
from tests.kafka.fixtures import SharedKafka
from tests.runtime.administration import administer
from tests.runtime.expected import assert_cleaned, some_records
from tests.runtime.sidecar import WITHIN_S, MakePipeline, Pipeline, record

REORDER = "reorder: {grace: 5s}"
DEDUPLICATE = "deduplicate: {by: key+id, id: header.id, interval: 20s}"
STEP_MS = 12_000
"""What 300 records of a stream last."""


def ends_of(servers: str, topic: str) -> dict[int, Ends]:
    """Where the partitions of a topic begin and end."""

    async def ask() -> dict[int, Ends]:
        async with connected(Settings(bootstrap_servers=servers)) as cluster:
            return await cluster.ends(topic)

    return asyncio.run(ask())


def live_on(pipeline: Pipeline, step: int) -> None:
    """Live through the next part of the stream, and stop."""
    sidecar = pipeline.start()
    for part in range(3):
        start_ms = (3 * step + part) * STEP_MS
        pipeline.produce(some_records(300, 3 * step + part, start_ms=start_ms))
        pipeline.wait_until_done()
    assert sidecar.stop() == 0


def first_of(pipeline: Pipeline) -> int:
    """The first offset of the changelog."""
    return ends_of(pipeline.servers, f"{pipeline.name}-state-changelog")[0].first


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_a_changelog_loses_its_beginning_and_state_goes_on_exactly(
    make_pipeline: MakePipeline, guarantee: str
) -> None:
    pipeline = make_pipeline(REORDER, DEDUPLICATE)
