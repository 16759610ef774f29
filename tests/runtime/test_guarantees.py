"""A pipeline that ran exactly once goes on at least once, whatever its last owner left behind."""

from __future__ import annotations

import asyncio
import struct

import pytest
from aiokafka import AIOKafkaProducer

from headrace.contracts.hops import transactional_prefix
from headrace.contracts.record import Record
from headrace.services.state.changelog import POSITION
from tests.runtime.expected import (
    REORDER_AND_DEDUPLICATE,
    assert_cleaned,
    some_records,
)
from tests.runtime.sidecar import MakePipeline, Pipeline, record

STEP_MS = 12_000
ENDED = "a transaction of an owner that ran exactly once was open; ended"


def run_on(pipeline: Pipeline, step: int, guarantee: str = "at-least-once") -> str:
    """Live through the next part of the stream without the folder of before; what it logged."""
    pipeline.produce(some_records(300, step, start_ms=step * STEP_MS))
    folder = str(pipeline.state / f"{step}")
    sidecar = pipeline.start(state_folder=folder, guarantee=guarantee)
    pipeline.wait_until_done()
    assert sidecar.stop() == 0
    return sidecar.log


def owner_of(pipeline: Pipeline) -> tuple[str, str]:
    """The changelog, and the name under which an owner that runs exactly once writes to it."""
    (hop,) = pipeline.spec.hops()
    return hop.changelog.name, f"{transactional_prefix(pipeline.name, hop)}0"


def test_a_position_that_was_aborted_is_not_believed(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(*REORDER_AND_DEDUPLICATE)
    run_on(pipeline, 0, "exactly-once")
    changelog, owner = owner_of(pipeline)
    pipeline.clients.produce_aborted(changelog, [position_of(450)], owner)
    assert ENDED not in run_on(pipeline, 1)
    assert_cleaned(pipeline)


@pytest.mark.long("outages", why="it waits for a transaction to time out")
def test_an_open_transaction_is_ended_first_and_once(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(*REORDER_AND_DEDUPLICATE)
    run_on(pipeline, 0, "exactly-once")
    asyncio.run(leave_open(pipeline.servers, *owner_of(pipeline)))
    # Records that are committed behind it can be read at the second start.
    assert [run_on(pipeline, step).count(ENDED) for step in (1, 2)] == [1, 0]
    assert_cleaned(pipeline)


def position_of(offset: int) -> Record:
    """Return the row that ends a commit that has reached this offset."""
    return record(POSITION, struct.pack(">qq", offset, 1_000), 1_000)


async def leave_open(servers: str, changelog: str, owner: str) -> None:
    """Begin a transaction, and be gone."""
    producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=owner)
    await producer.start()
    await producer.begin_transaction()
    await producer.send_and_wait(changelog, b"row", b"\x05tablekey", partition=0)
    await producer.stop()
