"""Partitions that commit together tell places behind a repartition of their times."""

from __future__ import annotations

import asyncio

import pytest

from headrace.contracts.origin import AWAKE, IDLE, SourceTime, read_times
from headrace.contracts.record import Record
from headrace.services.kafka.limits import BATCH_BYTES
from headrace.services.runtime.output.outbox import Outbox
from headrace.services.runtime.output.times import times_at_once
from tests.kafka.clients import FOREVER, fresh_name
from tests.kafka.fixtures import SharedKafka
from tests.runtime.test_shared_producer import ONE, Stage, staged

PLACE = 3


@pytest.fixture
def topic(kafka: SharedKafka) -> str:
    return kafka.clients.make_topic(fresh_name("times"), PLACE + 1, FOREVER)


def tell(out: Outbox, topic: str, *times: SourceTime) -> None:
    """Tell the place of times, as a commit does before it settles."""
    assert out.times is not None
    out.times.of(topic)[PLACE] += times


async def committed_together(stage: Stage, *outs: Outbox) -> None:
    """Commit the first partitions in one transaction."""
    await asyncio.gather(*(stage.commit(out, number) for number, out in enumerate(outs)))


def at_place(kafka: SharedKafka, topic: str) -> list[Record]:
    """The records there that count, in order."""
    read = kafka.clients.consume_all(topic)
    return sorted((one for one in read if one.partition == PLACE), key=lambda one: one.offset or 0)


def test_partitions_that_commit_together_tell_a_place_in_one_row_behind_their_records(
    kafka: SharedKafka, topic: str
) -> None:
    times = [SourceTime(0, 1_000, AWAKE), SourceTime(1, 2_000, IDLE)]

    async def live() -> None:
        async with staged(kafka, topic) as stage:
            outs = [await stage.outbox(number) for number in range(2)]
            for out, time in zip(outs, times, strict=True):
                await out.begin()
                await out.send(topic, PLACE, ONE)
                tell(out, topic, time)
            await committed_together(stage, *outs)
            for out in outs:
                await out.stop()

    asyncio.run(live())
    *records, row = at_place(kafka, topic)
    assert [one.value for one in records] == [b"v", b"v"]
    assert (read_times(row), row.timestamp_ms) == (times, 2_000)


def test_a_row_has_a_bounded_number_of_times(kafka: SharedKafka, topic: str) -> None:
    at_once = times_at_once(BATCH_BYTES)
    times = [SourceTime(number, 1_000, AWAKE) for number in range(2 * at_once + 1)]

    async def live() -> None:
        async with staged(kafka, topic) as stage:
            out = await stage.outbox(0)
            await stage.write(out, 0)
            tell(out, topic, *times)
            await committed_together(stage, out)
            await out.stop()

    asyncio.run(live())
    rows = [read_times(one) or [] for one in at_place(kafka, topic)]
    assert [len(row) for row in rows] == [at_once, at_once, 1]
    assert [time for row in rows for time in row] == times


def test_a_transaction_that_was_discarded_tells_nothing(kafka: SharedKafka, topic: str) -> None:
    async def live() -> None:
        async with staged(kafka, topic) as stage:
            leaves, stays = [await stage.outbox(number) for number in range(2)]
            await stage.write(leaves, 0)
            tell(leaves, topic, SourceTime(0, 1_000, AWAKE))
            await leaves.stop()
            await stage.write(stays, 1)
            tell(stays, topic, SourceTime(1, 2_000, AWAKE))
            await stage.commit(stays, 1)
            await stays.stop()

    asyncio.run(live())
    assert [read_times(one) for one in at_place(kafka, topic)] == [[SourceTime(1, 2_000, AWAKE)]]
