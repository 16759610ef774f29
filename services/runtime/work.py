"""What a task is given to work with: settings, memory, the source, and a place to tell.

Everything here may be asked from the main loop alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from aiokafka.errors import (
    CommitFailedError,
    IllegalStateError,
    InvalidProducerEpoch,
    KafkaError,
    ProducerFenced,
    RebalanceInProgressError,
)
from aiokafka.structs import TopicPartition

from contracts.errors import InstanceFenced, StateTruncated
from contracts.hops import Hop, transactional_prefix
from contracts.pipeline import PipelineSpec
from services.observe.logs import logger as logger_of
from services.observe.metrics import Metrics
from services.observe.snapshot import TaskSnapshot
from services.runtime.binding import BatchThread
from services.runtime.failures import Failures
from services.runtime.limits import Limits
from services.runtime.outbox import OURS, Outbox
from services.runtime.purge import Purges
from services.runtime.refusals import refusal_of
from services.runtime.restorer import Restorer
from services.runtime.security import client_options
from services.runtime.table import StateTable
from services.runtime.tally import UNSEEN, Shown, Surveyed, Tally
from services.runtime.topics import written_topics
from services.settings import Settings
from services.state.rocks import RocksMemory

_RETRY_S = 1.0
WAITING_RECORDS_MAX = 10_000
_FENCES_MAX = 3
_FENCES_WITHIN_S = 60.0
_FENCED = (ProducerFenced, InvalidProducerEpoch)
logger = logger_of(__name__)


class Waits(Shown, Protocol):
    """A task, as far as the worker must know of it."""

    tally: Tally


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
        """Nothing is opened before `start`; `opened` hears of each task that begins to run."""
        self.spec = spec
        self.settings = settings
        self.limits = limits
        self.folder = settings.state_folder / spec.pipeline
        self.memory = RocksMemory(settings.memory_bytes)
        self.exactly_once = settings.guarantee == "exactly-once"
        isolation = "read_committed" if self.exactly_once else "read_uncommitted"
        self.restorer = Restorer(client_options(settings, "restore"), isolation, fail)
        self.purges = Purges(settings)
        self.failures = Failures(stops=spec.on_failure == "stop")
        self.written_topics = [topic.name for topic in written_topics(spec, settings)]
        self._thread = thread
        self._opened = opened
        self.waiting_records_max = WAITING_RECORDS_MAX
        """So many records may wait for one task before its partition is paused."""
        self.waiting_bytes_max = 0
        """And so many bytes of keys and values."""
        self.survey: dict[TopicPartition, Surveyed] = {}
        """What was last heard of each source partition."""
        self.metrics: Metrics | None = None
        self.tables: dict[str, StateTable] = {}
        """By hop."""
        self._fenced_at_s: dict[TopicPartition, list[float]] = {}

    def now_ms(self) -> int:
        """The wall clock."""
        return time.time_ns() // 1_000_000

    def outbox(self, hop: Hop, partition: int) -> Outbox:
        """A new way out for one partition."""
        transactional_id = f"{transactional_prefix(self.spec.pipeline, hop)}{partition}"
        return Outbox(
            client_options(self.settings, "produce"),
            self.spec.pipeline,
            transactional_id if self.exactly_once else None,
            self.settings.transaction_timeout_ms,
            self.limits,
        )

    async def start_position(self, source: TopicPartition, reached: int | None) -> int:
        """Where to read on: behind what the state has, or what the group was told to skip."""
        earliest, end, committed, is_ours = await self._thread().bounds(source)
        name = f"{source.topic}/{source.partition}"
        if reached is None and committed and is_ours:
            message = (
                f"this pipeline has reached offset {committed} of {name}, and its changelog is"
                " empty: it was deleted; bring it back, or begin anew with `headrace reset`"
            )
            raise StateTruncated(message)
        # Both are of one transaction; at least once, the changelog may say something older last.
        if self.exactly_once and is_ours and (committed or 0) > (reached or 0):
            message = (
                f"this pipeline has reached offset {committed} of {name}, and its changelog ends"
                f" with {reached}: it has lost its last records; bring them back, or begin anew"
                " with `headrace reset`"
            )
            raise StateTruncated(message)
        position = max(reached or 0, committed or 0) if reached or committed else earliest
        if position > end:
            message = (
                f"{name} ends at offset {end}, and the state has reached {position}: the topic was"
                " made anew; begin anew with `headrace reset`, or bring the topic back"
            )
            raise StateTruncated(message)
        if position < earliest:
            logger.error(
                "records were deleted before they were read; raise the source's retention",
                source=name,
                lost_offsets=earliest - position,
            )
            position = earliest
        if reached is not None and position > reached:
            logger.warning("the group's offset is ahead of the state, and is followed", source=name)
        return position

    async def begin_reading(self, source: TopicPartition, position: int, lease: int) -> None:
        """Let records of a partition come."""
        self._opened(source)
        await self._thread().seek_and_resume(source, position, lease)

    async def stop_reading(self, source: TopicPartition) -> None:
        """Let no more records of a partition come."""
        await self._thread().pause(source)

    def taken(self, task: Waits) -> None:
        """A task took records; go on reading where that was stopped."""
        has_few = task.waiting <= self.waiting_records_max // 2
        if has_few and task.waiting_bytes <= self.waiting_bytes_max // 2:
            self._thread().resume(task.source)

    def snapshot(self, task: Waits) -> TaskSnapshot:
        """A task as it is now."""
        changelog = TopicPartition(task.hop.changelog.name, task.partition)
        remaining = self.restorer.remaining(changelog)
        return task.tally.snapshot(task, self.survey.get(task.source, UNSEEN), remaining)

    def retire(self, task: Waits) -> None:
        """Keep what a task counted before it begins to count anew."""
        if self.metrics is not None:
            self.metrics.retire(self.snapshot(task))

    def was_at_end(self, source: TopicPartition, since_s: float) -> bool:
        """Whether the broker, asked after that time, had nothing left to read."""
        fetched, end, _, at_s = self.survey.get(source, UNSEEN)
        return fetched is not None and end is not None and fetched >= end and at_s >= since_s

    async def tell_offset(self, outbox: Outbox, source: TopicPartition, position: int) -> None:
        """Say which offset of the source the next commit reaches, where that is part of it."""
        if self.exactly_once:
            await outbox.tell_offsets({source: position})

    async def commit(self, outbox: Outbox, source: TopicPartition, position: int) -> None:
        """Commit the source's offset, and all that was sent with it."""
        if self.exactly_once:
            await outbox.commit()
        else:
            await self._thread().commit_offset(source, position)

    async def recover(self, task: Waits, problem: Exception) -> bool:
        """Whether to open the task again; raises where that cannot help.

        A broker that was away for longer than a transaction may last has fenced us, too. Whether
        somebody else took over, the group says: it takes an offset from an owner alone. Who is none
        any more ends the task, and hears from the group what comes next.
        """
        source = task.source
        name = f"{source.topic}/{source.partition}"
        refusal = refusal_of(problem, self.settings)
        if refusal is not None:
            raise refusal from problem
        logger.warning(
            "a transaction failed; back to what is committed", source=name, why=repr(problem)
        )
        if isinstance(problem, _FENCED):
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
                " counts it ours; stop the other one, or give one of them another pipeline name"
            )
            raise InstanceFenced(message)

    async def _is_ours(self, source: TopicPartition) -> bool:
        try:
            bounds = await self._thread().bounds(source)
            # Once more what stands there, as whose it is: somebody may have moved it by hand.
            metadata = OURS if bounds.is_ours else ""
            await self._thread().commit_offset(source, bounds.committed or 0, metadata)
        except CommitFailedError as refused:
            return isinstance(refused.__cause__, RebalanceInProgressError)
        except IllegalStateError:
            return False
        except KafkaError as problem:
            # Nobody knows now. Who opens it again fences, so a rightful owner is asked in turn.
            logger.warning(
                "the group cannot be asked whose it is", source=str(source), why=repr(problem)
            )
        return True
