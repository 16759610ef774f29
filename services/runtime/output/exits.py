"""Which topic everything goes to that leaves one partition of a hop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple, Self

from aiokafka.structs import TopicPartition

from headrace.contracts.dead_letter import cut
from headrace.contracts.decision import Reason
from headrace.contracts.errors import RecordTooLarge, TopicRefused
from headrace.contracts.hops import Hop
from headrace.contracts.origin import AWAKE, IDLE, times_row
from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.progress import (
    LAYOUT,
    CleanedBy,
    Progress,
    cleaned_by_row,
    milestone_of,
    milestone_row,
    progress_row,
)
from headrace.contracts.record import NO_TIME_MS, Record, offset_of
from headrace.contracts.topics import decisions_topic, progress_topic
from headrace.services.emit.asides import dead_records, decision_records, late_records
from headrace.services.emit.too_large import too_large, too_large_and_late
from headrace.services.operators.chain import Chain
from headrace.services.operators.lanes import Lanes
from headrace.services.operators.operator import Aside, Batch, Step
from headrace.services.operators.progress import left_through_ms, progress_ms
from headrace.services.runtime.output.batches import refused
from headrace.services.runtime.output.failures import Failures
from headrace.services.runtime.output.outbox import Outbox
from headrace.services.runtime.output.spread import Part, Spread
from headrace.services.runtime.time.together import Together
from headrace.services.state.changelog import is_about, records_of
from headrace.services.state.overlay import Overlay


class Reached(NamedTuple):
    """How far a partition is at a commit."""

    position: int
    """The next source offset."""
    time_ms: int
    """The latest timestamp that came in."""
    progress_ms: int
    """The lowest timestamp that a later record on time can still have."""
    left_ms: int
    """No record that left the operators is later."""
    cleaned_offset: int | None
    """The offset of the last cleaned record."""

    @classmethod
    def by(cls, hop: Hop, chain: Chain, position: int, cleaned_offset: int | None) -> Self:
        """How far a partition is whose operators have decided all before a position."""
        time_ms, reached_ms = chain.lateness.time_ms, progress_ms(hop.operators, chain)
        return cls(position, time_ms, reached_ms, left_through_ms(chain), cleaned_offset)


class Exits:
    """The topics behind one partition of a hop."""

    def __init__(
        self,
        spec: PipelineSpec,
        hop: Hop,
        partition: int,
        outbox: Outbox,
        failures: Failures,
        spread: Spread | None,
    ) -> None:
        """Send through this outbox; to the cleaned topic, or as a spread says."""
        self.source_state = AWAKE
        """The source's state for readers: AWAKE, IDLE or AT_END."""
        self.unsent: Counter[Reason] = Counter()
        """How many records are dead because they could not be sent."""
        self._spec = spec
        self._failures = failures
        self._hop = hop
        self._partition = partition
        self._outbox = outbox
        self._cleaned = TopicPartition(spec.sink.topic, partition)
        self._changelog = TopicPartition(hop.changelog.name, partition)
        self._progress = TopicPartition(progress_topic(spec.sink.topic).name, partition)
        self._spread = spread
        self._decisions = decisions_topic(spec.sink.topic).name
        self._closing = [self._changelog] if self._spread else [self._changelog, self._progress]
        """Where every commit writes."""
        self._milestone = 0
        """The last one that was said since the partition was opened."""
        self._says_who = partition == 0 and hop.end is None
        self.silent_until = 0
        """The results of records before this source offset were sent once."""

    async def send(self, step: Step, dead: list[Aside], records: list[Record]) -> None:
        """Send what left the operators for these records, and what was dead at the door."""
        if records and offset_of(records[-1]) < self.silent_until:
            return
        send, partition = self._outbox.send, self._partition
        topic, cleaned, without_id = await self._led(step.forwarded)
        too_much: list[Aside] = []
        for to, part in cleaned.items():
            for index in await self._forward(topic, to, part):
                takes_bytes = self._takes_bytes(topic)
                too_much.append(too_large(step.forwarded, part.places[index], topic, takes_bytes))
        if step.late:
            topic, late = self._spec.late.topic, list(late_records(step.late))
            for place in await send(topic, partition, late):
                takes_bytes = self._takes_bytes(topic)
                too_much.append(too_large_and_late(step.late[place], topic, takes_bytes))
        self.unsent.update(aside.reason for aside in (*without_id, *too_much))
        dead = [*dead, *without_id, *step.dead, *too_much]
        self._failures.take(dead, records)
        if dead:
            await self._bury(list(dead_records(dead, records)))
        if step.decisions:
            decisions = list(decision_records(step.decisions))
            for place in await send(self._decisions, partition, decisions):
                # It says itself which record it is about.
                await self._send_whole(self._decisions, decisions[place]._replace(key=None))
        self._outbox.announce(*self._closing)

    async def _forward(self, topic: str, to: int, part: Part) -> list[int]:
        if self._spread is None:
            return await self._outbox.send(topic, to, part.records)
        return await self._outbox.spread(topic, to, part.records, part.origins)

    def _takes_bytes(self, topic: str) -> int:
        return self._outbox.limits.record_bytes(topic)

    async def _bury(self, letters: list[Record]) -> None:
        """Send dead letters, and cut those that their topic does not take."""
        topic = self._spec.dead.topic
        for place in await self._outbox.send(topic, self._partition, letters):
            await self._send_whole(topic, cut(letters[place], self._takes_bytes(topic)))

    async def _send_whole(self, topic: str, record: Record, to: int | None = None) -> None:
        """Send what was made as small as it can be."""
        if await self._outbox.send(topic, self._partition if to is None else to, [record]):
            raise self._refused(topic)

    def _refused(self, topic: str) -> TopicRefused:
        return refused(topic, self._takes_bytes(topic))

    async def _led(self, batch: Batch) -> tuple[str, dict[int, Part], list[Aside]]:
        """Where what is forwarded goes: topic, partitions, and records whose id nobody can read."""
        if self._spread is None:
            whole = Part(batch.records, list(range(len(batch.records))))
            return self._spec.sink.topic, {self._partition: whole}, []
        partitions = await self._outbox.partitions(self._spread.topic)
        return self._spread.topic, *self._spread.by_partition(batch, partitions)

    def hears(self, lanes: Lanes | None) -> int:
        """Records have come, and what they say; what is to be said of the source from now on."""
        if lanes is None or not lanes.are_all_idle:
            self.source_state = AWAKE
        return self.source_state

    async def say(self, together: Together) -> None:
        """Tell those behind a repartition how far this partition is, and in what state."""
        spread, times = self._spread, self._outbox.times
        if spread is None:
            return
        topic, state = spread.topic, self.source_state
        partitions = await self._outbox.partitions(topic)
        told = None if times is None else times.of(topic)
        urgent_before_ms = together.urgent_before_ms
        for to, time in spread.times(
            partitions, state, urgent_before_ms=urgent_before_ms, told=told or ()
        ):
            if told is None:
                await self._send_whole(topic, times_row(topic, to, [time]), to)
            else:
                told[to].append(time)

    def owes(self, together: Together) -> bool:
        """Whether those behind a repartition are to be told now how far this partition is."""
        spread = self._spread
        return spread is not None and spread.owes(urgent_before_ms=together.urgent_before_ms)

    async def settle(self) -> int | None:
        """Wait until what was cleaned is acknowledged; the last one's offset, None without any.

        The commit's last rows name that offset, and so come behind. Without a transaction it
        does in any case: then it can never say that a record was cleaned which nobody was given.
        """
        if self._outbox.is_transactional and not self._outbox.has_sent(self._cleaned):
            return None
        end = (await self._outbox.settle()).get(self._cleaned)
        return None if end is None else end - 1

    async def finish(self, overlay: Overlay, reached: Reached, now_ms: int) -> int:
        """Send what closes a commit, wait until all is acknowledged; where the changelog ends.

        RecordTooLarge says that the changelog does not take what some record has made of a row.
        """
        send_rows, changelog, progress = self._outbox.send_rows, self._changelog, self._progress
        rows = records_of(overlay)
        for place in await send_rows(changelog.topic, changelog.partition, rows, now_ms):
            if is_about(rows[place]):
                raise self._refused(changelog.topic)
            message = f"a row is more than {changelog.topic} takes"
            raise RecordTooLarge(message)
        if self._spread is None and reached.position >= self.silent_until:
            about = list(self._about(reached))
            if await send_rows(progress.topic, progress.partition, about, now_ms):
                raise self._refused(progress.topic)
        ends = await self._outbox.settle()
        return ends[self._changelog]

    def _about(self, reached: Reached) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield the rows that tell readers of the cleaned topic how far it is."""
        if reached.time_ms != NO_TIME_MS or self.source_state == IDLE:
            is_idle = self.source_state == IDLE
            progress = Progress(
                self._partition,
                reached.progress_ms,
                reached.left_ms if is_idle else reached.time_ms,
                self._hop.topic,
                reached.position,
                reached.cleaned_offset,
                is_idle,
            )
            # Before the first record it would hide what an earlier state has said there.
            if reached.time_ms != NO_TIME_MS and milestone_of(progress) > self._milestone:
                self._milestone = milestone_of(progress)
                yield milestone_row(progress._replace(is_idle=False))
            yield progress_row(progress)
        if self._says_who:
            self._says_who = False
            yield cleaned_by_row(self._cleaned_by())

    def _cleaned_by(self) -> CleanedBy:
        spec = self._spec
        partitioned_by = "source" if self._hop.is_first else f"id of {self._hop.name}"
        return CleanedBy(
            spec.pipeline, LAYOUT, partitioned_by, spec.model_dump(mode="json", by_alias=True)
        )
