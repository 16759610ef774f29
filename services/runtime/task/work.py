"""The means of a task: settings, memory, the source, and a place to tell.

Everything here may be asked from the main loop alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from aiokafka.errors import (
    InvalidProducerEpoch,
    KafkaError,
    ProducerFenced,
)
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from headrace.contracts.errors import InstanceFenced, StateTruncated
from headrace.contracts.hops import Hop, carries_source_values
from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.record import Record
from headrace.contracts.serde.json import ReadField, decode_json_field
from headrace.services.intake.timestamps import Timestamps
from headrace.services.kafka.coordinator import OURS
from headrace.services.kafka.fenced import GivenUpError
from headrace.services.kafka.identities import Identities, Identity
from headrace.services.kafka.limits import Limits
from headrace.services.kafka.refusals import refusal_of
from headrace.services.kafka.registry import Registry
from headrace.services.kafka.security import client_options
from headrace.services.kafka.transactions import OUT_OF_STATE
from headrace.services.observe.logs import logger as logger_of
from headrace.services.observe.metrics import Metrics
from headrace.services.observe.snapshot import TaskSnapshot
from headrace.services.operators.chain import Chain
from headrace.services.operators.lanes import Lanes
from headrace.services.operators.operator import Aside, Batch
from headrace.services.runtime.changelog.purge import Purges
from headrace.services.runtime.changelog.restorer import Restorer
from headrace.services.runtime.input.binding import BatchThread
from headrace.services.runtime.input.inbox import Inbox
from headrace.services.runtime.input.survey import UNSEEN, Surveyed
from headrace.services.runtime.machine.budget import weight, with_held_bounds
from headrace.services.runtime.machine.machine_memory import budget_for
from headrace.services.runtime.output.failures import Failures
from headrace.services.runtime.output.life import TransactionBrokenError
from headrace.services.runtime.output.outbox import Outbox
from headrace.services.runtime.output.ways import Ways
from headrace.services.runtime.task.cleaned import check_cleaned
from headrace.services.runtime.task.made_anew import MadeAnew
from headrace.services.runtime.task.pace import OUTLASTED, Load, Pace
from headrace.services.runtime.task.start import Start, start_at
from headrace.services.runtime.task.table import StateTable
from headrace.services.runtime.task.tally import Shown, Tally
from headrace.services.runtime.time.skew import Skew
from headrace.services.settings import Settings
from headrace.services.state.changelog import ABOUT
from headrace.services.state.partition import PartitionState
from headrace.services.state.rocks import RocksMemory

_RETRY_S = 1.0
_FENCES_MAX = 10
"""Of partitions that moved, each successor may end their owner's transactions once."""
_FENCES_WITHIN_S = 60.0
_FENCED = (ProducerFenced, InvalidProducerEpoch)
logger = logger_of(__name__)


class Waits(Shown, Protocol):
    """A task, as far as the worker must know of it."""

    tally: Tally
    pace: Pace


