"""A transaction left open under our name ends as its own did, whatever the broker forgot.

The broker is made to forget: it does not ask whether a transaction has a partition, and partitions
that its coordinator was not told of are told of no end.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from headrace.services.broker.embedded import EmbeddedBroker
from headrace.services.kafka.limits import Limits
from headrace.services.kafka.unfinished import Ended, Known, Takeover
from headrace.services.runtime.output.outbox import Outbox
from headrace.services.runtime.output.producer import Name, Producer
from headrace.services.state.changelog import POSITION
from tests.kafka.clients import FOREVER, Clients, fresh_name
from tests.kafka.fixtures import OwnKafka, SharedKafka
from tests.runtime.expected import REORDER_AND_DEDUPLICATE, some_records
from tests.runtime.sidecar import MakePipeline, record
from tests.runtime.test_replay_dead import dying_on
from tests.runtime.test_strangers import is_open, stranger
from tests.runtime.torn import SOON_MS, TIMEOUT_MS, Case, Stage, places, stage

PRODUCERS = 4
TOPICS = ("one", "two")
BY_ID = ("deduplicate: {by: id, id: header.id, interval: 20s}",)
TRUSTING = {"transaction.partition.verification.enable": "false"}
# Soon enough that a transaction times out while a broker that starts leads no partition yet.
HASTY = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
SHORT = pytest.mark.long("outages", why="two hops have one more way on which a transaction is open")


@pytest.fixture(scope="module")
def forgetful(kafka_own_of_module: OwnKafka) -> EmbeddedBroker:
    """A broker that does not ask whether a transaction has a partition."""
    return kafka_own_of_module(TRUSTING)


@pytest.fixture
def clients(forgetful: EmbeddedBroker) -> Clients:
    return Clients(forgetful.bootstrap_servers)


@pytest.mark.long(
    "outages", why="a transaction has three seconds; staged ones end by their timeout"
)
def test_records_that_a_broker_forgot_to_abort_are_aborted_before_anything_is_written(
    kafka_own: OwnKafka,
) -> None:
    hasty = kafka_own(HASTY)
    clients = Clients(hasty.bootstrap_servers)
    for topic in TOPICS:
        clients.make_topic(topic, PRODUCERS, FOREVER)

    async def write(number: int, value: bytes, timeout_ms: int = SOON_MS) -> Outbox:
        client = {"bootstrap_servers": clients.servers}
        name = Name(f"producer-{number}", timeout_ms, Known(dict.fromkeys(TOPICS)))
        outbox = Outbox(Producer(client, "group", name), Limits({}))
        await outbox.start()
        await outbox.begin()
        for topic in TOPICS:
            await outbox.send(topic, number, [record(b"k", value, 1_000)])
        await outbox.settle()
        return outbox

    async def commit(number: int, value: bytes) -> None:
        outbox = await write(number, value, TIMEOUT_MS)
        await outbox.tell_offsets({TopicPartition(TOPICS[0], number): OffsetAndMetadata(1, "")})
        await outbox.commit()
        await outbox.stop()

    async def each(act: Callable[[int, bytes], Awaitable[object]], value: bytes) -> list[object]:
        return [await act(number, value) for number in range(PRODUCERS)]

    async def outlive_the_broker() -> None:
        await each(commit, b"before")
        left_open = await each(write, b"never committed")
        hasty.kill()
        hasty.start()
        for outbox in left_open:
            assert isinstance(outbox, Outbox)
            await outbox.stop()
        await each(commit, b"after")

    asyncio.run(outlive_the_broker())
    for topic in TOPICS:
        counts = Counter(one.value for one in clients.consume_all(topic))
        assert counts == {b"before": PRODUCERS, b"after": PRODUCERS}


COMMITTED = {
    "in some partitions": Case(("changelog", "progress"), "commit"),
    "in its changelog alone": Case(("changelog",), "commit"),
    "in a side topic alone": Case(("late",), "commit"),
    "nowhere": Case((), "commit"),
    "nowhere, as the coordinator alone says": Case((), "commit", in_group=False),
    "and its id was given away": Case(("changelog",), "commit", given_away=1),
    "and its id was given away twice": Case(("changelog",), "commit", given_away=2),
    "in progress, as its markers say": Case(("progress",), "commit", given_away=2, in_group=False),
    "nowhere, as the group's offset says": Case((), "commit", given_away=2),
}
ABORTED = {
    "in some partitions": Case(("changelog",), "abort"),
    "nowhere": Case((), "abort"),
    "by its timeout": Case((), "timeout"),
    "by its timeout, told to some": Case(("changelog",), "timeout"),
    "by its timeout, behind one that was committed": Case(
        (), "timeout", writes=("late",), is_first=False
    ),
    "by who came next": Case((), "takeover"),
    "by who came next, told to some": Case(("progress",), "takeover"),
    "and its id was given away": Case(("changelog",), "timeout", given_away=1),
    "nowhere, as the group's offset says": Case((), "timeout", given_away=1),
    "without a changelog": Case((), "timeout", given_away=1, writes=("late",), in_group=False),
}


@pytest.mark.parametrize("case", COMMITTED.values(), ids=COMMITTED)
def test_a_committed_transaction_is_committed_everywhere(clients: Clients, case: Case) -> None:
    made = stage(clients)
    asyncio.run(made.run(case))
    _, ended = asyncio.run(made.take())
    assert places(ended, commits=True) == made.untold(case)
    assert places(ended, commits=False) == []
    for topic in case.writes:
        assert made.read(topic) == [POSITION]
    assert asyncio.run(made.take())[1] == []


@pytest.mark.parametrize("case", ABORTED.values(), ids=ABORTED)
def test_an_aborted_transaction_counts_nowhere(clients: Clients, case: Case) -> None:
    made = stage(clients)
    asyncio.run(made.run(case))
    _, ended = asyncio.run(made.take())
    assert places(ended, commits=False) == made.untold(case)
    assert places(ended, commits=True) == []
    for topic in case.writes:
        assert made.read(topic) == []
    assert asyncio.run(made.take())[1] == []


@pytest.mark.parametrize(
    ("case", "commits"),
    [
        (Case((), "commit", in_group=False), True),
        (Case(("changelog",), "commit", given_away=1), True),
        (Case((), "timeout"), False),
        (Case((), "takeover"), False),
    ],
    ids=["committed", "given away", "timed out", "open"],
)
def test_a_shared_producer_has_a_new_epoch_once_nothing_of_it_stands_open(
    clients: Clients, case: Case, *, commits: bool
) -> None:
    made = stage(clients)
    asyncio.run(made.run(case))
    _, ended = asyncio.run(made.give())
    assert places(ended, commits=commits) == made.untold(case)
    assert places(ended, commits=not commits) == []
    for topic in case.writes:
        assert made.read(topic) == ([POSITION] if commits else [])
    assert asyncio.run(made.give())[1] == []


def test_partitions_decide_what_a_word_leaves_in_doubt(clients: Clients) -> None:
    made, case = stage(clients), Case((), "commit", given_away=2)
    asyncio.run(made.run(case))
    assert asyncio.run(made.give())[1] == []
    _, ended = asyncio.run(made.take())
    assert places(ended, commits=True) == made.untold(case)


def test_where_nothing_is_open_nothing_is_ended(clients: Clients) -> None:
    made = stage(clients)
    assert asyncio.run(made.take())[1] == []
    asyncio.run(made.run(Case(Case.writes, "commit")))
    assert asyncio.run(made.take())[1] == []
    asyncio.run(made.run(Case(Case.writes, "timeout")))
    assert asyncio.run(made.take())[1] == []
    assert made.read("late") == [POSITION]


def test_no_end_is_decided_while_a_partition_cannot_be_asked(clients: Clients) -> None:
    made = stage(clients)
    asyncio.run(made.run(Case((), "commit")))
    missing = fresh_name("missing")

    async def take_while_one_is_missing() -> list[Ended]:
        async with made.client() as client:
            known = made.known._replace(written={**made.known.written, missing: None})
            takeover = Takeover(client, made.transactional_id, TIMEOUT_MS, known)
            taking = asyncio.ensure_future(takeover.take())
            done, _ = await asyncio.wait([taking], timeout=1)
            assert (done, takeover.ended) == (set(), [])
            await asyncio.to_thread(clients.make_topic, missing)
            await taking
            return takeover.ended

    ended = asyncio.run(take_while_one_is_missing())
    assert len(places(ended, commits=True)) == len(Case.writes)


@pytest.mark.parametrize(
    "operators",
    [pytest.param(REORDER_AND_DEDUPLICATE, marks=SHORT), BY_ID],
    ids=["one hop", "two"],
)
def test_a_successor_ends_what_a_broker_forgot_as_an_owner_left_in_peace(
    make_pipeline: MakePipeline, forgetful: EmbeddedBroker, operators: tuple[str, ...]
) -> None:
    pipeline = make_pipeline(*operators, servers=forgetful.bootstrap_servers)
    dead = f"{pipeline.sink}.dead"
    pipeline.produce(some_records(100, 1))
    one = pipeline.start("one", instance_id="")
    pipeline.wait_until_done()
    assert one.stop() == 0

    async def forget() -> None:
        async with stranger(pipeline) as producer, producer.transaction():
            await producer.send_and_wait(f"{pipeline.sink}.progress", b"told", b"told", partition=0)
            place = TopicPartition(dead, 0)
            producer._txn_manager._txn_partitions.add(place)  # noqa: SLF001
            await producer.send_and_wait(dead, b"forgotten", partition=0)

    asyncio.run(forget())
    assert is_open(pipeline, dead)
    two = pipeline.start("two")
    two.wait_for("] running")
    pipeline.produce(some_records(100, 2, start_ms=8_000))
    pipeline.wait_until_done()
    assert two.stop() == 0
    assert not is_open(pipeline, dead)
    assert [one.value for one in pipeline.beside("dead")] == [b"forgotten"]


def test_a_replays_transaction_that_an_outage_left_open_is_ended(
    clients: Clients, tmp_path: Path
) -> None:
    dying = dying_on(SharedKafka(clients.servers), tmp_path)

    async def forget_a_partition() -> None:
        name = f"{dying.spec.pipeline}.replay-dead"
        producer = AIOKafkaProducer(bootstrap_servers=clients.servers, transactional_id=name)
        async with producer, producer.transaction():
            await producer.send_and_wait(dying.source, b"told", partition=0)
            forgotten = TopicPartition(dying.source, 1)
            producer._txn_manager._txn_partitions.add(forgotten)  # noqa: SLF001
            await producer.send_and_wait(dying.source, b"forgotten", partition=1)

    asyncio.run(forget_a_partition())
    assert dying.replay() == {}
    assert [one.value for one in dying.clients.consume_all(dying.source)] == [b"told", b"forgotten"]


@pytest.mark.long("outages", why="a broker of two is away")
def test_no_end_is_decided_while_a_partition_has_no_leader(kafka_own: OwnKafka) -> None:
    cluster = kafka_own(TRUSTING, brokers=3)
    clients = Clients(cluster.bootstrap_servers)
    made = Stage(clients, fresh_name("torn"))
    for topic in (*Case.writes, "elsewhere", "source"):
        alone_on = 3 if topic == "late" else 1
        clients.make_topic_on(alone_on, made.place(topic).topic, FOREVER)
    asyncio.run(made.run(Case((), "commit", in_group=False)))
    *_, third = cluster.brokers
    third.kill()

    async def take_while_one_is_away() -> list[Ended]:
        async with made.client() as client:
            await client.set_topics([*made.known.written])
            while client.cluster.leader_for_partition(made.place("late")) not in {None, -1}:
                await client.force_metadata_update()
                await asyncio.sleep(0.05)
            takeover = Takeover(client, made.transactional_id, TIMEOUT_MS, made.known)
            taking = asyncio.ensure_future(takeover.take())
            done, _ = await asyncio.wait([taking], timeout=1)
            assert (done, takeover.ended) == (set(), [])
            third.launch()
            await taking
            return takeover.ended

    ended = asyncio.run(take_while_one_is_away())
    assert len(places(ended, commits=True)) == len(Case.writes)
    assert made.read("late") == [POSITION]
