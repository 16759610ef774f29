"""A worker as a member of its group: what it says, what it is told, and what it does about it.

The group's messages come from the coordinator, in the consumer's thread; what a task is to this
member is decided by `services/group`, without either. Here is what happens in between:

    told to run         the copy that was followed is handed over, and the task opened
    told to follow      a copy is kept up, and its lag is measured
    caught up           the group is asked for the rebalance that brings the task here
    told to give up     the task commits and closes; then, and not before, the member joins again
    thrown out          tasks end without a commit
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Protocol

from aiokafka.structs import TopicPartition

from headrace.contracts.errors import TopicRefused
from headrace.services.group.holdings import Holdings, Step
from headrace.services.group.info import (
    INFO_VERSION,
    ORIGINS_SINCE,
    RUNS_SINCE,
    Endpoint,
)
from headrace.services.group.learner import Action, State
from headrace.services.group.member import Rules, Share, TaskId
from headrace.services.group.round import (
    MEMBER_CALLED,
    Heard,
    Instance,
    Joining,
    describe,
    hear,
    lead,
)
from headrace.services.observe.logs import logger as logger_of
from headrace.services.observe.snapshot import CopyRole, CopySnapshot
from headrace.services.runtime.machine.folder import client_of
from headrace.services.runtime.standby.disk import lags_on_disk
from headrace.services.runtime.standby.follower import Follower
from headrace.services.runtime.task.work import Work
from headrace.services.runtime.unawaited import report_failure
from headrace.services.settings import Settings

_LOOK_EVERY_S = 0.1
_WAIT_FOR_OTHERS_S = 2.0
"""So long one that has caught up waits for others that learn, to move with them in one go."""
_FOLLOW_UP = "what was given up is given away"
_STARTED = "it started"
_ASK_IN_S = 1.0
logger = logger_of(__name__)


class Tasks(Protocol):
    """The tasks of a worker, as the group's decisions open and close them."""

    def open(self, source: TopicPartition) -> None:
        """Run a partition's task."""
        ...

    async def release(self, sources: list[TopicPartition], *, commits: bool) -> None:
        """Close tasks, with what is under way or without."""
        ...

    async def route(self, sources: Iterable[TopicPartition]) -> None:
        """Let records of these partitions come."""
        ...

    def ask_for_rebalance(self) -> None:
        """Join the group again."""
        ...

    def fail(self, problem: BaseException) -> None:
        """End the worker."""
        ...


