"""Many partitions in one transaction, on a real broker: who may commit, and who begins again."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.conn import CloseReason
from aiokafka.errors import (
    CommitFailedError,
    IllegalGenerationError,
    KafkaConnectionError,
    ProducerFenced,
)
from aiokafka.protocol.transaction import EndTxnRequest
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from headrace.services.kafka.limits import Limits
from headrace.services.kafka.member_offsets import Member
from headrace.services.kafka.takeovers import Takeovers
from headrace.services.kafka.unfinished import Known
from headrace.services.runtime.output.life import TransactionBrokenError
from headrace.services.runtime.output.outbox import Outbox
from headrace.services.runtime.output.shared_producer import Common, Ours, Seat, SharedProducer
from tests.kafka.clients import FOREVER, fresh_name
from tests.kafka.fixtures import SharedKafka
from tests.runtime.expected import (
    FOR_EVER,
    LONG,
    assert_cleaned,
    has_open_records,
    large_records,
    some_records,
    stream,
    wait_until_all_move,
    wait_until_running,
)
from tests.runtime.sidecar import SHORT_SESSION, MakePipeline, record

TIMEOUT_MS = 60_000
PATIENCE_S = 120.0
ONE = [record(b"k", b"v", 1_000)]
PARTITIONS = 4
OPERATORS = (
    "reorder: {grace: 5s}",
    "deduplicate: {by: key+id, id: header.id, interval: 20s}",
)


class Stage:
    """A producer over a topic, and a member of its group."""

    def __init__(self, kafka: SharedKafka, topic: str, consumer: Any, limits: Limits) -> None:
        """It has sent nothing."""
        self.member: Member | None
        self._consumer = consumer
        self.joined()
        options = {"bootstrap_servers": kafka.bootstrap_servers}
        self.takeovers = Takeovers(options, [topic], TIMEOUT_MS)
        common = Common(
            options,
            topic,
            TIMEOUT_MS,
            1_000,
            lambda: self.member,
            self.takeovers,
            Known({topic: None}),
            limits,
        )
        self.shared = SharedProducer(common, f"{topic}/shared")
        self.topic = topic
        self.woken: list[int] = []

    def joined(self) -> None:
        """The member is who the group knows."""
        coordinator = self._consumer._coordinator  # noqa: SLF001
        self.member = Member(coordinator.member_id, coordinator.generation)

    async def outbox(self, partition: int) -> Outbox:
        """The way out of one partition."""
        known = Known({self.topic: [partition]})
        ours = Ours(known, (), lambda: self.woken.append(partition), self.check_counted)
        made = Outbox(Seat(self.shared, ours), self.shared.common.limits)
        await made.start()
        return made

    async def check_counted(self) -> None:
        """Pass, as long as the test has a member."""
        assert self.member is not None

    async def write(self, out: Outbox, partition: int) -> None:
        """Send a record of a partition."""
        await out.begin()
        await out.send(self.topic, partition, ONE)

    async def commit(self, out: Outbox, partition: int) -> None:
        """Make it count."""
        await out.settle()
        place = TopicPartition(self.topic, partition)
        await out.tell_offsets({place: OffsetAndMetadata(partition + 1, "")})
        await out.commit()
        out.closed()


@asynccontextmanager
async def staged(
    kafka: SharedKafka, topic: str, limits: Mapping[str, int] | None = None
) -> AsyncIterator[Stage]:
    """A producer whose instance is a member of its group."""
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=topic,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    await consumer.getmany(timeout_ms=0)
    while not consumer.assignment():  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.01)
    stage = Stage(kafka, topic, consumer, Limits(limits or {}))
    try:
        yield stage
    finally:
        await stage.shared.stop()
        await stage.takeovers.close()
        await consumer.stop()


@pytest.fixture(autouse=True)
def no_failure_is_lost(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail where Python finds a failure that nobody has asked for, which is an error in the log."""
    yield
    gc.collect()
    assert [one.message for one in caplog.get_records("teardown") if one.name == "asyncio"] == []


@pytest.fixture
def topic(kafka: SharedKafka) -> str:
    return kafka.clients.make_topic(fresh_name("producer"), PARTITIONS, FOREVER)


def read(kafka: SharedKafka, topic: str) -> list[int]:
    """The partitions of what counts."""
    return sorted(one.partition for one in kafka.clients.consume_all(topic))