class Work:
    """Shared by all tasks of a worker."""

    def __init__(
        self,
        spec: PipelineSpec,
        settings: Settings,
        thread: Callable[[], BatchThread],
        fail: Callable[[BaseException], None],
        opened: Callable[[TopicPartition], None],
        limits: Limits,
    ) -> None:
        """Open nothing before `start`; `opened` hears of each task that begins to run."""
        self.spec = spec
        self.partitions: Mapping[str, int] = {}
        """How many each source has."""
        self.says_origins = False
        """Whether all in the group read where a record of a repartition topic came from."""
        self.says_runs = False
        """Whether all of them read that of a run of records."""
        self.skew = Skew(spec.max_skew_ms(), lambda: self.says_origins)
        self.settings = settings
        self.limits = limits
        self.folder = settings.state_folder / spec.pipeline
        self.budget = budget_for(settings)
        self.shares = self.budget.shares(1)
        """The memory that each task may take."""
        self.memory = RocksMemory(self.budget.state_bytes(1))
        self.load = Load()
        self.exactly_once = settings.guarantee == "exactly-once"
        self.restorer = Restorer(client_options(settings, "restore"), fail)
        names = [hop.changelog.name for hop in spec.hops()] + [hop.topic for hop in spec.hops()]
        self.identities = Identities(names, self.restorer.ask)
        self.purges = Purges(settings)
        self.registry = Registry(spec, settings)
        self.failures = Failures(stops=spec.on_failure == "stop")
        self.ways = Ways(spec, settings, thread, limits)
        self._thread = thread
        self._opened = opened
        self.survey: dict[TopicPartition, Surveyed] = {}
        """The last report on each source partition."""
        self.metrics: Metrics | None = None
        self.tables: dict[str, StateTable] = {}
        """By hop."""
        self.made_anew = MadeAnew(self.restorer, lambda: thread().is_counted())
        self._has_said_ahead = False
        self._fenced_at_s: dict[TopicPartition, list[float]] = {}

    def now_ms(self) -> int:
        """The wall clock."""
        return time.time_ns() // 1_000_000

    def reads(self, hop: Hop) -> ReadField:
        """How values are read that come to a hop."""
        is_source = self.registry.is_used and carries_source_values(self.spec.hops(), hop)
        return self.registry.schemas.read_field if is_source else decode_json_field

    def timestamps(self, hop: Hop) -> Timestamps | None:
        """Return what times the source's records; behind a repartition they have their times."""
        return Timestamps(self.spec.source, self.reads(hop)) if hop.is_first else None

    def chain(self, hop: Hop, state: PartitionState) -> Chain:
        """Build a hop's operators over a partition's state."""
        return Chain(
            with_held_bounds(hop.operators, self.shares.held_bytes),
            state.overlay.view,
            lanes=self._lanes(hop, state),
            read=self.reads(hop),
            explain=self.settings.decisions,
            row_bytes_max=self.limits.row_bytes(hop.changelog.name),
        )

    def _lanes(self, hop: Hop, state: PartitionState) -> Lanes | None:
        """The partitions whose records meet behind a repartition; None for those of the source.

        A new state waits for all of them; an older one for those that speak.
        """
        if hop.is_first:
            return None
        hops = self.spec.hops()
        before = hops[[one.name for one in hops].index(hop.name) - 1]
        is_new = state.position is None
        expected = range(self.partitions[before.topic]) if is_new else ()
        return Lanes(state.overlay.view(ABOUT), expected)

    def goes_on_with(self, hop: Hop, partition: int, topics: Mapping[str, Identity]) -> None:
        """Hear of which topics a task goes on, once its state was found to know them."""
        self.purges.opened(topics)
        self.made_anew.opened(hop, partition, topics)

    async def start_position(
        self, source: TopicPartition, reached: int | None, changelog: TopicPartition
    ) -> Start:
        """Where to read on: behind what the state has, or what the group was told to skip."""
        bounds = await self._thread().bounds(source)
        name = f"{source.topic}/{source.partition}"
        is_reached = bounds.committed and bounds.is_ours
        if reached is None and is_reached and not await self._was_written(changelog):
            message = (
                f"this pipeline has reached offset {bounds.committed} of {name}, and its changelog"
                " is empty: it was deleted; bring it back, or begin anew with `headrace reset`"
            )
            raise StateTruncated(message)
        return start_at(name, reached, bounds, exactly_once=self.exactly_once)

    async def check_cleaned(self, hop: Hop, partition: int, state: PartitionState) -> None:
        """Have a state know the last record of its cleaned partition."""
        if hop.end is None:
            cleaned = TopicPartition(self.spec.sink.topic, partition)
            await check_cleaned(self.restorer, cleaned, state, may_read=self.exactly_once)

    async def _was_written(self, changelog: TopicPartition) -> bool:
        """Whether anything was ever written there, if only in transactions that do not count."""
        ends = await self.restorer.ends([changelog])
        return ends[changelog] > 0

    async def begin_reading(self, source: TopicPartition, position: int, lease: int) -> None:
        """Let records of a partition come."""
        self._opened(source)
        await self._thread().seek_and_resume(source, position, lease)

    async def stop_reading(self, source: TopicPartition) -> None:
        """Let no more records of a partition come."""
        await self._thread().pause(source)

    def taken(self, task: Waits) -> None:
        """A task took records; go on reading where that was stopped."""
        if self.has_room(task.inbox):
            self._thread().resume(task.source)

    def has_room(self, inbox: Inbox) -> bool:
        """Whether a task may bring more, as far as what waits for it goes."""
        return weight(inbox.records, inbox.size_bytes) <= self.shares.waiting_bytes // 2

    def may_wait(self, task: Waits) -> bool:
        """Whether so few records came that they may wait until the commit.

        No reader sees them before, and together they cost less.
        """
        is_little = 0 < task.inbox.records < task.pace.few() and self.has_room(task.inbox)
        return is_little and task.together.is_alone

    def is_behind(self, task: Waits) -> bool:
        """Whether records wait, and not because they may."""
        return bool(task.inbox.records) and not self.may_wait(task)

    def is_idle(self, task: Waits) -> bool:
        """Whether the source was silent for so long that its first operator lets go."""
        quiet_until_s = task.pace.quiet_until_s()
        if quiet_until_s is None or task.inbox.records or time.monotonic() < quiet_until_s:
            return False
        return self.was_at_end(task, quiet_until_s)

    def let_in(
        self, records: list[Record], timestamps: Timestamps | None, source: TopicPartition
    ) -> tuple[Batch, list[Aside]]:
        """The batch for the operators, and what is dead at the door, which the first hop has."""
        if timestamps is None:
            return Batch.of(records), []
        batch, dead = timestamps.take(records, self.now_ms())
        if timestamps.ahead:
            self._say_ahead(source)
        return batch, dead

    def _say_ahead(self, source: TopicPartition) -> None:
        """Say once that a record from the future was taken; the metric counts them all."""
        if self._has_said_ahead:
            return
        self._has_said_ahead = True
        logger.warning(
            "a record more than an hour ahead of the clock was taken: it moves stream time, and"
            " what comes after it is late; with `max-future` in the source such a record goes to"
            " the dead-letter topic instead",
            source=f"{source.topic}/{source.partition}",
            counted_by="headrace_intake_ahead_records_total",
        )

    def snapshot(self, task: Waits) -> TaskSnapshot:
        """A task as it is now."""
        changelog = TopicPartition(task.hop.changelog.name, task.partition)
        remaining = self.restorer.lag(changelog) or 0
        is_awaited = self.registry.is_waited_for(task.source)
        shown = task.tally.snapshot(task, self.surveyed(task.source), remaining, self.now_ms())
        return replace(shown, awaits_schema=True) if is_awaited else shown

    def retire(self, task: Waits) -> None:
        """Keep what a task counted before it begins to count anew."""
        if self.metrics is not None:
            self.metrics.retire(self.snapshot(task))

    def surveyed(self, source: TopicPartition) -> Surveyed:
        """The last report on a source partition."""
        return self.survey.get(source, UNSEEN)

    def was_at_end(self, task: Shown, since_s: float) -> bool:
        """Whether the broker, asked after that time, had nothing that the task has not decided."""
        surveyed = self.surveyed(task.source)
        return surveyed.at_s >= since_s and surveyed.is_all_decided(task.position)

    async def tell_offset(self, outbox: Outbox, source: TopicPartition, position: int) -> None:
        """Say which offset of the source the next commit reaches, where that is part of it."""
        if self.exactly_once:
            await outbox.tell_offsets({source: OffsetAndMetadata(position, OURS)})

    async def commit(self, outbox: Outbox, source: TopicPartition, position: int) -> None:
        """Commit the source's offset, and all that was sent with it."""
        if self.exactly_once:
            await outbox.commit()
        else:
            await self._thread().commit_offset(source, position)

    async def recover(self, task: Waits, problem: Exception) -> bool:
        """Whether to open the task again; raises where that cannot help.

        A broker that was away or too busy for as long as a transaction may last has fenced us, too.
        The group tells whether somebody took over: it takes an offset from an owner alone. A worker
        that owns it no more ends the task, and hears from the group what comes next.
        """
        source = task.source
        name = f"{source.topic}/{source.partition}"
        if isinstance(problem, GivenUpError):
            logger.warning("given up; back to what is committed", source=name)
            await self.ways.until_it_may_send()
            return True
        if isinstance(problem, TransactionBrokenError):
            if problem.problem is None:
                logger.info(
                    "a partition of its transaction failed; back to what is committed", source=name
                )
                return True
            problem = problem.problem
            if not isinstance(problem, (KafkaError, *OUT_OF_STATE)):
                raise problem
        refusal = refusal_of(problem, self.settings)
        if refusal is not None:
            raise refusal from problem
        logger.warning(
            "a partition failed; back to what is committed", source=name, why=repr(problem)
        )
        if isinstance(problem, _FENCED):
            if task.pace.has_outlasted:
                logger.warning(OUTLASTED, source=name)
            else:
                self._count_fence(source, name)
            if not await self._is_ours(source):
                logger.error(
                    "another instance took over; what was not committed is discarded", source=name
                )
                return False
        await asyncio.sleep(_RETRY_S)
        return True

    def _count_fence(self, source: TopicPartition, name: str) -> None:
        now_s = time.monotonic()
        recent = [
            at_s for at_s in self._fenced_at_s.get(source, []) if now_s - at_s < _FENCES_WITHIN_S
        ]
        self._fenced_at_s[source] = [*recent, now_s]
        if len(recent) >= _FENCES_MAX:
            message = (
                f"another program keeps taking over the transactions of {name}, and the group still"
                " counts it ours; stop the other one, or give one of them another pipeline name, or"
                " a new state folder where that was copied"
            )
            raise InstanceFenced(message)

    async def _is_ours(self, source: TopicPartition) -> bool:
        """Whether the group still counts us; a member gives a partition up before another has it.

        An offset that was written to ask would take the place of those that a transaction commits
        later, once its coordinator has prepared it.
        """
        try:
            return await self._thread().is_counted()
        except KafkaError as problem:
            # The task may open again: that fences, so a rightful owner is asked in turn.
            logger.warning(
                "the group cannot be asked whose it is", source=str(source), why=repr(problem)
            )
        return True
