"""A task: one partition of one hop, from the first restored row to the last commit.

    open      state from disk -> changelog read -> earlier owners fenced -> its tail read
    run       records -> timestamps -> operators -> outbox, commit by commit
    commit    operators save -> cleaned records acknowledged -> changelog, progress, offsets
              -> transaction -> one write batch
    close     what is under way is committed, or discarded whole

One coroutine does all of it, so nothing here needs a lock. State on disk is never ahead of what is
committed; whatever goes wrong between two commits, the task is thrown away and opened again.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from itertools import count
from typing import Any, NamedTuple

from aiokafka.errors import IllegalOperation, KafkaError
from aiokafka.structs import TopicPartition

from contracts.errors import BufferFull, RecordTooLarge, StateCorrupt
from contracts.hops import Hop
from contracts.pipeline import Source
from contracts.record import Record, offset_of
from services.intake.timestamps import Timestamps
from services.observe.logs import logger as logger_of
from services.observe.snapshot import TaskState
from services.operators.chain import Chain
from services.operators.operator import Aside, Step
from services.operators.progress import progress_ms
from services.runtime.ahead import Ahead, BatchFailedError, StopAtError, blaming, full
from services.runtime.exits import Exits, Reached
from services.runtime.outbox import Outbox
from services.runtime.pace import Pace
from services.runtime.restorer import BeginsLaterError
from services.runtime.tally import Tally
from services.runtime.work import Work
from services.state.changelog import rewrite
from services.state.partition import PartitionState
from services.state.purging import Purging
from services.state.stamps import carry_over, check_stamp, stamp_of

_LOOK_AGAIN_S = 1.0
_STAND_BACK_S = 1.0, 60.0
"""How long a partition rests that nobody can say why it failed: at first, and at most."""
_leases = count(1)
logger = logger_of(__name__)


class Fetched(NamedTuple):
    """What the source's consumer brought for a task, and how to say that it is committed."""

    records: list[Record]
    size_bytes: int
    acknowledge: Callable[[], Any]


class _GoneError(Exception):
    """The source has lost the records that were to come next; the task is opened again."""