def test_partitions_of_a_transaction_count_together(kafka: SharedKafka, topic: str) -> None:
    async def live() -> None:
        async with staged(kafka, topic) as stage:
            outs = [await stage.outbox(number) for number in range(3)]
            for number, out in enumerate(outs):
                await stage.write(out, number)
            first = asyncio.ensure_future(stage.commit(outs[0], 0))
            while not stage.woken:  # noqa: ASYNC110 - nothing else tells of it
                await asyncio.sleep(0.01)
            assert [out.is_awaited for out in outs] == [False, True, True]
            late = await stage.outbox(3)
            begins = asyncio.ensure_future(stage.write(late, 3))
            await asyncio.gather(*(stage.commit(outs[number], number) for number in (1, 2)))
            await first
            assert await asyncio.to_thread(read, kafka, topic) == [0, 1, 2]
            await begins
            await stage.commit(late, 3)
            for out in (*outs, late):
                await out.stop()

    asyncio.run(live())
    assert read(kafka, topic) == [0, 1, 2, 3]
    assert kafka.clients.committed_offsets(topic, [topic]) == {
        (topic, n): n + 1 for n in range(PARTITIONS)
    }


def test_a_partition_that_leaves_in_the_middle_has_all_that_have_sent_begin_again(
    kafka: SharedKafka, topic: str
) -> None:
    async def live() -> None:
        async with staged(kafka, topic) as stage:
            fails, stays, looks_on, sent = [await stage.outbox(number) for number in range(4)]
            await stage.write(fails, 0)
            await stage.write(stays, 1)
            await stage.write(sent, 3)
            committing = asyncio.ensure_future(stage.commit(stays, 1))
            await asyncio.sleep(0)
            stage.woken.clear()
            await fails.stop()
            # One that waits for its interval hears of it now.
            assert sorted(stage.woken) == [0, 1, 3]
            assert sent.is_awaited
            with pytest.raises(TransactionBrokenError) as broken:
                await committing
            assert broken.value.problem is None
            for out in (stays, sent):
                with pytest.raises(TransactionBrokenError):
                    await out.send(topic, 0, ONE)
                await out.stop()
            again = await stage.outbox(1)
            for out, number in ((again, 1), (looks_on, 2)):
                await stage.write(out, number)
                await stage.commit(out, number)
                await out.stop()

    asyncio.run(live())
    assert read(kafka, topic) == [1, 2]
    assert kafka.clients.committed_offsets(topic, [topic]) == {(topic, 1): 2, (topic, 2): 3}


@pytest.mark.parametrize(
    ("generations", "member", "refusal"),
    [(1, "", IllegalGenerationError), (0, "nobody", CommitFailedError)],
    ids=["another generation", "no member"],
)
def test_the_group_takes_offsets_from_a_member_alone(
    kafka: SharedKafka, topic: str, generations: int, member: str, refusal: type[Exception]
) -> None:
    async def live() -> None:
        async with staged(kafka, topic) as stage:
            out = await stage.outbox(0)
            assert stage.member is not None
            stage.member = Member(
                member or stage.member.member_id, stage.member.generation + generations
            )
            await stage.write(out, 0)
            with pytest.raises(TransactionBrokenError) as broken:
                await stage.commit(out, 0)
            assert isinstance(broken.value.problem, refusal)
            await out.stop()
            stage.joined()
            out = await stage.outbox(1)
            await stage.write(out, 1)
            await stage.commit(out, 1)
            await out.stop()

    asyncio.run(live())
    assert read(kafka, topic) == [1]


def test_a_producer_whose_transaction_is_over_begins_again(kafka: SharedKafka, topic: str) -> None:
    async def live() -> None:
        async with staged(kafka, topic) as stage:
            out = await stage.outbox(0)
            await stage.write(out, 0)
            await out.settle()
            # aiokafka knows no failure, and is in no state to go on.
            await (await stage.shared.life()).producer.abort_transaction()
            with pytest.raises(TransactionBrokenError):
                await asyncio.wait_for(stage.commit(out, 0), PATIENCE_S)
            await out.stop()
            again = await stage.outbox(1)
            await stage.write(again, 1)
            await stage.commit(again, 1)

    asyncio.run(live())
    assert read(kafka, topic) == [1]


