"""Dead letters go back to where they died: the same bytes, timestamp, headers and partition.

Records and the offsets of the letters share a transaction, and each replay fences the one before:
whatever happens, no letter is put back twice.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from enum import StrEnum
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError, ProducerFenced
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from headrace.contracts.dead_letter import INTAKE, DeadLetter, read_dead, replay_headers, replays
from headrace.contracts.decision import Reason
from headrace.contracts.errors import GroupBusy, KafkaUnreachable, TopicRefused
from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.policies import AggregatePolicy, DistinctPolicy
from headrace.contracts.record import Record
from headrace.contracts.time import format_duration_ms
from headrace.contracts.topic_rules import takes_bytes
from headrace.services.admin.replay_place import Place
from headrace.services.kafka import seams
from headrace.services.kafka.cluster import Cluster, connected
from headrace.services.kafka.limits import Limits
from headrace.services.kafka.security import client_options
from headrace.services.kafka.transactions import ConnectionLostError
from headrace.services.kafka.unfinished import Known
from headrace.services.runtime.output.outbox import Outbox
from headrace.services.runtime.output.producer import Name, Producer
from headrace.services.settings import Settings

_POLL_MS = 200


class Fate(StrEnum):
    """The end of a letter in a replay."""

    BACK = "put back"
    OFTEN = "put back often enough before"
    CUT = "cut to fit into the dead-letter topic, so nothing to put back"
    MADE = "made by an operator, so nothing to put back"
    ELSEWHERE = "from a topic or partition that this pipeline does not read"
    FOREIGN = "not a letter of headrace"


Tally = Counter[tuple[Fate, str]]
"""How many letters had which fate, by reason."""
Back = dict[TopicPartition, list[Record]]
"""The records that go back, by their topic and partition."""


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
        if spec.source.topic not in partitions and await cluster.ends(spec.dead.topic):
            # All letters would count as dealt with, and go back no more once it is there.
            message = (
                f"the source `{spec.source.topic}` does not exist, so no letter can go back; make"
                " it, or correct `source.topic`"
            )
            raise TopicRefused(message)
        group = f"{spec.pipeline}.replay-dead"
        judge = Judge(spec, choice, partitions)
        if not really:
            return await _replay(settings, cluster, None, judge, tell)
        limits = Limits(takes_bytes(await cluster.settings(list(partitions))))
        async with _opened(settings, group, [*partitions], limits) as outbox:
            return await _replay(settings, cluster, outbox, judge, tell)


async def _replay(
    settings: Settings,
    cluster: Cluster,
    outbox: Outbox | None,
    judge: Judge,
    tell: Callable[[int, int], None],
) -> Tally:
    """Go through the letters; without an outbox, only count them."""
    spec, choice = judge.spec, judge.choice
    group, dead = f"{spec.pipeline}.replay-dead", spec.dead.topic
    ends = {
        TopicPartition(dead, number): each for number, each in (await cluster.ends(dead)).items()
    }
    committed = await cluster.committed(group, ends)
    places = {
        place.partition: Place.read(committed.get(place), each) for place, each in ends.items()
    }
    tally: Tally = Counter()
    stale = {place.partition for place in committed}
    async with aclosing(_letters(settings, dead, places, tell)) as parts:
        async for number, letters, next_offset in parts:
            back = judge.divide(letters, places[number], tally)
            places[number].advance(next_offset, *choice, judge.partitions)
            if outbox is not None:
                done = {TopicPartition(dead, number): places[number].written()}
                await _commit(outbox, back, done)
                stale.discard(number)
    if outbox is not None and stale:
        # Brokers forget an offset that nobody has committed for a week, and letters would go again.
        await _commit(
            outbox, {}, {TopicPartition(dead, number): places[number].written() for number in stale}
        )
    return tally


class Judge(NamedTuple):
    """Decides about letters."""

    spec: PipelineSpec
    choice: Choice
    partitions: Mapping[str, int]
    """Of the topics that the pipeline reads."""

    def divide(self, letters: list[Record], place: Place, tally: Tally) -> Back:
        """Return the records that go back, and count all letters."""
        back: Back = defaultdict(list)
        for dead in letters:
            letter = read_dead(dead)
            reason = None if letter is None else letter.reason
            if letter is None or reason is None:
                tally[Fate.FOREIGN, ""] += 1
                continue
            record = letter.record
            is_due = place.is_due(dead.offset, reason, replays(record), record.topic)
            if is_due and self.choice.reason in {None, reason}:
                fate = self._fate(letter)
                tally[fate, reason] += 1
                place.leaves_out |= fate is Fate.OFTEN
                is_elsewhere = fate is Fate.ELSEWHERE and record.topic not in self.partitions
                place.leaves_elsewhere |= is_elsewhere
                if fate is Fate.BACK:
                    to = TopicPartition(record.topic, record.partition)
                    back[to].append(record._replace(headers=replay_headers(record)))
        return back

    def _fate(self, letter: DeadLetter) -> Fate:
        record = letter.record
        if record.offset is None or self._stands_behind_windows(letter.operator):
            return Fate.MADE
        if letter.is_cut:
            return Fate.CUT
        if record.partition >= self.partitions.get(record.topic, 0):
            return Fate.ELSEWHERE
        return Fate.OFTEN if replays(record) >= self.choice.replays_max else Fate.BACK

    def _stands_behind_windows(self, operator: str) -> bool:
        """Whether an operator before it gave the record another key, or made it.

        Also where nobody knows the operator any more: then it may have been.
        """
        names = [policy.name for policy in self.spec.operators]
        before = 0 if operator == INTAKE else names.index(operator) if operator in names else None
        windowed = (AggregatePolicy, DistinctPolicy)
        return any(isinstance(policy, windowed) for policy in self.spec.operators[:before])


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
        auto_offset_reset="earliest",
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
async def _opened(
    settings: Settings, group: str, topics: list[str], limits: Limits
) -> AsyncIterator[Outbox]:
    """Open the way back; it fences an earlier replay, and ends what that one left open."""
    name = Name(group, settings.transaction_timeout_ms, Known(dict.fromkeys(topics)))
    outbox = Outbox(Producer(client_options(settings, "replay-dead"), group, name), limits)
    try:
        await outbox.start()
        yield outbox
    except ProducerFenced as error:
        message = (
            "another replay of these letters began meanwhile, so this one stops;"
            " what it put back counts, and the other goes on behind it"
        )
        raise GroupBusy(message) from error
    except ConnectionLostError as error:
        message = (
            "a connection to the brokers was lost while letters were put back; run the command"
            " again, and it goes on behind those that were"
        )
        raise KafkaUnreachable(message) from error
    finally:
        await outbox.stop()


async def _commit(
    outbox: Outbox, back: Back, done: dict[TopicPartition, OffsetAndMetadata]
) -> None:
    """Put letters back and note it, both or neither."""
    await outbox.begin()
    try:
        for to, records in back.items():
            await _send(outbox, to, records)
        await outbox.tell_offsets(done)
        await outbox.commit()
    except (ProducerFenced, ConnectionLostError):
        # Another replay has ended it; or brokers may be away, and the next replay ends it.
        raise
    except BaseException:
        # Readers of the topic wait for the end of an open transaction.
        await outbox.abandon()
        raise
    outbox.closed()


async def _send(outbox: Outbox, to: TopicPartition, records: list[Record]) -> None:
    try:
        too_large = await outbox.send(to.topic, to.partition, records)
        await outbox.settle()
    except (ProducerFenced, ConnectionLostError):
        raise
    except KafkaError as error:
        message = f"the brokers do not take letters back into `{to.topic}`: {error}"
        raise TopicRefused(message) from error
    if too_large:
        message = (
            f"`{to.topic}` takes {outbox.limits.record_bytes(to.topic)} bytes at once, which is"
            " less than a letter has; raise its max.message.bytes"
        )
        raise TopicRefused(message)


def _record(row: Any) -> Record:
    return Record(
        row.key, row.value, row.timestamp, tuple(row.headers), row.topic, row.partition, row.offset
    )
