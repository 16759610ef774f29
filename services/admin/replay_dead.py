"""Dead letters go back to where they died: the same bytes, timestamp, headers and partition.

Records and the offsets of the letters share a transaction, and each replay fences the one before:
whatever happens, no letter is put back twice.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from enum import StrEnum
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError, ProducerFenced
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from headrace.contracts.dead_letter import INTAKE, DeadLetter, read_dead, replay_headers, replays
from headrace.contracts.decision import Reason
from headrace.contracts.errors import GroupBusy, KafkaUnreachable, TopicRefused
from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.policies import AggregatePolicy
from headrace.contracts.record import Record
from headrace.contracts.time import format_duration_ms
from headrace.contracts.topic_rules import takes_bytes
from headrace.services.admin.replay_place import Place
from headrace.services.kafka import filling, seams
from headrace.services.kafka.cluster import Cluster, connected
from headrace.services.kafka.limits import Limits
from headrace.services.kafka.security import client_options
from headrace.services.kafka.unfinished import Known, Takeover
from headrace.services.settings import Settings

_POLL_MS = 200
_REQUEST_BYTES_MAX = 64 << 20
"""A letter larger than a batch is a batch by itself."""


class Fate(StrEnum):
    """What becomes of a letter in a replay."""

    BACK = "put back"
    OFTEN = "put back often enough before"
    CUT = "cut to fit into the dead-letter topic, so nothing to put back"
    MADE = "made by an operator, so nothing to put back"
    ELSEWHERE = "from a topic or partition that this pipeline does not read"
    FOREIGN = "not a letter of headrace"


Tally = Counter[tuple[Fate, str]]
"""How many letters had which fate, by reason."""
Back = dict[TopicPartition, list[Record]]
"""What is put back, by where to."""


class Choice(NamedTuple):
    """Which letters are put back."""

    reason: Reason | None
    """Only those that died of this; None is all."""
    replays_max: int
    """Only those that were put back less often."""


async def put_back(
    spec: PipelineSpec,
    settings: Settings,
    choice: Choice,
    tell: Callable[[int, int], None],
    *,
    really: bool,
) -> Tally:
    """Put dead letters back, or only count them; `tell` hears how many of how many are read."""
    async with connected(settings) as cluster:
        partitions = await cluster.partitions([hop.topic for hop in spec.hops()])
        group = f"{spec.pipeline}.replay-dead"
        async with _producer(settings, group, [*partitions], really=really) as producer:
            judge = _Judge(spec, choice, partitions)
            return await _replay(settings, cluster, producer, judge, tell)


async def _replay(
    settings: Settings,
    cluster: Cluster,
    producer: AIOKafkaProducer | None,
    judge: _Judge,
    tell: Callable[[int, int], None],
) -> Tally:
    """Behind the producer's start, which ends what an earlier replay left open."""
    spec, choice = judge.spec, judge.choice
    group, dead = f"{spec.pipeline}.replay-dead", spec.dead.topic
    ends = {
        TopicPartition(dead, number): each for number, each in (await cluster.ends(dead)).items()
    }
    committed = await cluster.committed(group, ends)
    places = {
        place.partition: Place.read(committed.get(place), each) for place, each in ends.items()
    }
    limits = Limits(takes_bytes(await cluster.settings(list(judge.partitions))))
    tally: Tally = Counter()
    async with aclosing(_letters(settings, dead, places, tell)) as parts:
        async for number, letters, next_offset in parts:
            back = judge.divide(letters, places[number], tally)
            places[number].advance(next_offset, choice.reason)
            if producer is not None:
                done = {TopicPartition(dead, number): places[number].written()}
                await _commit(producer, limits, back, done, group)
    return tally


class _Judge(NamedTuple):
    """Decides about letters."""

    spec: PipelineSpec
    choice: Choice
    partitions: Mapping[str, int]
    """Of the topics that the pipeline reads."""

    def divide(self, letters: list[Record], place: Place, tally: Tally) -> Back:
        """What is put back of these letters; all of them are counted."""
        back: Back = defaultdict(list)
        for dead in letters:
            letter = read_dead(dead)
            reason = None if letter is None else letter.reason
            if letter is None or reason is None:
                tally[Fate.FOREIGN, ""] += 1
            elif self.choice.reason in {None, reason} and place.is_due(dead.offset, reason):
                fate = self._fate(letter)
                tally[fate, reason] += 1
                if fate is Fate.BACK:
                    record = letter.record
                    to = TopicPartition(record.topic, record.partition)
                    back[to].append(record._replace(headers=replay_headers(record)))
        return back

    def _fate(self, letter: DeadLetter) -> Fate:
        record = letter.record
        if record.offset is None or self._stands_behind_an_aggregate(letter.operator):
            return Fate.MADE
        if letter.is_cut:
            return Fate.CUT
        if record.partition >= self.partitions.get(record.topic, 0):
            return Fate.ELSEWHERE
        return Fate.OFTEN if replays(record) >= self.choice.replays_max else Fate.BACK

    def _stands_behind_an_aggregate(self, operator: str) -> bool:
        """Also where nobody knows the operator any more: then it may have been."""
        names = [policy.name for policy in self.spec.operators]
        before = 0 if operator == INTAKE else names.index(operator) if operator in names else None
        return any(isinstance(policy, AggregatePolicy) for policy in self.spec.operators[:before])


