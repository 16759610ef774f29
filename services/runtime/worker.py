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
from typing import Any

from aiokafka.structs import TopicPartition

from contracts.pipeline import PipelineSpec
from services.observe.logs import logger as logger_of
from services.observe.snapshot import StateMemory, WorkerSnapshot, WorkerState
from services.runtime.binding import Batch, BatchThread
from services.runtime.limits import Limits
from services.runtime.rebalance import Rebalance
from services.runtime.refusals import refusal_of
from services.runtime.security import consumer_options
from services.runtime.task import Fetched, Task
from services.runtime.work import WAITING_RECORDS_MAX, Work
from services.settings import Settings

_BREATHS_PER_COMMIT = 20
_FETCH_BYTES_TOTAL = 32 << 20
_FETCH_BYTES_MAX = 512 << 10
_FETCH_BYTES_MIN = 64 << 10
_WAITING_RECORDS_TOTAL = 100_000
_WAITING_RECORDS_MIN = 1_000
_WAITING_BYTES_TOTAL = 64 << 20
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
        """Nothing is opened before `start`; its topics have so many partitions."""
        self.spec = spec
        self.settings = settings
        self.hops = {hop.topic: hop for hop in spec.hops()}
        self.fetch_bytes = _FETCH_BYTES_MAX
        self.breath_s = settings.commit_interval_ms / _BREATHS_PER_COMMIT / 1000
        self.tasks: dict[TopicPartition, Task] = {}
        # Who still commits what is under way must not be counted out meanwhile.
        self.rebalance_timeout_ms = settings.shutdown_timeout_ms + settings.session_timeout_ms
        self.rebalances = 0
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
        self.rebalance = Rebalance(self.work, self, partitions)

    def _the_thread(self) -> BatchThread:
        assert self._thread is not None
        return self._thread

    async def start(self, thread: BatchThread, route: Route) -> None:
        """Begin to take partitions, from this consumer's thread."""
        self._thread, self._route = thread, route
        await self.work.restorer.start()
        await self.rebalance.start()

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
        running.add_done_callback(self._ended)
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
        count = max(1, len(self.tasks))
        fetch_bytes = min(self.fetch_bytes, max(_FETCH_BYTES_MIN, _FETCH_BYTES_TOTAL // count))
        self._the_thread().share(fetch_bytes)
        records_max = max(_WAITING_RECORDS_MIN, _WAITING_RECORDS_TOTAL // count)
        self.work.waiting_records_max = min(WAITING_RECORDS_MAX, records_max)
        self.work.waiting_bytes_max = max(fetch_bytes, _WAITING_BYTES_TOTAL // count)

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
        await self._close(list(self.tasks), commits=True)
        await self.work.purges.purge_last()
        await self.work.restorer.stop()

    async def _close(self, sources: list[TopicPartition], *, commits: bool) -> None:
        running = []
        for source in sources:
            task = self.tasks[source]
            task.close()
            if task.state == "restoring" or not commits:
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
        records, waiting_bytes = (0, 0) if task is None else (task.waiting, task.waiting_bytes)
        return (
            records + len(batch.records) >= self.work.waiting_records_max
            or waiting_bytes + batch.size_bytes >= self.work.waiting_bytes_max
        )

    def expect(self, batch: Batch) -> bool:
        """Whether a task takes records that were just fetched; else they are read again."""
        task = self.tasks.get(batch.partition)
        if task is None or task.lease != batch.lease:
            _left(batch)
            return False
        task.waiting += len(batch.records)
        task.waiting_bytes += batch.size_bytes
        return True

    def offer(self, batch: Batch, acknowledge: Callable[[], Any]) -> None:
        """Records that Faust's agent was given for a task."""
        task = self.tasks.get(batch.partition)
        if task is not None and task.lease == batch.lease:
            task.offer(Fetched(batch.records, batch.size_bytes, acknowledge))
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
                limit_bytes=self.settings.memory_bytes,
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
        """Hear from the broker how far everything is."""
        self.work.survey = await self._the_thread().survey()

    def _ended(self, running: asyncio.Task[None]) -> None:
        if not running.cancelled() and (problem := running.exception()) is not None:
            self.fail(problem)

    def fail(self, problem: BaseException) -> None:
        """End the worker because of this; the first reason counts."""
        if not self._failed.done():
            self._failed.set_exception(refusal_of(problem, self.settings) or problem)

    async def failed(self) -> None:
        """Wait until the worker must end, and raise the reason."""
        await asyncio.shield(self._failed)


def _left(batch: Batch) -> None:
    """They were fetched before their task began to read where it reads now."""
    name = _names([batch.partition])[0]
    logger.info("records of an earlier lease left", source=name, records=len(batch.records))


def _names(partitions: Iterable[TopicPartition]) -> list[str]:
    return sorted(f"{partition.topic}/{partition.partition}" for partition in partitions)