def test_a_connection_that_is_lost_while_a_transaction_ends_leaves_no_one_waiting(
    kafka: SharedKafka, topic: str
) -> None:
    async def live() -> None:
        async with staged(kafka, topic) as stage:
            out = await stage.outbox(0)
            client = (await stage.shared.life()).producer.client
            ending, lost, send = asyncio.Event(), asyncio.Event(), client.send

            async def send_unheard(node: int, request: Any, **options: Any) -> Any:
                if not isinstance(request, EndTxnRequest):
                    return await send(node, request, **options)
                ending.set()
                await lost.wait()
                raise KafkaConnectionError

            client.send = send_unheard
            await stage.write(out, 0)
            committing = asyncio.ensure_future(stage.commit(out, 0))
            await ending.wait()
            for connection in [*client._conns.values()]:  # noqa: SLF001 (nobody else cuts it)
                connection.close(CloseReason.CONNECTION_BROKEN)
            lost.set()
            with pytest.raises(TransactionBrokenError):
                await committing
            await out.stop()
            again = await stage.outbox(1)
            await stage.write(again, 1)
            await stage.commit(again, 1)
            shared = stage.shared
            while shared._beside or shared._stopping:  # noqa: ASYNC110, SLF001 (nothing tells of it)
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(live(), PATIENCE_S))


def test_a_member_that_has_joined_anew_commits_nothing(kafka: SharedKafka, topic: str) -> None:
    async def live() -> None:
        async with staged(kafka, topic) as stage:
            out = await stage.outbox(0)
            known_as, stage.member = stage.member, Member("before", 1)
            await stage.write(out, 0)
            stage.member = known_as
            with pytest.raises(TransactionBrokenError) as broken:
                await stage.commit(out, 0)
            assert isinstance(broken.value.problem, CommitFailedError)
            await stage.shared.life()  # It ends the transaction, which readers would wait for.
            await out.stop()

    asyncio.run(live())
    assert read(kafka, topic) == []


def test_a_successor_ends_a_transaction_by_its_name(kafka: SharedKafka, topic: str) -> None:
    async def live() -> None:
        async with staged(kafka, topic) as stage:
            out = await stage.outbox(0)
            await stage.write(out, 0)
            await out.settle()
            successor = Takeovers({"bootstrap_servers": kafka.bootstrap_servers}, [topic], 1_000)
            known = Known({topic: [0]})
            await asyncio.gather(*(successor.end(stage.shared.name, known) for _ in range(5)))
            with pytest.raises(TransactionBrokenError) as broken:
                await stage.commit(out, 0)
            assert isinstance(broken.value.problem, ProducerFenced)
            await out.stop()
            again = await stage.outbox(1)
            await stage.write(again, 1)
            await stage.commit(again, 1)
            await again.stop()
            await successor.close()

    asyncio.run(live())
    assert read(kafka, topic) == [1]


def test_partitions_that_move_in_peace_have_nobody_begin_again(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(*OPERATORS, partitions=PARTITIONS)
    with stream(pipeline, PARTITIONS):
        one = pipeline.start("one", instance_id="")
        wait_until_all_move(pipeline, PARTITIONS)
        two = pipeline.start("two", instance_id="")
        wait_until_running(pipeline, two, PARTITIONS // 2)
        wait_until_all_move(pipeline, PARTITIONS)
    pipeline.wait_until_done()
    for sidecar in (one, two):
        assert sidecar.stop() == 0
        assert "back to what is committed" not in sidecar.log
    assert_cleaned(pipeline)


def test_a_successor_does_not_wait_for_the_transaction_of_an_owner_that_was_killed(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline(*OPERATORS, partitions=2)
    settings = {"transaction_timeout": FOR_EVER, **SHORT_SESSION}
    pipeline.produce(some_records(100, 1, 2))
    killed = pipeline.start("one", instance_id="", **settings)
    pipeline.wait_until_done()
    # All of it is sent, and waits for a commit that does not come.
    killed.stop()
    killed = pipeline.start("two", **LONG, **settings)
    wait_until_running(pipeline, killed, 2)
    pipeline.produce(large_records(60, 2, start_ms=8_000))
    pipeline.wait_until(lambda: has_open_records(pipeline), "records that are not committed")
    killed.kill()
    pipeline.start("three", **settings)
    pipeline.wait_until_done()
    assert_cleaned(pipeline)