class Rebalance:
    """One worker's part in its group; a `coordinator.Membership`."""

    def __init__(self, work: Work, tasks: Tasks, partitions: Mapping[str, int]) -> None:
        """Own nothing, and follow nothing; topics had so many partitions when this began."""
        settings = work.settings
        self.holdings = Holdings(settings.acceptable_recovery_lag)
        self.followers: dict[TaskId, Follower] = {}
        self._work = work
        self._tasks = tasks
        self._partitions = partitions
        self._hops = work.spec.hops()
        self._rules = Rules(
            settings.acceptable_recovery_lag,
            settings.max_warmup_replicas,
            settings.standbys,
            settings.probing_interval_ms,
        )
        self._instance = Instance(client_of(work.folder), self._hops, _endpoint(settings))
        self._version = INFO_VERSION
        self._is_named = settings.instance_id is not None
        self._loop = asyncio.get_running_loop()
        self._looking: asyncio.Task[None] | None = None
        self._caught_up_at_s: float | None = None
        self._again: asyncio.TimerHandle | None = None
        self._is_stopping = False
        self._on_disk: dict[TaskId, int] = {}
        """How far copies were when this began; it says so once, since they are not kept up."""
        self._reason = self._said = _STARTED
        """Why it joins next, and what it said when it last did."""

    async def start(self) -> None:
        """Look at what lies on the disk."""
        self._on_disk = await lags_on_disk(self._work)

    async def describe(self, generation: int) -> bytes:
        """Return what the worker says when it joins."""
        self._measure()
        # A member that joins says how far it is, and need not ask for a rebalance to say it.
        self._caught_up_at_s = None
        joining = Joining(self._work.now_ms(), self._reason)
        self._said = self._reason
        logger.info("joining the group", because=self._reason)
        return describe(self._instance, self.holdings, generation, self._version, joining)

    def lead(self, said: Mapping[str, bytes], partitions: Mapping[str, int]) -> dict[str, bytes]:
        """Return the leader's word for each member."""
        for topic, count in partitions.items():
            if count > self._partitions[topic]:
                raise TopicRefused(_grown(topic, self._partitions[topic], count))
        return lead(said, self._hops, partitions, self._rules).assignments

    def hear(self, raw: bytes) -> Heard:
        """Read the leader's word."""
        return hear(raw, self._hops)

    async def told(self, heard: Heard) -> None:
        """Do what was told; returns when everything revoked is closed."""
        try:
            self._version = heard.version
            self._work.says_origins = heard.version >= ORIGINS_SINCE
            self._work.says_runs = heard.version >= RUNS_SINCE
            if self._reason == self._said:
                self._reason = _FOLLOW_UP if heard.joins_at_once else MEMBER_CALLED
            self._join_again_in(heard.share.next_rebalance_ms)
            if self._said == _STARTED and heard.version < INFO_VERSION and self._is_named:
                # It took its own place again without a round, so nobody heard what it knows.
                self._loop.call_later(_ASK_IN_S, self._ask, "it knows more than the group did")
            await self._tasks.route(TopicPartition(*partition) for partition in heard.partitions)
            self._on_disk = {}
            if not self._is_stopping:
                _log(heard.share)
                await self._take(self.holdings.told(heard.share))
        except Exception as problem:  # whatever it is, the worker ends with it
            self._tasks.fail(problem)
            raise

    async def thrown_out(self) -> None:
        """Let go of everything; returns when it is closed."""
        try:
            logger.warning("the group goes on without us; what was not committed is discarded")
            self._reason = "it was counted out, and is back"
            await self._take(self.holdings.thrown_out())
        except Exception as problem:  # whatever it is, the worker ends with it
            self._tasks.fail(problem)
            raise

    def fail(self, problem: Exception) -> None:
        """End the worker; may be called from any thread."""
        self._loop.call_soon_threadsafe(self._tasks.fail, problem)

    def opened(self, source: TopicPartition) -> None:
        """A task runs."""
        self.holdings.opened(self._task_of(source))

    def copies(self) -> tuple[CopySnapshot, ...]:
        """The copies that are kept up."""
        copies = []
        for task, follower in sorted(self.followers.items()):
            source = self._source_of(task)
            is_standby = self.holdings.state(task) is State.STANDBY
            role: CopyRole = "standby" if is_standby else "learner"
            copies.append(CopySnapshot(f"{source.topic}/{source.partition}", role, follower.lag))
        return tuple(copies)

    async def close(self) -> None:
        """Follow no more; tasks are closed by the worker."""
        self._is_stopping = True
        self._join_again_in(-1)
        if self._looking is not None:
            self._looking.cancel()
        followers = list(self.followers.values())
        self.followers.clear()
        stops = (follower.stop() for follower in followers)
        # A copy whose disk fails must not keep the worker from the commits of its tasks.
        for problem in await asyncio.gather(*stops, return_exceptions=True):
            if problem is not None:
                self._tasks.fail(problem)

    async def _take(self, steps: Iterable[Step]) -> None:
        """Take steps for all tasks at once: one that is slow to close holds up no other."""
        by_action: dict[Action, list[TaskId]] = {}
        for step in steps:
            by_action.setdefault(step.action, []).append(step.task)
        if activated := [self._source_of(task) for task in by_action.get(Action.ACTIVATE, ())]:
            logger.info("partitions assigned", partitions=_names(activated))
        for task in by_action.get(Action.FOLLOW, ()):
            self._follow(task)
        if Action.ASK in by_action:
            self._caught_up_at_s = self._caught_up_at_s or time.monotonic()
        if self.followers and (self._looking is None or self._looking.done()):
            self._looking = asyncio.create_task(self._look(), name="looking at copies")
            # No copy would be promoted any more if looking had died unheard.
            self._looking.add_done_callback(partial(report_failure, self._tasks.fail))
        await asyncio.gather(
            *(self._leave(task) for task in by_action.get(Action.LEAVE, ())),
            *(self._activate(task) for task in by_action.get(Action.ACTIVATE, ())),
            self._close(by_action.get(Action.REVOKE, ()), commits=True),
            self._close(by_action.get(Action.ABANDON, ()), commits=False),
        )

    def _follow(self, task: TaskId) -> None:
        if self._is_stopping:
            # A worker that closes has told all followers, and waits for no new one.
            return
        hop = self._hops[task.hop]
        follower = Follower(self._work, hop, task.partition, self._tasks.fail)
        self.followers[task] = follower
        follower.start()

    async def _leave(self, task: TaskId) -> None:
        follower = self.followers.pop(task, None)
        if follower is not None:
            await follower.stop()

    async def _activate(self, task: TaskId) -> None:
        follower = self.followers.pop(task, None)
        if follower is not None:
            await follower.hand_over()
        self._tasks.open(self._source_of(task))

    async def _close(self, tasks: Iterable[TaskId], *, commits: bool) -> None:
        tasks = list(tasks)
        if not tasks:
            return
        await self._tasks.release([self._source_of(task) for task in tasks], commits=commits)
        if commits:
            self._reason = f"it gave up what moves (partitions: {len(tasks)})"
        steps: list[Step] = []
        for task in tasks:
            await self._work.tables[self._hops[task.hop].name].close_parked(task.partition)
            steps += self.holdings.closed(task)
        await self._take(steps)

    async def _look(self) -> None:
        """Measure how far copies are, and ask for the rebalance that brings a task here."""
        while self.followers:
            await asyncio.sleep(_LOOK_EVERY_S)
            if any(step.action is Action.ASK for step in self._measure()):
                self._caught_up_at_s = self._caught_up_at_s or time.monotonic()
            since_s = self._caught_up_at_s
            if since_s is not None and (
                not self.holdings.learning or time.monotonic() - since_s > _WAIT_FOR_OTHERS_S
            ):
                self._caught_up_at_s = None
                logger.info("caught up; asking for a rebalance")
                self._ask("it has caught up with what it learns")

    def _measure(self) -> list[Step]:
        lags = {task: follower.lag for task, follower in self.followers.items()}
        known = {task: lag for task, lag in lags.items() if lag is not None}
        return self.holdings.measured(self._on_disk | known)

    def _join_again_in(self, after_ms: int) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if after_ms > 0:
            reason = "it looks again, since not all partitions are where they should be"
            self._again = self._loop.call_later(after_ms / 1000, self._ask, reason)

    def _ask(self, reason: str) -> None:
        self._reason = reason
        self._tasks.ask_for_rebalance()

    def _source_of(self, task: TaskId) -> TopicPartition:
        return TopicPartition(self._hops[task.hop].topic, task.partition)

    def _task_of(self, source: TopicPartition) -> TaskId:
        topics = [hop.topic for hop in self._hops]
        return TaskId(topics.index(source.topic), source.partition)


def _grown(topic: str, had: int, has: int) -> str:
    """Keys are in other partitions now than those that remember them."""
    return (
        f"`{topic}` had {had} partitions when this instance began, and has {has} now: keys come in"
        " other partitions than those that know them; stop all instances, and begin anew with"
        " `headrace reset`, or bring the source to a new topic"
    )


def _endpoint(settings: Settings) -> Endpoint | None:
    """Where this instance answers, if others can know it."""
    if not settings.http_port:
        return None
    return Endpoint(settings.http_host, settings.http_port)


def _names(sources: Iterable[TopicPartition]) -> list[str]:
    return [f"{source.topic}/{source.partition}" for source in sources]


def _log(share: Share) -> None:
    logger.info(
        "the group has shared out its partitions",
        runs=len(share.active),
        learns=len(share.learners),
        stands_by=len(share.standbys),
        promoted=len(share.promoted),
    )
