"""A transaction left open under a name, and how it ended; the stage on which that happens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.client import AIOKafkaClient
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from headrace.services.kafka.requests import Identity
from headrace.services.kafka.unfinished import Ended, Known, Takeover
from headrace.services.state.changelog import POSITION
from tests.kafka.clients import FOREVER, Clients, fresh_name

TIMEOUT_MS = 120_000
SOON_MS = 3_000
"""The time that a transaction has which is to end by its timeout, on a busy machine as well."""
WITHIN_S = 60.0
_BEFORE = b"before"
REACHED = 7
"""The source offset that the transactions here reach."""


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
    """A stage of its own, with all its topics."""
    made = Stage(clients, fresh_name("torn"))
    topics = (*Case.writes, "elsewhere", "source")
    clients.make_topics([made.place(topic).topic for topic in topics], 1, FOREVER)
    return made


def places(ended: Iterable[Ended], *, commits: bool) -> list[TopicPartition]:
    """Where something was ended so."""
    return sorted(one.place for one in ended if one.commits == commits)
