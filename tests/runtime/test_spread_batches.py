"""Partitions that commit together fill the same batches towards a place behind a repartition."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from aiokafka.errors import MessageSizeTooLargeError
from aiokafka.structs import RecordMetadata, TopicPartition

from headrace.contracts.errors import TopicRefused
from headrace.contracts.origin import AWAKE, SourceTime
from headrace.contracts.record import Record
from headrace.services.kafka.filling import fill
from headrace.services.kafka.limits import BATCH_BYTES, Limits
from headrace.services.runtime.output.batches import Batches
from headrace.services.runtime.output.life import TransactionBrokenError
from headrace.services.runtime.output.outbox import Outbox
from tests.kafka.clients import FOREVER, fresh_name
from tests.kafka.fixtures import SharedKafka
from tests.runtime.sidecar import record
from tests.runtime.test_shared_producer import Stage, staged

PARTITIONS = 4
PLACE = 1
TO = TopicPartition("topic", PLACE)
PIECES = 10
TURNS = 10
"""More of the loop than it takes until both wait."""
PIECE = 50


@pytest.fixture
def topic(kafka: SharedKafka) -> str:
    return kafka.clients.make_topic(fresh_name("spread"), PARTITIONS, FOREVER)


def values_at_place(kafka: SharedKafka, topic: str) -> list[bytes | None]:
    """The values there that count, in order."""
    read = [one for one in kafka.clients.consume_all(topic) if one.partition == PLACE]
    return [one.value for one in sorted(read, key=lambda one: one.offset or 0)]


async def opened(stage: Stage, count: int) -> list[Outbox]:
    """The ways out of the first partitions, each in the transaction."""
    outs = [await stage.outbox(number) for number in range(count)]
    for out in outs:
        await out.begin()
    return outs


async def committed(stage: Stage, outs: list[Outbox]) -> None:
    """Commit the partitions in one transaction, and let go of them."""
    await asyncio.gather(*(stage.commit(out, number) for number, out in enumerate(outs)))
    for out in outs:
        await out.stop()


def test_a_place_gets_the_records_of_all_by_turns(kafka: SharedKafka, topic: str) -> None:
    turns = [b"a1", b"b1", b"a2", b"b2"]

    async def live() -> None:
        async with staged(kafka, topic) as stage:
            outs = await opened(stage, 2)
            for number, value in enumerate(turns):
                await outs[number % 2].spread(topic, PLACE, [record(b"k", value, 1_000)])
            await committed(stage, outs)

    asyncio.run(live())
    assert values_at_place(kafka, topic) == turns


def test_records_of_a_partition_keep_their_order_over_many_batches(
    kafka: SharedKafka, topic: str
) -> None:
    padding = b"x" * (2 * BATCH_BYTES // PIECE // 3)

    def piece(number: int, at: int) -> list[Record]:
        first = at * PIECE
        return [
            record(b"%d" % number, b"%d %05d " % (number, first + one) + padding, 1_000)
            for one in range(PIECE)
        ]

    async def spread(out: Outbox, number: int) -> None:
        for at in range(PIECES):
            await out.spread(topic, PLACE, piece(number, at))

    async def live() -> None:
        async with staged(kafka, topic) as stage:
            outs = await opened(stage, PARTITIONS)
            await asyncio.gather(*(spread(out, number) for number, out in enumerate(outs)))
            await committed(stage, outs)

    asyncio.run(live())
    values = [value for value in values_at_place(kafka, topic) if value is not None]
    for number in range(PARTITIONS):
        own = [value[:7] for value in values if value.startswith(b"%d " % number)]
        assert own == [b"%d %05d" % (number, one) for one in range(PIECE * PIECES)]


def test_records_in_a_batch_with_those_of_a_partition_that_leaves_do_not_count(
    kafka: SharedKafka, topic: str
) -> None:
    async def live() -> None:
        async with staged(kafka, topic) as stage:
            stays, leaves = await opened(stage, 2)
            for out, value in ((stays, b"stays"), (leaves, b"leaves")):
                await out.spread(topic, PLACE, [record(b"k", value, 1_000)])
            await leaves.stop()
            with pytest.raises(TransactionBrokenError):
                await stage.commit(stays, 0)
            await stays.stop()
            again = await opened(stage, 1)
            await again[0].spread(topic, PLACE, [record(b"k", b"again", 1_000)])
            await committed(stage, again)

    asyncio.run(live())
    assert values_at_place(kafka, topic) == [b"again"]


def test_a_topic_that_takes_no_row_of_times_is_named_to_all(kafka: SharedKafka, topic: str) -> None:
    async def live() -> None:
        async with staged(kafka, topic, {topic: 80}) as stage:
            (out,) = await opened(stage, 1)
            assert out.times is not None
            out.times.of(topic)[PLACE].append(SourceTime(0, 1_000, AWAKE))
            with pytest.raises(TransactionBrokenError) as broken:
                await stage.commit(out, 0)
            assert isinstance(broken.value.problem, TopicRefused)
            assert f"`{topic}` takes 80 bytes at once" in str(broken.value.problem)
            await out.stop()

    asyncio.run(live())


class _Scripted:
    """A sender whose producer makes the first batch wait, and refuses all if it is told so."""

    is_transactional = True

    def __init__(self, *, refuses: bool = False) -> None:
        self.records: list[int] = []
        """How many each batch had, in the order in which they are written."""
        self.has_room = asyncio.Event()
        self._refuses = refuses
        self._begun = 0

    @contextmanager
    def telling_failures(self) -> Iterator[Any]:
        """It is the producer itself."""
        yield self

    async def send_batch(self, batch: Any, _topic: str, *, partition: int) -> asyncio.Future[Any]:
        """Take a batch; the first one waits for room."""
        self._begun += 1
        if self._begun == 1:
            await self.has_room.wait()
        self.records.append(batch.record_count())
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._refuses:
            answer.set_exception(MessageSizeTooLargeError())
        else:
            answer.set_result(RecordMetadata("topic", partition, TO, 0, -1, 0, 0))
        return answer

    async def heard(self, acknowledged: asyncio.Future[Any]) -> Any:
        """Pass the answer on."""
        return await acknowledged


def rows_of(size_bytes: int, count: int) -> list[Record]:
    """So many records of a size."""
    return [record(b"k", b"x" * size_bytes, 1_000)] * count


def test_no_batch_overtakes_one_that_waits_for_room() -> None:
    async def live() -> list[int]:
        sender = _Scripted()
        batches = Batches(Limits({"topic": 500}), sender)
        first, second = (
            asyncio.ensure_future(batches.fill(TO, len(rows), partial(fill, rows=rows)))
            for rows in (rows_of(100, 4), rows_of(10, 60))
        )
        for _ in range(TURNS):
            await asyncio.sleep(0)
        sender.has_room.set()
        await asyncio.gather(first, second)
        await batches.settle()
        return sender.records

    records = asyncio.run(live())
    assert sum(records) == 64
    assert records[0] == 3, "the large records were first, and three of them fill a batch"


def test_no_record_is_left_out_where_a_limit_is_learned_while_its_batch_is_filled() -> None:
    limits = Limits({"topic": 10_000})
    rows = rows_of(100, 3)

    async def live() -> list[int]:
        sender = _Scripted(refuses=True)
        batches = Batches(limits, sender)
        sender.has_room.set()
        for row in rows[:2]:
            filled = await batches.fill(TO, 1, partial(fill, rows=[row]))
            assert filled.too_large == []
        # Another partition hears of a refusal, of a record that was alone.
        limits.learn("topic", 150, 1)
        filled = await batches.fill(TO, 1, partial(fill, rows=rows[2:]))
        assert filled.too_large == []
        with pytest.raises(MessageSizeTooLargeError):
            await batches.settle()
        return sender.records

    assert asyncio.run(live()) == [3]
