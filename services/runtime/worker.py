"""A worker: one process's share of a pipeline's partitions, a task each.

It hears from the group which partitions it owns, gives each a task, hands records to them, and ends
them when the group takes them back. The first error that no task could deal with ends the worker.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any

from aiokafka.structs import TopicPartition

from headrace.contracts.errors import InstanceReplaced, StateTruncated
from headrace.contracts.pipeline import PipelineSpec
from headrace.services.kafka.limits import Limits
from headrace.services.kafka.refusals import ending_of
from headrace.services.kafka.security import consumer_options
from headrace.services.observe.logs import logger as logger_of
from headrace.services.observe.snapshot import StateMemory, WorkerSnapshot, WorkerState
from headrace.services.runtime.input.binding import Batch, BatchThread
from headrace.services.runtime.input.inbox import Fetched
from headrace.services.runtime.machine.budget import least_bytes, weight
from headrace.services.runtime.rebalance import Rebalance
from headrace.services.runtime.task.task import Task
from headrace.services.runtime.task.work import Work
from headrace.services.runtime.unawaited import report_failure
from headrace.services.settings import Settings

Route = Callable[[Iterable[TopicPartition]], Awaitable[None]]
logger = logger_of(__name__)


class Worker:
    """All tasks of this process."""

    def __init__(
        self,
        spec: PipelineSpec,
        settings: Settings,
        partitions: Mapping[str, int],
        limits: Limits,
    ) -> None:
        """Open nothing before `start`; `partitions` has the number of each topic's."""
        self.spec = spec
        self.settings = settings
        self.hops = {hop.topic: hop for hop in spec.hops()}
        self.tasks: dict[TopicPartition, Task] = {}
        # The group must not count out a member that still commits what is under way.
        self.rebalance_timeout_ms = settings.shutdown_timeout_ms + settings.session_timeout_ms
        self.rebalances = 0
        self._told_partitions = 0
        """Of how many it was said that they are too many for its memory."""
        self._is_stopping = False
        self._told_state: WorkerState = "starting"
        self._since_s = time.monotonic()
        self._running: dict[TopicPartition, asyncio.Task[None]] = {}
        self._thread: BatchThread | None = None
        self._route: Route | None = None
        self._given_at_s: dict[TopicPartition, float] = {}
        self._paused_ms: Counter[TopicPartition] = Counter()
        self.main_loop = asyncio.get_running_loop()
        self._failed: asyncio.Future[None] = self.main_loop.create_future()
        self.work = Work(spec, settings, self._the_thread, self.fail, self._opened, limits)
        self.work.partitions = partitions
        self.rebalance = Rebalance(self.work, self, partitions)

    def _the_thread(self) -> BatchThread:
        assert self._thread is not None
        return self._thread

    async def start(self, thread: BatchThread, route: Route) -> None:
        """Begin to take partitions, from this consumer's thread."""
        self._thread, self._route = thread, route
        await self.work.restorer.start()
        await self.rebalance.start()

    def breath_s(self) -> float:
        """Return how long to wait between two fetches where the first brought few records."""
        return self.work.load.breath_s(self.settings.commit_interval_ms / 1000)

    def gathering_s(self) -> float:
        """Return how long brokers gather records before they answer a fetch."""
        return self.work.load.gathering_s(self.settings.commit_interval_ms / 1000)

    def consumer_options(self) -> dict[str, Any]:
        """How the source's consumer connects."""
        return consumer_options(self.settings)

    async def route(self, sources: Iterable[TopicPartition]) -> None:
        """Let records of these partitions come, and of those that are closed only now."""
        self.rebalances += 1
        assert self._route is not None
        await self._route({*sources, *self.tasks})

    def open(self, source: TopicPartition) -> None:
        """Run a partition's task."""
        if self._is_stopping:
            return
        task = self.tasks[source] = Task(self.work, self.hops[source.topic], source.partition)
        running = asyncio.create_task(task.run(), name=f"{source.topic}/{source.partition}")
        running.add_done_callback(partial(report_failure, self.fail))
        self._running[source] = running
        self._given_at_s[source] = time.monotonic()
        self._share()

    def _opened(self, source: TopicPartition) -> None:
        since_s = self._given_at_s.pop(source, None)
        if since_s is not None:
            self._count_pause(source, since_s)
        self.rebalance.opened(source)

    def _count_pause(self, source: TopicPartition, since_s: float) -> None:
        self._paused_ms[source] += round((time.monotonic() - since_s) * 1000)

    def _heartbeat_at_s(self) -> float | None:
        return None if self._thread is None else self._thread.heartbeat_at_s()

    def ask_for_rebalance(self) -> None:
        """Join the group again."""
        self._the_thread().ask_for_rebalance()

    def _share(self) -> None:
        """Bound what waits in memory, however many partitions there are."""
        work, budget, count = self.work, self.work.budget, max(1, len(self.tasks))
        work.shares = budget.shares(count)
        self._the_thread().share(work.shares.fetch_bytes, budget.fetched_bytes(count))
        work.memory.share(budget.state_bytes(count), count)
        if count > self._told_partitions and not budget.fits(count):
            self._told_partitions = count
            logger.warning(
                "its partitions need more memory; raise HEADRACE_MEMORY, or start more instances",
                partitions=count,
                memory_bytes=budget.total_bytes,
                least_bytes=least_bytes(count),
            )

    async def release(self, sources: list[TopicPartition], *, commits: bool) -> None:
        """Close the tasks of these partitions, with what is under way or without."""
        since_s = time.monotonic()
        known = [source for source in sources if source in self.tasks]
        await self._close(known, commits=commits)
        for source in known:
            self._count_pause(source, since_s)
        if not self._is_stopping:
            self._share()

    async def close(self) -> None:
        """Commit and close everything."""
        self._is_stopping = True
        await self.rebalance.close()
        await self._close(list(self.tasks), commits=self._may_commit())
        await self.work.ways.stop()
        await self.work.purges.purge_last()
        await self.work.restorer.stop()

    async def _close(self, sources: list[TopicPartition], *, commits: bool) -> None:
        running = []
        for source in sources:
            task = self.tasks[source]
            task.close()
            # One that failed has nothing to commit, and may rest for long before it tries again.
            if task.state != "running" or not commits:
                self._running[source].cancel()
            running.append(self._running[source])
        if running:
            _, late = await asyncio.wait(running, timeout=self.settings.shutdown_timeout_ms / 1000)
            for straggler in late:
                logger.error("did not commit in time, and is left", partition=straggler.get_name())
                straggler.cancel()
            if late:
                await asyncio.wait(late)
            logger.info("partitions released", partitions=_names(sources))
        for source in sources:
            # A signal may have closed everything while the group took some of it back.
            self.tasks.pop(source, None)
            self._running.pop(source, None)

    def has_enough_with(self, batch: Batch) -> bool:
        """Whether no more should be read for a task behind this; asked from the reading thread."""
        task = self.tasks.get(batch.partition)
        inbox = None if task is None else task.inbox
        records, waiting_bytes = (0, 0) if inbox is None else (inbox.records, inbox.size_bytes)
        waits = weight(records + len(batch.records), waiting_bytes + batch.size_bytes)
        return waits >= self.work.shares.waiting_bytes

    def expect(self, batch: Batch) -> bool:
        """Whether a task takes records that were just fetched; else they are read again."""
        task = self.tasks.get(batch.partition)
        if task is None or task.lease != batch.lease:
            _left(batch)
            return False
        task.inbox.expect(len(batch.records), batch.size_bytes)
        return True

    def offer(self, batch: Batch) -> None:
        """Records that Faust's agent was given for a task."""
        task = self.tasks.get(batch.partition)
        if task is not None and task.lease == batch.lease:
            task.inbox.offer(Fetched(batch.records, batch.size_bytes))
        else:
            _left(batch)

    def snapshot(self) -> WorkerSnapshot:
        """The worker as it is now."""
        state = self._state()
        if state != self._told_state:
            self._told_state, self._since_s = state, time.monotonic()
        memory = self.work.memory
        return WorkerSnapshot(
            pipeline=self.spec.pipeline,
            instance=self.settings.instance_id or socket.gethostname(),
            state=state,
            taken_at_s=time.monotonic(),
            since_s=self._since_s,
            tasks=tuple(map(self.work.snapshot, self.tasks.values())),
            rebalances=self.rebalances,
            heartbeat_at_s=self._heartbeat_at_s(),
            copies=self.rebalance.copies(),
            paused_ms={f"{at.topic}/{at.partition}": ms for at, ms in self._paused_ms.items()},
            memory=StateMemory(
                block_cache_bytes=memory.usage_bytes(),
                write_buffer_bytes=memory.write_buffers_bytes(),
                limit_bytes=memory.memory_bytes,
            ),
        )

    def _state(self) -> WorkerState:
        if self._is_stopping:
            return "stopping"
        if not self.rebalances:
            return "starting"
        restoring = any(task.state == "restoring" for task in self.tasks.values())
        return "restoring" if restoring else "running"

    async def survey(self) -> None:
        """Hear from brokers how far everything is; a partition that nobody leads is as it was."""
        told = await self._the_thread().survey()
        running = [source for source, task in self.tasks.items() if task.state == "running"]
        before = {source: self.work.surveyed(source) for source in running}
        self.work.survey = before | told

    async def check_topics(self) -> None:
        """Refuse topics that were deleted and made anew while tasks read and write them."""
        running = [source for source, task in self.tasks.items() if task.state == "running"]
        await self.work.made_anew.check(running)

    def _may_commit(self) -> bool:
        """Whether no other process has all of this by now, and no other topic the name of one."""
        failed = self._failed
        problem = failed.exception() if failed.done() else None
        return not isinstance(problem, InstanceReplaced | StateTruncated)

    def fail(self, problem: BaseException) -> None:
        """End the worker because of this; the first reason counts."""
        if not self._failed.done():
            self._failed.set_exception(ending_of(problem, self.settings))

    async def failed(self) -> None:
        """Wait until the worker must end, and raise the reason."""
        await asyncio.shield(self._failed)


def _left(batch: Batch) -> None:
    """They were fetched before their task began to read where it reads now."""
    name = _names([batch.partition])[0]
    logger.info("records of an earlier lease left", source=name, records=len(batch.records))


def _names(partitions: Iterable[TopicPartition]) -> list[str]:
    return sorted(f"{partition.topic}/{partition.partition}" for partition in partitions)
