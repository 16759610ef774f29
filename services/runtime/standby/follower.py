"""A copy of a task's state, kept up from its changelog while somebody else runs the task.

A learner follows until it has caught up and gets the task, a standby in case its owner dies. When
the task comes here, the open database is handed over to it, so nothing is opened twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from headrace.contracts.errors import StateCorrupt
from headrace.contracts.hops import Hop
from headrace.contracts.record import Record
from headrace.contracts.topics import TOMBSTONES_KEPT_MS
from headrace.services.observe.logs import logger as logger_of
from headrace.services.runtime.changelog.restorer import BeginsLaterError
from headrace.services.runtime.task.work import Work
from headrace.services.runtime.unawaited import report_failure
from headrace.services.state.partition import PartitionState

_RETRY_S = 1.0
_SAY_EVERY_S = 600.0
_CUT_OFF_MS = TOMBSTONES_KEPT_MS * 3 // 4
"""A copy that lacks so much time is made anew, though it is open and could be followed."""
logger = logger_of(__name__)


class KeptUp:
    """Until when a copy has all that there was: it is trusted for so long after that time alone."""

    def __init__(self) -> None:
        """Begin without a known end."""
        self._end: int | None = None
        self._end_at_ms = 0

    def until_ms(self, reached: int, end: int, told_at_ms: int) -> int | None:
        """A time at which its changelog ended where the copy is by now; None before it is there.

        Compared with the end of this moment, a copy of a busy partition would never be kept up.
        """
        if reached >= end:
            self._end = None
            return told_at_ms
        if self._end is None:
            self._end, self._end_at_ms = end, told_at_ms
        if reached < self._end:
            return None
        self._end = None
        return self._end_at_ms


class Follower:
    """One copy; `start` it, and then `stop` it or `hand_over`."""

    def __init__(
        self, work: Work, hop: Hop, partition: int, fail: Callable[[BaseException], None]
    ) -> None:
        """Open nothing before `start`; `fail` hears what ends the worker."""
        self._work = work
        self._table = work.tables[hop.name]
        self._partition = partition
        self._changelog = TopicPartition(hop.changelog.name, partition)
        self._fail = fail
        self._state: PartitionState | None = None
        self._running: asyncio.Task[None] | None = None
        self._has_rebuilt = False
        self._said_at_s = time.monotonic()
        self._said_lag_at_s = time.monotonic()
        self._kept_up = KeptUp()
        self._had_all_at_ms = 0
        """When it had all of its changelog, as brokers have told."""
        self._where = {"topic": hop.topic, "partition": partition}

    @property
    def lag(self) -> int | None:
        """How many changelog records it lacks, about; None while nobody knows."""
        return self._work.restorer.lag(self._changelog)

    def start(self) -> None:
        """Begin to follow."""
        name = f"following {self._changelog.topic}/{self._partition}"
        self._running = asyncio.create_task(self._run(), name=name)
        self._running.add_done_callback(partial(report_failure, self._fail))

    async def stop(self) -> None:
        """Follow no more, and close the copy."""
        await self._halt()
        if self._state is not None:
            state, self._state = self._state, None
            try:
                if self._had_all_at_ms > state.kept_up_ms:
                    state.keep_up(self._had_all_at_ms)
            finally:
                await self._table.close(self._partition)

    async def hand_over(self) -> None:
        """Follow no more, and leave the copy open for the task that opens it next.

        A copy that was cut off is closed, since its age is checked when it is opened.
        """
        await self._halt()
        if self._state is not None:
            self._state = None
            if self._was_cut_off():
                await self._table.close(self._partition)
            else:
                self._table.park(self._partition)

    async def _halt(self) -> None:
        assert self._running is not None
        told = self._work.restorer.told(self._changelog)
        self._running.cancel()
        # Its end hands the changelog's records to nobody any more.
        await asyncio.wait([self._running])
        self._hear(told)

    async def _run(self) -> None:
        while True:
            state = await self._opened()
            self._state, self._had_all_at_ms = state, state.kept_up_ms
            try:
                await self._follow(state)
            except StateCorrupt as damage:
                if self._has_rebuilt:
                    raise
                self._has_rebuilt = True
                logger.warning("a copy is rebuilt", **self._where, why=str(damage))
                self._state = None
                await self._table.close(self._partition)
                await self._table.discard(self._partition)

    async def _opened(self) -> PartitionState:
        while True:
            try:
                identities = await self._work.identities.now()
            except KafkaError as problem:
                logger.warning("a copy is not opened", **self._where, why=repr(problem))
                await asyncio.sleep(_RETRY_S)
            else:
                changelog_id = identities[self._changelog.topic].id
                return await self._table.open(self._partition, self._work.now_ms(), changelog_id)

    async def _follow(self, state: PartitionState) -> None:
        while True:
            restoration = state.restoration()

            def take(records: list[Record], counts_before: int) -> int:
                self._say_how_far_it_is(state)
                # Called only while this is followed.
                return restoration.take(records, counts_before)  # noqa: B023

            try:
                await self._work.restorer.follow(self._changelog, state.changelog_position, take)
            except BeginsLaterError as changelog:
                state.begin_at(changelog.first)
                self._had_all_at_ms = state.kept_up_ms
            except KafkaError as problem:
                logger.warning("a copy is not kept up", **self._where, why=repr(problem))
                await asyncio.sleep(_RETRY_S)

    def _hear(self, told: tuple[int, int, int] | None) -> None:
        until_ms = None if told is None else self._kept_up.until_ms(*told)
        # A clock that was ahead for a while would hide for as long that this is cut off.
        known_ms = max(self._had_all_at_ms, until_ms or 0)
        self._had_all_at_ms = min(known_ms, self._work.now_ms())

    def _was_cut_off(self) -> bool:
        """Whether it did not hear of its changelog for so long that deletions may be lost there."""
        return self._work.now_ms() - self._had_all_at_ms > _CUT_OFF_MS

    def _say_how_far_it_is(self, state: PartitionState) -> None:
        """So that it is trusted for what it has, however long nobody runs the task here."""
        self._hear(self._work.restorer.told(self._changelog))
        if self._was_cut_off():
            self._has_rebuilt = False
            message = "it was cut off for so long that its changelog may have lost deletions"
            raise StateCorrupt(message)
        now_s = time.monotonic()
        if now_s - self._said_at_s <= _SAY_EVERY_S:
            return
        if self._had_all_at_ms > state.kept_up_ms:
            self._said_at_s = now_s
            # All of its changelog is here, so a later damage is another one.
            self._has_rebuilt = False
            state.keep_up(self._had_all_at_ms)
        elif now_s - self._said_lag_at_s > _SAY_EVERY_S:
            self._said_lag_at_s = now_s
            logger.warning("a copy lags behind", **self._where, lag=self.lag)