async def _letters(
    settings: Settings, topic: str, places: Mapping[int, Place], tell: Callable[[int, int], None]
) -> AsyncGenerator[tuple[int, list[Record], int], None]:
    """Letters by partition, in order, with the offset behind them; up to where the topic ended."""
    left = {
        TopicPartition(topic, number): place.end
        for number, place in places.items()
        if place.start < place.end
    }
    if not left:
        return
    total = remaining = sum(place.end - place.start for place in places.values())
    async with _consumer(settings, topic, places) as consumer:
        moved_at_s = time.monotonic()
        while left:
            fetched = await consumer.getmany(*left, timeout_ms=_POLL_MS)
            for partition, rows in fetched.items():
                inside = [_record(row) for row in rows if row.offset < left[partition]]
                if inside:
                    yield partition.partition, inside, rows[len(inside) - 1].offset + 1
            positions = {one: await consumer.position(one) for one in left}
            left = {one: end for one, end in left.items() if positions[one] < end}
            before, remaining = remaining, sum(end - positions[one] for one, end in left.items())
            tell(total - remaining, total)
            moved_at_s = time.monotonic() if remaining < before else moved_at_s
            if time.monotonic() - moved_at_s > settings.stall_timeout_ms / 1_000:
                stalled = format_duration_ms(settings.stall_timeout_ms)
                message = f"the brokers gave no letter of `{topic}` for {stalled}; try again"
                raise KafkaUnreachable(message)


@asynccontextmanager
async def _consumer(
    settings: Settings, topic: str, places: Mapping[int, Place]
) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(
        **client_options(settings, "replay-dead"),
        isolation_level="read_committed",
        enable_auto_commit=False,
    )
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, number) for number in places])
        for number, place in places.items():
            consumer.seek(TopicPartition(topic, number), place.start)
        yield consumer
    finally:
        await seams.stop(consumer)


@asynccontextmanager
async def _producer(
    settings: Settings, name: str, topics: list[str], *, really: bool
) -> AsyncIterator[AIOKafkaProducer | None]:
    """A transactional producer; none for those who only look."""
    if not really:
        yield None
        return
    timeout_ms = settings.transaction_timeout_ms
    producer = AIOKafkaProducer(
        **client_options(settings, "replay-dead"),
        transactional_id=name,
        transaction_timeout_ms=timeout_ms,
        max_request_size=_REQUEST_BYTES_MAX,
    )
    try:
        await producer.client.bootstrap()
        takeover = Takeover(producer.client, name, timeout_ms, Known(topics))
        await seams.start_as(producer, await takeover.take())
        yield producer
    except ProducerFenced as error:
        message = (
            "another replay of these letters began meanwhile, so this one stops;"
            " what it put back counts, and the other goes on behind it"
        )
        raise GroupBusy(message) from error
    finally:
        await producer.stop()


async def _commit(
    producer: AIOKafkaProducer,
    limits: Limits,
    back: Back,
    done: dict[TopicPartition, OffsetAndMetadata],
    group: str,
) -> None:
    """Put letters back and note it, both or neither."""
    async with producer.transaction():
        for to, records in back.items():
            try:
                for acknowledged in await _send(producer, limits, to, records):
                    await acknowledged
            except ProducerFenced:
                raise
            except KafkaError as error:
                message = f"the brokers do not take letters back into `{to.topic}`: {error}"
                raise TopicRefused(message) from error
        await producer.send_offsets_to_transaction(done, group)


async def _send(
    producer: AIOKafkaProducer, limits: Limits, to: TopicPartition, records: list[Record]
) -> list[asyncio.Future[Any]]:
    """Whole batches: aiokafka's way past its refusal of a record that is null twice."""
    sent = []
    start = 0
    while start < len(records):
        batch = filling.new_batch(limits.batch_bytes(to.topic), is_transactional=True)
        # The first record of a batch fits, however large it is.
        start = filling.fill(batch, records, start)
        sent.append(await producer.send_batch(batch, to.topic, partition=to.partition))
    return sent


def _record(row: Any) -> Record:
    return Record(
        row.key, row.value, row.timestamp, tuple(row.headers), row.topic, row.partition, row.offset
    )