class Task:
    """One partition of one hop; `run` it once."""

    def __init__(self, work: Work, hop: Hop, partition: int) -> None:
        """Nothing is opened before `run`."""
        self.hop = hop
        self.partition = partition
        self.source = TopicPartition(hop.topic, partition)
        self._changelog = TopicPartition(hop.changelog.name, partition)
        self.state: TaskState = "restoring"
        self.lease = 0
        """Whose records are taken: those fetched since the task last began to read."""
        self.waiting = 0
        """Records that were brought and not taken yet."""
        self.waiting_bytes = 0
        """Of their keys and values; a batch counts until all of it is taken."""
        self.position = 0
        """The next source offset."""
        self.committed: int | None = None
        self.uncommitted_records = 0
        self.progress_ms: int | None = None
        """As of the last commit."""
        self.chain: Chain | None = None
        self.timestamps: Timestamps | None = None
        self.tally = Tally()
        self._work = work
        self._inbox: deque[Fetched] = deque()
        self._arrived = asyncio.Event()
        self._uncommitted: list[Fetched] = []
        self._pace = Pace(work.settings, hop)
        self._ahead = Ahead()
        self._rest_s = _STAND_BACK_S[0]
        self._is_closing = False
        self._has_rebuilt = False
        self._where = {"topic": hop.topic, "partition": partition}
        self._partition_state: PartitionState
        self._outbox: Outbox
        self._exits: Exits
        self._purging: Purging

    def offer(self, fetched: Fetched) -> None:
        """Records for this task, in order."""
        self._inbox.append(fetched)
        self._arrived.set()

    def close(self) -> None:
        """Commit what was processed, and end; `run` returns soon."""
        self._is_closing = True
        self._arrived.set()

    async def run(self) -> None:
        """Live until closed; an error leaves nothing half done."""
        while not self._is_closing:
            try:
                async with AsyncExitStack() as opened:
                    opened.callback(self._forget)
                    await self._open(opened)
                    await self._live()
            except StopAtError as stop:
                self._ahead.stop = stop
            except BatchFailedError as failed:
                await self._take_care(failed)
            except _GoneError:
                # Where it begins again, it says what is lost.
                logger.warning("records that come next are not there any more", **self._where)
            except StateCorrupt as damage:
                await self._discard(damage)
            except (KafkaError, IllegalOperation) as problem:
                self.tally.failed_commits += 1
                if self._is_closing:
                    logger.warning("not committed before it left", **self._where, why=repr(problem))
                elif not await self._work.recover(self, problem):
                    return

    async def _take_care(self, failed: BatchFailedError) -> None:
        """Find the record to blame, one by one; where none is, rest before all is tried again."""
        why = repr(failed.__cause__)
        if self._ahead.take_care(failed):
            logger.info("a batch failed, and is done record by record", **self._where, why=why)
            return
        logger.error(
            "processing fails, and no record is to blame; it is tried again",
            **self._where,
            offsets=str(failed),
            why=why,
            again_in_s=self._rest_s,
            exc_info=failed.__cause__,
        )
        await asyncio.sleep(self._rest_s)
        self._rest_s = min(2 * self._rest_s, _STAND_BACK_S[1])

    async def _discard(self, damage: StateCorrupt) -> None:
        """Rebuild a damaged database, once: if that is damaged too, its changelog is."""
        if self._has_rebuilt:
            raise damage
        self._has_rebuilt = True
        logger.warning("state is rebuilt", **self._where, why=str(damage))
        await self._work.tables[self.hop.name].discard(self.partition)

    async def _open(self, opened: AsyncExitStack) -> None:
        work, hop = self._work, self.hop
        self.state = "restoring"
        table = work.tables[hop.name]
        state = self._partition_state = await table.open(self.partition, work.now_ms())
        opened.push_async_callback(table.close, self.partition)
        if state.rebuilt_because is not None:
            logger.warning("state is rebuilt", **self._where, why=state.rebuilt_because)
        left_open = [] if state.is_followed else await self._restore(is_last=False)
        outbox = self._outbox = work.outbox(hop, self.partition)
        opened.push_async_callback(outbox.stop)
        await outbox.start()
        for place in await outbox.abort_unfinished(work.written_topics):
            logger.warning("an outage left a transaction open; aborted", where=str(place))
        left_open += await self._restore(is_last=True)
        state.check_whole(f"{hop.changelog.name}/{self.partition}")
        stamp = stamp_of(work.spec, hop)
        for change in check_stamp(state, stamp):
            logger.info("the pipeline was changed", **self._where, change=change)
        carry_over(state, stamp)
        state.stamp_with(stamp)
        rewrite(state.overlay, left_open)
        chain = self.chain = Chain(
            hop.operators,
            state.overlay.view,
            explain=work.settings.decisions,
            row_bytes_max=work.limits.row_bytes(hop.changelog.name),
        )
        self._purging = Purging(
            state.overlay, hop.operators, chain.operators, state.changelog_position
        )
        self._exits = Exits(work.spec, hop, self.partition, outbox, work.failures)
        self.timestamps = Timestamps(work.spec.source if hop.is_first else Source(topic=hop.topic))
        self.position = await work.start_position(self.source, state.position)
        self._committed_position = self.position
        opened.push_async_callback(work.stop_reading, self.source)
        chain.lateness.time_ms = state.time_ms
        self.state = "running"
        self.tally.restored()
        self.lease = next(_leases)
        logger.info(
            "running", **self._where, position=self.position, restored=self.tally.restored_records
        )
        await work.begin_reading(self.source, self.position, self.lease)

    def _forget(self) -> None:
        """Nothing that was brought and not committed counts; it is read again."""
        self.state = "closing"
        self.lease = 0
        self._work.retire(self)
        self.chain = self.timestamps = self.progress_ms = None
        self.tally = Tally()
        self._inbox.clear()
        self._uncommitted.clear()
        self.waiting = self.waiting_bytes = 0
        self._pace.given_up(self.uncommitted_records)
        self.uncommitted_records = 0

    async def _restore(self, *, is_last: bool) -> list[bytes]:
        """Read the changelog to its end; keys whose newest record never counted.

        Most is read while an earlier owner may still write; the rest when it is fenced.
        """
        state, restorer = self._partition_state, self._work.restorer
        while True:
            restoration = state.restoration()
            start = state.changelog_position
            try:
                await restorer.restore(self._changelog, start, restoration.take, is_last=is_last)
            except BeginsLaterError as changelog:
                state.begin_at(changelog.first)
                logger.info(
                    "restored from where its changelog begins", **self._where, why=str(changelog)
                )
            else:
                self.tally.restored_records += restoration.restored
                return restoration.left_open()

    async def _live(self) -> None:
        while not self._is_closing:
            fetched = await self._next()
            if fetched is not None:
                await self._take(fetched)
            elif not self._outbox.is_open and self._is_idle():
                await self._release_idle()
            if self._is_due():
                await self._commit()
        if self._outbox.is_open:
            await self._commit()

    async def _next(self) -> Fetched | None:
        """What was brought next; None when it is time to commit or to look at the clock."""
        if not self._inbox:
            self._arrived.clear()
            if not self._is_closing:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._patience_s()):
                        await self._arrived.wait()
        if not self._inbox or self._is_closing:
            return None
        return self._inbox.popleft()

    def _patience_s(self) -> float | None:
        if self._outbox.is_open:
            return self._pace.due_in_s(records_wait=bool(self.waiting))
        return self._pace.idle_s and min(self._pace.idle_s, _LOOK_AGAIN_S)

    def _is_due(self) -> bool:
        if not self._outbox.is_open:
            return False
        # Whoever waited for a hand-over need not wait for a commit interval on top.
        is_handed_over = self._partition_state.is_followed and not self.tally.commits
        return is_handed_over or self._pace.is_due(
            records=self.uncommitted_records,
            sent_bytes=self._outbox.bytes_sent,
            records_wait=bool(self.waiting),
        )

    async def _take(self, fetched: Fetched) -> None:
        records = fetched.records
        if not records:
            if self._outbox.is_open:
                await self._commit()
            raise _GoneError
        if offset_of(records[0]) < self.position:
            known = sum(offset_of(record) < self.position for record in records)
            self.tally.guarded_records += known
            logger.warning("records turned away: state has them", **self._where, records=known)
            records = records[known:]
            self.waiting -= known
            self._work.taken(self)
        for part in self._ahead.parts(records, self._pace.records_at_once):
            if part.carefully and self._outbox.is_open:
                # What one record changes is told from what is committed, which is then little.
                await self._commit()
            await self._process(part.records, carefully=part.carefully)
            self.waiting -= len(part.records)
            self._work.taken(self)
            if part.carefully or self._is_due():
                await self._commit()
            else:
                await asyncio.sleep(0)
        self.tally.took_batch(fetched.size_bytes)
        self.waiting_bytes -= fetched.size_bytes
        self._work.taken(self)
        self._pace.heard()
        # What acknowledges them would keep them all until the commit.
        fetched.records.clear()
        self._uncommitted.append(fetched)

    async def _process(self, records: list[Record], *, carefully: bool) -> None:
        stop = self._ahead.stop
        records = self._ahead.before_stop(records)
        if records:
            await self._begin()
            began_at = time.monotonic()
            step, dead = self._decide(records, carefully=carefully)
            self._pace.processed(len(records), began_at)
            if step.failure is not None:
                raise full(step.failure, records)
            # In one step with the operators' counts, so that nobody who looks sees them apart.
            self.uncommitted_records += len(records)
            self.tally.took(len(records))
            self.position = offset_of(records[-1]) + 1
            await self._exits.send(step, dead, records)
        if stop is not None and (not records or self.position >= stop.offset):
            if self._outbox.is_open:
                await self._commit()
            raise stop.error

    def _decide(self, records: list[Record], *, carefully: bool) -> tuple[Step, list[Aside]]:
        """What becomes of records, and those that are dead at the door."""
        assert self.timestamps is not None
        assert self.chain is not None
        batch, dead = self.timestamps.take(records, self._work.now_ms())
        with blaming(range(offset_of(records[0]), offset_of(records[-1]) + 1)):
            return self.chain.process(batch, carefully=carefully), dead

    async def _begin(self) -> None:
        if not self._outbox.is_open:
            await self._outbox.begin()
            self._pace.opened()

    def _is_idle(self) -> bool:
        quiet_until_s = self._pace.quiet_until_s()
        if quiet_until_s is None or self.waiting or time.monotonic() < quiet_until_s:
            return False
        return self._work.was_at_end(self.source, quiet_until_s)

    async def _release_idle(self) -> None:
        self._pace.heard()
        assert self.chain is not None
        with blaming(range(0)):
            step = self.chain.release_idle(carefully=self._ahead.is_careful_when_idle)
        if step is not None and step.failure is not None:
            # Nothing is open, so everything before is committed, and all of this is discarded.
            raise BufferFull(step.failure.sentence)
        if step is not None:
            await self._begin()
            await self._exits.send(step, [], [])

    async def _commit(self) -> None:
        self._pace.commit_begins()
        work, state, outbox, chain = self._work, self._partition_state, self._outbox, self.chain
        assert chain is not None
        with blaming(range(self._committed_position, self.position)):
            chain.save()
        await work.tell_offset(outbox, self.source, self.position)
        cleaned_offset = await self._exits.settle()
        state.reach(self.position, chain.lateness.time_ms, cleaned_offset)
        self._purging.before_commit(
            chain.lateness.time_ms, may_purge=not work.purges.is_waiting(self._changelog)
        )
        now_ms = work.now_ms()
        reached_ms = progress_ms(self.hop.operators, chain)
        reached = Reached(self.position, chain.lateness.time_ms, reached_ms, state.cleaned_offset)
        try:
            end = await self._exits.finish(state.overlay, reached, now_ms)
        except RecordTooLarge as row:
            raise BatchFailedError(range(self._committed_position, self.position)) from row
        await work.commit(outbox, self.source, self.position)
        state.commit(end, now_ms)
        outbox.closed()
        self._purging.after_commit(end)
        work.purges.let_go(self._changelog, self._purging.purged)
        if not self.hop.is_first:
            work.purges.let_go(self.source, self.position)
        for fetched in self._uncommitted:
            fetched.acknowledge()
        self._uncommitted.clear()
        took_s = self._pace.committed(self.uncommitted_records)
        self.tally.committed(self.uncommitted_records, took_s)
        self.committed = self._committed_position = self.position
        self.progress_ms = reached_ms
        self.uncommitted_records = 0
