"""A transaction left open under our name ends as its own did, whatever the broker forgot.

The broker is made to forget: it does not ask whether a transaction has a partition, and partitions
that its coordinator was not told of are told of no end.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.client import AIOKafkaClient
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from headrace.services.kafka.limits import Limits
from headrace.services.kafka.requests import Identity
from headrace.services.kafka.unfinished import Ended, Known, Takeover
from headrace.services.runtime.output.outbox import Outbox
from headrace.services.runtime.output.producer import Name, Producer
from headrace.services.state.changelog import POSITION
from tests.kafka.clients import FOREVER, Clients, fresh_name
from tests.kafka.fixtures import OwnKafka
from tests.runtime.sidecar import record

PRODUCERS = 4
TOPICS = ("one", "two")
TIMEOUT_MS = 120_000
SOON_MS = 3_000
"""The time that a transaction has which is to end by its timeout, on a busy machine as well."""
WITHIN_S = 60.0
# Soon enough that a transaction times out while a broker that starts leads no partition yet.
FORGETFUL = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
_BEFORE = b"before"
REACHED = 7
"""The source offset that the transactions here reach."""


def test_records_that_a_broker_forgot_to_abort_are_aborted_before_anything_is_written(
    kafka_own: OwnKafka,
) -> None:
    broker = kafka_own(FORGETFUL)
    clients = Clients(broker.bootstrap_servers)
    for topic in TOPICS:
        clients.make_topic(topic, PRODUCERS, FOREVER)

    async def write(number: int, value: bytes) -> Outbox:
        client = {"bootstrap_servers": clients.servers}
        name = Name(f"producer-{number}", TIMEOUT_MS, Known(dict.fromkeys(TOPICS)))
        outbox = Outbox(Producer(client, "group", name), Limits({}))
        await outbox.start()
        await outbox.begin()
        for topic in TOPICS:
            await outbox.send(topic, number, [record(b"k", value, 1_000)])
        await outbox.settle()
        return outbox

    async def commit(number: int, value: bytes) -> None:
        outbox = await write(number, value)
        await outbox.tell_offsets({TopicPartition(TOPICS[0], number): OffsetAndMetadata(1, "")})
        await outbox.commit()
        await outbox.stop()

    async def each(act: Callable[[int, bytes], Awaitable[object]], value: bytes) -> list[object]:
        return [await act(number, value) for number in range(PRODUCERS)]

    async def outlive_the_broker() -> None:
        await each(commit, b"before")
        left_open = await each(write, b"never committed")
        broker.kill()
        broker.start()
        for outbox in left_open:
            assert isinstance(outbox, Outbox)
            await outbox.stop()
        await each(commit, b"after")

    asyncio.run(outlive_the_broker())
    for topic in TOPICS:
        counts = Counter(one.value for one in clients.consume_all(topic))
        assert counts == {b"before": PRODUCERS, b"after": PRODUCERS}


@pytest.fixture(scope="module")
def clients(kafka_own_of_module: OwnKafka) -> Clients:
    trusting = {"transaction.partition.verification.enable": "false"}
    return Clients(kafka_own_of_module(trusting).bootstrap_servers)


@dataclass(frozen=True)
class Case:
    """A transaction, what its coordinator was told of, and how it ends there."""

    told: tuple[str, ...]
    """Of changelog, progress, late: topics that hear how it ends."""
    end: str
    """commit, abort; or as it ends by itself: timeout, takeover."""
    given_away: int = 0
    """So many producers had the id since then, and ended before they had looked."""
    writes: tuple[str, ...] = ("changelog", "progress", "late")
    """Where it writes."""
    in_group: bool = True
    """Whether it tells the group its offset."""
    is_first: bool = True
    """Whether none of the same producer was committed before it."""


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


@dataclass(frozen=True)
class Stage:
    """Topics and names of one case."""

    clients: Clients
    name: str

    @property
    def transactional_id(self) -> str:
        """The id of its transaction."""
        return f"{self.name}-id"

    def place(self, topic: str) -> TopicPartition:
        """The partition of a topic of this case."""
        return TopicPartition(f"{self.name}-{topic}", 0)

    @property
    def known(self) -> Known:
        """The knowledge of a successor that takes the id over."""
        changelog, progress, late = (self.place(topic) for topic in Case.writes)
        written = {place.topic: [place.partition] for place in (changelog, progress, late)}
        return Known(written, [changelog, progress], self.place("source"), self.name)

    def untold(self, case: Case) -> list[TopicPartition]:
        """Where it stands open."""
        return sorted(self.place(topic) for topic in case.writes if topic not in case.told)

    def read(self, topic: str) -> list[bytes | None]:
        """The keys of what counts there, and was not written before."""
        there = self.clients.consume_all(self.place(topic).topic)
        return [one.key for one in there if one.key != _BEFORE]

    async def write(self, case: Case) -> AIOKafkaProducer:
        """Begin the transaction, and write all of it."""
        producer = await self.producer(SOON_MS if case.end == "timeout" else TIMEOUT_MS)
        if not case.is_first:
            async with producer.transaction():
                for topic in Case.writes:
                    await producer.send_and_wait(self.place(topic).topic, b"", _BEFORE)
        await producer.begin_transaction()
        await producer.send_and_wait(self.place("elsewhere").topic, b"so that there is a part")
        for topic in case.writes:
            if topic not in case.told:
                producer._txn_manager._txn_partitions.add(self.place(topic))  # noqa: SLF001
            value = REACHED.to_bytes(8) + bytes(8)
            await producer.send_and_wait(self.place(topic).topic, value, POSITION)
        if case.in_group:
            await producer.send_offsets_to_transaction(
                {self.place("source"): OffsetAndMetadata(REACHED, "")}, self.name
            )
        return producer

    async def producer(self, timeout_ms: int = TIMEOUT_MS) -> AIOKafkaProducer:
        """Return a producer that takes the id and looks for no open transaction."""
        producer = AIOKafkaProducer(
            bootstrap_servers=self.clients.servers,
            transactional_id=self.transactional_id,
            transaction_timeout_ms=timeout_ms,
        )
        await producer.start()
        return producer

    async def run(self, case: Case) -> None:
        """The transaction, as the brokers see it until somebody takes its id over in earnest."""
        producer = await self.write(case)
        if case.end == "commit":
            await producer.commit_transaction()
        if case.end == "abort":
            await producer.abort_transaction()
        await producer.stop()
        if case.end == "timeout":
            await self.until("CompleteAbort")
        for _ in range(case.given_away):
            await (await self.producer()).stop()

    async def until(self, state: str) -> None:
        """Wait until the coordinator says so."""
        give_up_at = time.monotonic() + WITHIN_S
        async with self.client() as client:
            takeover = Takeover(client, self.transactional_id, TIMEOUT_MS, self.known)
            while (told := await takeover.told()) is None or told.state != state:
                assert time.monotonic() < give_up_at, told
                await asyncio.sleep(0.05)

    def client(self) -> Any:
        """A client in a context."""
        return _Bootstrapped(self.clients.servers)

    async def take(self) -> tuple[Identity, list[Ended]]:
        """Take the id over, as an outbox does."""
        async with self.client() as client:
            takeover = Takeover(client, self.transactional_id, TIMEOUT_MS, self.known)
            return await takeover.take(), takeover.ended

    async def give(self) -> tuple[Identity, list[Ended]]:
        """Give the id a new epoch, as a producer does, which many partitions write in."""
        async with self.client() as client:
            everywhere = Known(dict.fromkeys(self.known.written))
            takeover = Takeover(client, self.transactional_id, TIMEOUT_MS, everywhere)
            return (await takeover.give())[0], takeover.ended


class _Bootstrapped:
    def __init__(self, servers: str) -> None:
        self._servers = servers

    async def __aenter__(self) -> AIOKafkaClient:
        self._client = AIOKafkaClient(bootstrap_servers=self._servers)
        await self._client.bootstrap()
        return self._client

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()


def stage(clients: Clients) -> Stage:
    made = Stage(clients, fresh_name("torn"))
    for topic in (*Case.writes, "elsewhere", "source"):
        clients.make_topic(made.place(topic).topic, 1, FOREVER)
    return made


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


def places(ended: Iterable[Ended], *, commits: bool) -> list[TopicPartition]:
    return sorted(one.place for one in ended if one.commits == commits)


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


@pytest.mark.long("outages", why="a broker of two is away")
def test_no_end_is_decided_while_a_partition_has_no_leader(kafka_own: OwnKafka) -> None:
    trusting = {"transaction.partition.verification.enable": "false"}
    cluster = kafka_own(trusting, brokers=3)
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
