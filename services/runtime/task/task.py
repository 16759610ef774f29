"""A task: one partition of one hop, from the first restored row to the last commit.

    open      state from disk -> changelog read -> earlier owners fenced -> its tail read
    run       records -> timestamps -> operators -> outbox, commit by commit
    commit    operators save -> cleaned records acknowledged -> changelog, progress -> offsets
              -> transaction -> one write batch
    close     what is under way is committed, or discarded whole

One coroutine does all of it, so nothing here needs a lock. State on disk is never ahead of what is
committed. The task is opened again after any failure between two commits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from itertools import count

from aiokafka.structs import TopicPartition

from headrace.contracts.errors import BufferFull, RecordTooLarge, SchemaAwaited, StateCorrupt
from headrace.contracts.hops import Hop
from headrace.contracts.origin import AWAKE
from headrace.contracts.record import NO_TIME_MS, Record, offset_of, size_bytes
from headrace.services.intake.timestamps import Timestamps
from headrace.services.observe.logs import logger as logger_of
from headrace.services.observe.snapshot import TaskState
from headrace.services.operators.chain import Chain
from headrace.services.operators.operator import Aside, Step
from headrace.services.runtime.input.ahead import Ahead, BatchFailedError, StopAtError, blaming
from headrace.services.runtime.input.inbox import Fetched, GoneError, Inbox
from headrace.services.runtime.machine.budget import weight
from headrace.services.runtime.output.exits import Exits, Reached
from headrace.services.runtime.output.failures import full
from headrace.services.runtime.output.outbox import Outbox
from headrace.services.runtime.output.spread import Spread
from headrace.services.runtime.task.pace import RECORDS_MAX, Pace
from headrace.services.runtime.task.succession import Succession
from headrace.services.runtime.task.tally import FAILED, Tally
from headrace.services.runtime.task.trouble import Trouble
from headrace.services.runtime.task.work import Work
from headrace.services.runtime.time.clock import Clock
from headrace.services.runtime.time.silence import Silence
from headrace.services.runtime.time.together import Together
from headrace.services.state.changelog import rewrite
from headrace.services.state.partition import PartitionState
from headrace.services.state.purging import Purging
from headrace.services.state.stamps import carry_over, check_stamp, layout_of, stamp_of

_LOOK_AGAIN_S = 1.0
_leases = count(1)
logger = logger_of(__name__)


class Task:
    """One partition of one hop; `run` it once."""

    def __init__(self, work: Work, hop: Hop, partition: int) -> None:
        """Open nothing before `run`."""
        self.hop = hop
        self.partition = partition
        self.source = TopicPartition(hop.topic, partition)
        self._changelog = TopicPartition(hop.changelog.name, partition)
        self.state: TaskState = "restoring"
        self.lease = 0
        """The task takes records of this lease alone: fetched since it last began to read."""
        self.together = Together(work.skew, hop, partition)
        self.inbox = Inbox(self.together.wake)
        self.position = 0
        """The next source offset."""
        self.committed: int | None = None
        self.uncommitted_records = self._open_bytes = 0
        self.progress_ms: int | None = None
        """As of the last commit."""
        self.chain: Chain | None = None
        self.timestamps: Timestamps | None = None
        self.tally = Tally()
        self._work = work
        self.pace = Pace(work.settings, hop, work.load)
        self._ahead = Ahead()
        self._trouble = Trouble(work, hop, partition, self._ahead, lambda: self._is_closing)
        self._silence = Silence(work.spec, hop, partial(work.was_at_end, self))
        self._clock = Clock(work.spec, partial(work.surveyed, self.source))
        self._is_closing = False
        self._where = {"topic": hop.topic, "partition": partition}
        self._partition_state: PartitionState
        self._outbox: Outbox
        self._exits: Exits
        self._purging: Purging

    def close(self) -> None:
        """Commit what was processed, and end; `run` returns soon."""
        self._is_closing = True
        self.inbox.wake()

    async def run(self) -> None:
        """Live until closed; an error leaves nothing half done."""
        while not self._is_closing:
            try:
                async with AsyncExitStack() as opened:
                    opened.push(self._forget)
                    await self._open(opened)
                    await self._live()
            except StopAtError as stop:
                self._ahead.stop = stop
            except (BatchFailedError, SchemaAwaited) as failed:
                await self._trouble.take_care(failed)
            except GoneError:
                # Where it begins again, it says what is lost.
                logger.warning("records that come next are not there any more", **self._where)
            except StateCorrupt as damage:
                await self._trouble.discard(damage)
            except FAILED as failed:
                if self._is_closing:
                    logger.warning("not committed before it left", **self._where, why=repr(failed))
                elif not await self._work.recover(self, failed):
                    return

    async def _open(self, opened: AsyncExitStack) -> None:
        work, hop = self._work, self.hop
        self.state = "restoring"
        self.tally.opened()
        table = work.tables[hop.name]
        topics = await work.identities.now()
        state = await table.open(self.partition, work.now_ms(), topics[hop.changelog.name].id)
        self._partition_state = state
        opened.push_async_callback(table.close, self.partition)
        succession = Succession(work, hop, self.partition, state, self.tally)
        await succession.begin()
        way = work.ways.way(hop, self.partition, self.inbox.wake)
        outbox = self._outbox = Outbox(way, work.limits)
        opened.push_async_callback(outbox.stop)
        await outbox.start()
        await succession.take_over()
        state.check_whole(f"{hop.changelog.name}/{self.partition}")
        await work.check_cleaned(hop, self.partition, state)
        spread_over = None if hop.end is None else topics[hop.end.topic.name].partitions
        stamp = stamp_of(work.spec, hop, *topics[hop.topic], spread_over)
        for change in check_stamp(state, stamp):
            logger.info("the pipeline was changed", **self._where, change=change)
        work.goes_on_with(hop, self.partition, topics)
        carry_over(state, stamp)
        rewrite(state.overlay, succession.left_open)
        chain = self.chain = work.chain(hop, state)
        state.stamp_with(stamp._replace(layout=layout_of(chain.operators)))
        self._purging = Purging(
            state.overlay, hop.operators, chain.operators, state.changelog_position
        )
        spread = Spread(hop, self.partition, chain, work, spread_over) if spread_over else None
        self._exits = Exits(work.spec, hop, self.partition, outbox, work.failures, spread)
        self.tally.unsent = self._exits.unsent
        self.timestamps = work.timestamps(hop)
        start = await work.start_position(self.source, state.position, self._changelog)
        self.position = self._committed_position = start.position
        self._ahead.silent_until = self._exits.silent_until = start.silent_until
        opened.push_async_callback(work.stop_reading, self.source)
        chain.lateness.time_ms = state.time_ms
        self.state = "running"
        self.tally.restored()
        self.lease = next(_leases)
        self._silence.begins(is_empty=state.time_ms == NO_TIME_MS)
        opened.callback(self.together.leave)
        await self._say_whose_it_is(way.name)
        logger.info(
            "running", **self._where, position=self.position, restored=self.tally.restored_records
        )
        self.together.moved(chain, AWAKE)
        await work.begin_reading(self.source, self.position, self.lease)

    async def _say_whose_it_is(self, name: str | None) -> None:
        """Commit what is open, and under which name we write; None once we do no more."""
        self._partition_state.name_producer(name)
        if self._outbox.is_transactional:
            await self._begin()
        await self._commit_if_open()

    def _forget(self, _: object, problem: BaseException | None, __: object) -> None:
        """Forget the records that were brought and not committed; they are read again."""
        self.state = "closing"
        self.lease = 0
        self.tally.ended(problem)
        self._work.retire(self)
        self.chain = self.timestamps = self.progress_ms = None
        self.tally = Tally()
        self.inbox.clear()
        self.pace.given_up(self.uncommitted_records)
        self.uncommitted_records = self._open_bytes = 0

    async def _live(self) -> None:
        while not self._is_closing:
            fetched = await self._next()
            if fetched is not None:
                await self._take(fetched)
            elif not self._outbox.is_open:
                await self._look_at_the_clock()
            if self._is_due():
                await self._commit()
        await self._say_whose_it_is(None)
        await self._outbox.settled()

    async def _next(self) -> Fetched | None:
        """Return the next records; None when it is time to commit or to look at the clock."""
        if not self._is_closing:
            await self.inbox.wait(self._patience_s())
        if self._work.may_wait(self):
            await self._begin()
            self._outbox.announce_as_last()
            if not (self._is_closing or self._is_due()):
                due_in_s = self.pace.due_in_s(records_wait=False)
                await self.inbox.wait_for_more(self.pace.few(), min(due_in_s, _LOOK_AGAIN_S))
        return None if self._is_closing else self.inbox.take(RECORDS_MAX)

    def _patience_s(self) -> float | None:
        if self._outbox.is_open:
            return self.pace.due_in_s(records_wait=self._work.is_behind(self))
        is_told = self._exits.source_state != AWAKE and not self._clock.is_trusted
        if is_told and self.pace.idle_s is None:
            return None
        return min(self.pace.idle_s or _LOOK_AGAIN_S, _LOOK_AGAIN_S)

    def _is_due(self) -> bool:
        # After a hand-over nobody waits for an interval; exactly once the first commit is a name.
        is_new = self.tally.commits <= self._outbox.is_transactional
        return self._outbox.is_open and (
            (is_new and self._partition_state.is_followed)
            or self._open_bytes >= self._work.shares.open_bytes
            or self._outbox.is_awaited
            or self.pace.is_due(
                records=self.uncommitted_records,
                sent_bytes=self._outbox.bytes_sent,
                records_wait=self._work.is_behind(self),
            )
        )

    async def _take(self, fetched: Fetched) -> None:
        records = fetched.records
        if not records:
            await self._commit_if_open()
            raise GoneError
        if offset_of(records[0]) < self.position:
            records = self._turn_away(records)
        if self._outbox.is_open and self._work.registry.lacks(records):
            await self._commit()
        await self._trouble.learn(records)
        for part in self._ahead.parts(records, self.pace.records_at_once):
            if part.carefully:
                # A record's change shows against what is committed, so the commit leaves little.
                await self._commit_if_open()
            self.together.takes()
            if not await self._has_its_turn(self.together.gives_way):
                return
            for piece in self.together.pieces(part.records):
                if not await self._has_its_turn(self.together.is_ahead):
                    return
                await self._process(piece, carefully=part.carefully)
                self.inbox.records -= len(piece)
                self._work.taken(self)
                if part.carefully or self._is_due():
                    await self._commit()
                else:
                    await asyncio.sleep(0)
        self.together.has_taken()
        self.tally.took_batch(fetched.size_bytes)
        self.inbox.took(fetched)
        self._work.taken(self)
        self.pace.heard()
        self._silence.heard()

    def _turn_away(self, records: list[Record]) -> list[Record]:
        """Take those that state has; the others are left."""
        known = sum(offset_of(record) < self.position for record in records)
        self.tally.guarded_records += known
        logger.warning("records turned away: state has them", **self._where, records=known)
        if self.chain is not None and self.chain.lanes is not None:
            self.chain.lanes.skip(records[:known])
        self.inbox.records -= known
        self._work.taken(self)
        return records[known:]

    async def _has_its_turn(self, is_ahead: Callable[[], bool]) -> bool:
        """Wait until others are as far; False where it is to close meanwhile."""
        while is_ahead() and not self._is_closing:
            if not self._outbox.is_open and self._exits.owes(self.together):
                await self._begin()
            if self._is_due():
                await self._commit()
            await self.together.wait(self._patience_s() or _LOOK_AGAIN_S)
        return not self._is_closing

    async def _process(self, records: list[Record], *, carefully: bool) -> None:
        stop = self._ahead.stop
        records = self._ahead.before_stop(records)
        if records:
            await self._begin()
            began_at = time.monotonic()
            step, dead = self._decide(records, carefully=carefully)
            self.pace.processed(len(records), began_at)
            if step.failure is not None:
                raise full(step.failure, records)
            # In one step with the operators' counts, so that nobody who looks sees them apart.
            self.uncommitted_records += len(records)
            self._open_bytes += weight(len(records), size_bytes(records))
            self.tally.took(len(records), again=self.position < self._ahead.silent_until)
            self.position = offset_of(records[-1]) + 1
            await self._exits.send(step, dead, records)
            assert self.chain is not None
            self.together.moved(self.chain, self._exits.hears(self.chain.lanes))
        if stop is not None and (not records or self.position >= stop.offset):
            await self._commit_if_open()
            raise stop.error

    def _decide(self, records: list[Record], *, carefully: bool) -> tuple[Step, list[Aside]]:
        """Decide on records; return the step, and the records that are dead at the door."""
        assert self.chain is not None
        batch, dead = self._work.let_in(records, self.timestamps, self.source)
        if is_wary := self._ahead.is_wary and not carefully:
            self._save()
        with blaming(range(offset_of(records[0]), offset_of(records[-1]) + 1)):
            step = self.chain.process(batch, carefully=carefully, warily=is_wary)
        self.pace.hurries = is_wary and self._ahead.decided(step.dead)
        return step, dead

    def _save(self) -> None:
        assert self.chain is not None
        with blaming(range(self._committed_position, self.position)):
            self.chain.save()

    async def _begin(self) -> None:
        if not self._outbox.is_open:
            await self._outbox.begin()
            self.pace.opened()

    async def _look_at_the_clock(self) -> None:
        """Look whether anything is still waited for, when nothing came and nothing is open."""
        chain = self.chain
        assert chain is not None
        if self._work.is_idle(self):
            self.pace.heard()
            await self._let_go(chain.release_idle)
        reached_ms = None
        if not self.inbox.records and not self._outbox.is_open:
            reached_ms = self._clock.moves_to_ms(chain, self.position, self._exits.source_state)
        if reached_ms is not None:
            await self._begin()
            await self._let_go(partial(chain.advance, reached_ms))
            self.together.moved(chain, self._exits.source_state)
        state = AWAKE if self.inbox.records else self._silence.state(chain)
        if state != AWAKE and self._exits.source_state == AWAKE:
            self._exits.source_state = state
            self.together.moved(chain, state)
            await self._begin()
        elif self._exits.owes(self.together):
            await self._begin()

    async def _let_go(self, release: Callable[..., Step | None]) -> None:
        """Send what leaves, although no record brings it about."""
        with blaming(range(0)):
            step = release(carefully=self._ahead.is_careful_when_idle)
        if step is not None and step.failure is not None:
            # The step sent nothing yet, so all before it is committed, and the step is discarded.
            raise BufferFull(step.failure.sentence)
        if step is not None:
            await self._begin()
            await self._exits.send(step, [], [])

    async def _commit_if_open(self) -> None:
        if self._outbox.is_open:
            await self._commit()

    async def _commit(self) -> None:
        self.pace.commit_begins()
        work, state, outbox, chain = self._work, self._partition_state, self._outbox, self.chain
        assert chain is not None
        self._save()
        await self._exits.say(self.together)
        state.reach(self.position, chain.lateness.time_ms, await self._exits.settle())
        may_purge = not work.purges.is_waiting(self._changelog)
        self._purging.before_commit(chain.lateness.time_ms, may_purge=may_purge)
        now_ms = work.now_ms()
        reached = Reached.by(self.hop, chain, self.position, state.cleaned_offset)
        try:
            end = await self._exits.finish(state.overlay, reached, now_ms)
        except RecordTooLarge as row:
            raise BatchFailedError(range(self._committed_position, self.position)) from row
        await work.tell_offset(outbox, self.source, max(self.position, self._ahead.silent_until))
        await work.commit(outbox, self.source, self.position)
        state.commit(end, now_ms)
        outbox.closed()
        self._purging.after_commit(end)
        work.purges.let_go(self._changelog, self._purging.purged)
        if not self.hop.is_first:
            work.purges.let_go(self.source, self.position)
        records = self.uncommitted_records
        self.tally.committed(records, self.pace.committed(records))
        self.committed = self._committed_position = self.position
        self.progress_ms = reached.progress_ms
        self.uncommitted_records = self._open_bytes = 0
