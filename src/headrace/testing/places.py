"""Simulate one partition of a hop as a sidecar's task: state, operators, commits and progress.

The operators, their state, the changelog and the way across a repartition are those of the sidecar.
The parts of its runtime (turning away known records, reading the clock, restarting) are written
again here, without a broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from headrace.contracts.hops import Hop
from headrace.contracts.origin import AT_END, AWAKE, IDLE, times_row
from headrace.contracts.pipeline import IDLE_MS, PipelineSpec
from headrace.contracts.policies import ReorderPolicy
from headrace.contracts.progress import Progress
from headrace.contracts.record import NO_TIME_MS, Record
from headrace.extras import load
from headrace.services.intake.timestamps import Timestamps
from headrace.services.operators.chain import Chain
from headrace.services.operators.lanes import Lanes
from headrace.services.operators.operator import Aside, Batch, Step
from headrace.services.operators.progress import left_through_ms, progress_ms
from headrace.services.state.changelog import (
    ABOUT,
    CHANGELOG,
    Position,
    Restoration,
    put_position,
    read_position,
    records_of,
)
from headrace.services.state.memory import MemoryStore
from headrace.services.state.overlay import Overlay

MS_PER_S = 1_000


class World(NamedTuple):
    """The settings that all places of a run share."""

    spec: PipelineSpec
    partitions: int
    clock: Clock
    explain: bool
    has_intake: bool
    """Without it only the operators run: any time is taken, and a record may come again."""


class Clock:
    """The clock on the wall; the run moves it."""

    now_ms = 0

    def now_s(self) -> float:
        """Return the time in seconds."""
        return self.now_ms / MS_PER_S


class AllKnow:
    """A group whose instances can all read the origin of a record in a repartition topic."""

    says_origins = True
    says_runs = False


class Place:
    """One partition of one hop."""

    def __init__(self, world: World, hop: Hop, partition: int) -> None:
        """Begin with an empty state."""
        self.hop = hop
        self.partition = partition
        self.log: list[tuple[Record, int]] = []
        """The records written to it behind a repartition, each with the row that caused it."""
        self.turned_away = 0
        self.source_state = AWAKE
        self._world = world
        self._changelog: list[Record] = []
        self._counted: Counter[str] = Counter()
        self._before: Counter[str] = Counter()
        self._heard_at_ms = self._quiet_since_ms = world.clock.now_ms
        self._open(MemoryStore())

    def _open(self, store: MemoryStore) -> None:
        world, hop = self._world, self.hop
        self._store = store
        self._overlay = Overlay(store, world.spec.pipeline)
        about = self._overlay.view(ABOUT)
        reached = read_position(about)
        lanes = None
        if not hop.is_first:
            lanes = Lanes(about, range(world.partitions) if reached is None else ())
        view_of = self._overlay.view
        self.chain = Chain(hop.operators, view_of, lanes=lanes, explain=world.explain)
        self.position, time_ms = (0, NO_TIME_MS) if reached is None else reached
        self.chain.lateness.time_ms = time_ms
        self._timestamps = Timestamps(world.spec.source)
        self.spread = None if hop.end is None else self._spread()
        self.source_state = AWAKE
        self._before = self._counted.copy()

    def _spread(self) -> Any:
        make = load(
            "headrace.services.runtime.output.spread:Spread",
            extra="testing",
            needed_for="a test of `deduplicate: {by: id}`",
        )
        world = self._world
        clock_s = world.clock.now_s
        return make(self.hop, self.partition, self.chain, AllKnow(), world.partitions, clock_s)

    def process(self, records: list[Record], *, carefully: bool) -> tuple[Step, list[Aside]]:
        """Process fetched records; return the step, and the records that are dead at the door."""
        self._heard_at_ms = self._quiet_since_ms = self._world.clock.now_ms
        if self._world.has_intake and self.hop.is_first:
            batch, dead = self._timestamps.take(records, self._world.clock.now_ms)
        else:
            batch, dead = Batch.of(records), []
        step = self.chain.process(batch, carefully=carefully)
        if step.failure is None:
            lost = self.chain.imbalance()
            assert not lost, f"records were lost or invented: {lost}"
        self.position = (records[-1].offset or 0) + 1
        lanes = self.chain.lanes
        if lanes is None or not lanes.are_all_idle:
            self.source_state = AWAKE
        return step, dead

    def new(self, records: Iterable[tuple[Record, int]]) -> Iterator[tuple[Record, int]]:
        """Yield the fetched records that state does not have already."""
        for record, row in records:
            is_known = record.offset is not None and record.offset < self.position
            if is_known and self._world.has_intake:
                self.turned_away += 1
            else:
                yield record, row

    def commit(self) -> None:
        """Make the records read, and the changes of state, durable."""
        self.chain.save()
        about = self._overlay.view(ABOUT)
        put_position(about, Position(self.position, self.chain.lateness.time_ms))
        for key, row in records_of(self._overlay):
            offset = len(self._changelog)
            self._changelog.append(Record(key, row, 0, (), "changelog", self.partition, offset))
        self._overlay.commit({CHANGELOG: len(self._changelog)})
        self._counted = self.counts()

    def begin_again(self) -> None:
        """Open new operators over the committed state; everything else is lost."""
        self._open(self._store)

    def move(self) -> None:
        """Let another instance take over, which has only the changelog."""
        store = MemoryStore()
        Restoration(Overlay(store, self._world.spec.pipeline)).take(self._changelog)
        self._open(store)

    def counts(self) -> Counter[str]:
        """Return the counts of the operators in all their lives, less those lost in a crash."""
        counted = self._before.copy()
        for operator in self.chain.operators:
            counts = operator.counts
            counted["merged"] += counts.merged
            counted["emitted"] += counts.emitted
            for reason, records in counts.dropped.items():
                counted[f"dropped {reason}"] += records
        return counted

    @property
    def held(self) -> int:
        """How many records its operators hold now."""
        return sum(operator.counts.held for operator in self.chain.operators)

    def longest_wait_ms(self) -> int:
        """Return after how long a silence no operator waits for the clock any more."""
        source_ms = self._world.spec.source.idle_ms
        return max([IDLE_MS if source_ms is None else source_ms, *self._idles_ms()])

    def _idles_ms(self) -> list[int]:
        return [
            policy.idle_ms
            for policy in self.hop.operators
            if isinstance(policy, ReorderPolicy) and policy.idle_ms is not None
        ]

    def release_idle(self, *, carefully: bool) -> Step | None:
        """Release the records of a reorder for which the source was silent long enough."""
        idles_ms = self._idles_ms()
        now_ms = self._world.clock.now_ms
        if not idles_ms or now_ms < self._quiet_since_ms + min(idles_ms):
            return None
        self._quiet_since_ms = now_ms
        return self.chain.release_idle(carefully=carefully)

    def falls_silent(self) -> None:
        """Note that the source is idle or at its end, if it has been silent for long enough."""
        idle_ms, is_last = self._world.spec.source.idle_ms, self.hop.end is None
        by_clock = self._world.spec.source.max_delay_ms is not None and self.hop.is_first
        if is_last and idle_ms is None:
            return
        if idle_ms is not None and (is_last or by_clock) and self.chain.lets_go(by_clock=by_clock):
            return
        lanes = self.chain.lanes
        if lanes is None:
            is_empty = self.chain.lateness.time_ms == NO_TIME_MS
            wait_ms = 0 if is_empty else IDLE_MS if idle_ms is None else idle_ms
            is_silent = self._world.clock.now_ms >= self._heard_at_ms + wait_ms
        else:
            is_silent = lanes.are_all_idle
        if is_silent:
            self.source_state = AT_END if idle_ms is None else IDLE

    def times_to_tell(self) -> list[tuple[int, Record]]:
        """Return the rows of time for the places behind a repartition, each with its partition."""
        if self.spread is None:
            return []
        topic, partitions = self.spread.topic, self._world.partitions
        times = self.spread.times(
            partitions, self.source_state, urgent_before_ms=self.spread.time_ms
        )
        return [(to, times_row(topic, to, [time])) for to, time in times]

    def progress(self, cleaned_offset: int | None) -> Progress | None:
        """Return the progress for readers of the cleaned topic; None if there is none yet."""
        time_ms, is_idle = self.chain.lateness.time_ms, self.source_state == IDLE
        if time_ms == NO_TIME_MS and not is_idle:
            return None
        reached_ms = progress_ms(self.hop.operators, self.chain)
        time_ms = left_through_ms(self.chain) if is_idle else time_ms
        topic, position = self.hop.topic, self.position
        return Progress(
            self.partition, reached_ms, time_ms, topic, position, cleaned_offset, is_idle
        )
