"""Reads changelogs, in a thread of its own, with a consumer that belongs to no group.

A rebalance of the group does not touch it, and its work does not hold up the partitions that run.
A task that wants a changelog read gives a position and a function that takes records. This thread
calls the function, and never again once `restore` or `follow` has ended, whichever way it did.

Only what is committed is read, whichever guarantee there is now: with another one before, there may
be transactions that were aborted, and positions in them that nobody ever reached.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError, OffsetOutOfRangeError
from aiokafka.structs import TopicPartition

from headrace.contracts.errors import HeadraceError, StateCorrupt, StateTruncated
from headrace.contracts.record import Record
from headrace.services.kafka import seams
from headrace.services.observe.logs import logger as logger_of
from headrace.services.state.changelog import POSITION

Take = Callable[[list[Record], int], int]
"""Takes records, and the offset before which all of them count, whatever commit they belong to; how
many bytes then wait for the end of their commit."""
_POLL_MS = 50
_FETCH_BYTES = 4 << 20
_FETCH_BYTES_TOTAL = 16 << 20
_RECORDS_AT_ONCE = 10_000
_WAITING_BYTES_MAX = 4 << 20
_LOOK_BACK = 100
_LOOK_BACK_FURTHER = 10
_RETRY_S = 1.0
logger = logger_of(__name__)


class BeginsLaterError(Exception):
    """A changelog does not go back to where somebody wants to begin."""

    def __init__(self, first: int, start: int) -> None:
        """It begins at offset `first`, behind `start`."""
        super().__init__(f"it begins at offset {first}, and the state has reached {start}")
        self.first = first


@dataclass(slots=True)
class _Reading:
    """One changelog partition that is being read."""

    position: int
    end: int
    take: Take
    is_followed: bool = False
    """Whether to go on behind the end."""
    counts_before: int = 0
    """Before which offset everything counts, as far as anybody has looked."""
    told_at_ms: int | None = None
    """When a broker has last told the end, by the clock on the wall; of one that is followed."""
    waiting_bytes_max: int = _WAITING_BYTES_MAX
    """If more waits for the end of a commit, it is looked for."""
    done: Future[int] = field(default_factory=Future)


class Restorer:
    """The thread; `start` and `stop` it with the worker."""

    def __init__(self, client: Mapping[str, Any], fail: Callable[[BaseException], None]) -> None:
        """Read with these client options; `fail` hears, in the main loop, if the thread dies."""
        self._fail = fail
        self._main_loop = asyncio.get_running_loop()
        self._client = client
        self._readings: dict[TopicPartition, _Reading] = {}
        self._assigned: dict[TopicPartition, _Reading] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="restorer", daemon=True)
        self._consumer: Any = None
        self._changed = asyncio.Event()
        self._connected = asyncio.Event()
        self._serving: asyncio.Task[None]

    async def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    async def stop(self) -> None:
        """Stop reading, and end the thread."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end)
            await asyncio.to_thread(self._thread.join)

    async def restore(
        self, partition: TopicPartition, start: int, take: Take, *, is_last: bool
    ) -> int:
        """Hand every record from `start` to the end to `take`; the position behind the last.

        BeginsLaterError says that the changelog does not go back so far. Only when nobody writes
        any more it is known that the end may not lie before `start`: the broker answers a commit
        before its markers are written.
        """
        return await self._read_for(partition, _Reading(start, 0, take), is_last=is_last)

    async def follow(self, partition: TopicPartition, start: int, take: Take) -> None:
        """Hand every record from `start` on to `take`, until cancelled.

        Copies give way: while nobody waits for a changelog's end, this reads half of the time.
        """
        reading = _Reading(start, 0, take, is_followed=True)
        await self._read_for(partition, reading, is_last=False)

    async def ends(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Where changelogs end now."""
        asked = asyncio.run_coroutine_threadsafe(self._ends(partitions), self._loop)
        return await asyncio.wrap_future(asked)

    async def _ends(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        await self._connected.wait()
        ends: dict[TopicPartition, int] = await self._consumer.end_offsets(partitions)
        return ends

    async def ask(self, request: Any) -> Any:
        """Ask some broker; its answer."""
        asked = asyncio.run_coroutine_threadsafe(self._ask(request), self._loop)
        return await asyncio.wrap_future(asked)

    async def _ask(self, request: Any) -> Any:
        await self._connected.wait()
        return await seams.ask(self._consumer, request)

    async def end_of_log(self, partition: TopicPartition) -> int:
        """Where a partition ends, with what does not count."""
        asked = asyncio.run_coroutine_threadsafe(self._end_of_log(partition), self._loop)
        return await asyncio.wrap_future(asked)

    async def _end_of_log(self, partition: TopicPartition) -> int:
        # This question looks for the leader of a topic that is new here.
        await self._ends([partition])
        return await seams.end_of_log(self._consumer, partition)

    async def hides_something(self, partition: TopicPartition) -> bool:
        """Whether a transaction that is open keeps the end of a changelog from being read."""
        asked = asyncio.run_coroutine_threadsafe(self._hides_something(partition), self._loop)
        return await asyncio.wrap_future(asked)

    async def _hides_something(self, partition: TopicPartition) -> bool:
        end = (await self._ends([partition]))[partition]
        return end < await seams.end_of_log(self._consumer, partition)

    def told(self, partition: TopicPartition) -> tuple[int, int, int] | None:
        """How far a followed changelog is read, where it ends, and when a broker said so."""
        reading = self._readings.get(partition)
        if reading is None or reading.told_at_ms is None:
            return None
        return reading.position, reading.end, reading.told_at_ms

    def lag(self, partition: TopicPartition) -> int | None:
        """By how many records a copy is behind, about; None before anybody knows."""
        reading = self._readings.get(partition)
        return None if reading is None else max(0, reading.end - reading.position)

    async def _read_for(
        self, partition: TopicPartition, reading: _Reading, *, is_last: bool
    ) -> int:
        submitted = asyncio.run_coroutine_threadsafe(
            self._begin(partition, reading, is_last=is_last), self._loop
        )
        try:
            reading = await asyncio.wrap_future(submitted)
            return await asyncio.wrap_future(reading.done)
        finally:
            if not reading.done.done():
                await self._let_go(partition)

    async def _let_go(self, partition: TopicPartition) -> None:
        dropped = asyncio.run_coroutine_threadsafe(self._drop(partition), self._loop)
        await asyncio.shield(asyncio.wrap_future(dropped))

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._serving = self._loop.create_task(self._serve())
        try:
            # It stops in the middle of a wait, since a silent broker answers nothing.
            with suppress(asyncio.CancelledError):
                self._loop.run_until_complete(self._serving)
        except Exception as failure:  # noqa: BLE001 - handed to the worker, which ends
            self._main_loop.call_soon_threadsafe(self._fail, failure)
        finally:
            self._loop.close()

    def _end(self) -> None:
        self._serving.cancel()

    async def _begin(
        self, partition: TopicPartition, reading: _Reading, *, is_last: bool
    ) -> _Reading:
        # A task that is cancelled while it waits must not cancel what this thread is about to set.
        reading.done.set_running_or_notify_cancel()
        await self._connected.wait()
        consumer = self._consumer
        firsts, ends = await asyncio.gather(
            consumer.beginning_offsets([partition]), consumer.end_offsets([partition])
        )
        earliest, start = firsts[partition], reading.position
        end = reading.end = ends[partition]
        if start < earliest:
            raise BeginsLaterError(earliest, start)
        if start > end and is_last:
            raise _made_anew(partition, start, end)
        if start >= end and not reading.is_followed:
            reading.done.set_result(start)
        else:
            self._readings[partition] = reading
            self._changed.set()
        return reading

    async def _drop(self, partition: TopicPartition) -> None:
        if self._readings.pop(partition, None) is not None:
            self._changed.set()

    async def _serve(self) -> None:
        try:
            await self._connect()
            while True:
                if self._changed.is_set():
                    self._changed.clear()
                    self._assign()
                if self._assigned:
                    await self._read()
                else:
                    await self._changed.wait()
        finally:
            for partition, reading in list(self._readings.items()):
                self._finish(partition, reading, KafkaError("the restorer was stopped"))
            if self._consumer is not None:
                await seams.stop(self._consumer)

    async def _connect(self) -> None:
        while True:
            self._consumer = AIOKafkaConsumer(
                **self._client,
                enable_auto_commit=False,
                auto_offset_reset="none",
                isolation_level="read_committed",
                max_partition_fetch_bytes=_FETCH_BYTES,
                fetch_max_bytes=_FETCH_BYTES_TOTAL,
                fetch_max_wait_ms=_POLL_MS,
            )
            seams.ask_apart(self._consumer)
            try:
                await self._consumer.start()
            except KafkaError as problem:
                logger.warning("changelogs cannot be read yet", why=repr(problem))
                await seams.stop(self._consumer)
                await asyncio.sleep(_RETRY_S)
            else:
                self._connected.set()
                return

    def _assign(self) -> None:
        self._assigned = dict(self._readings)
        if not self._assigned:
            seams.read_nothing(self._consumer)
            return
        self._consumer.assign(list(self._assigned))
        for partition, reading in self._assigned.items():
            self._consumer.seek(partition, reading.position)

    async def _read(self) -> None:
        try:
            fetched = await self._consumer.getmany(
                timeout_ms=_POLL_MS, max_records=_RECORDS_AT_ONCE
            )
        except OffsetOutOfRangeError as gone:
            # The others have nothing to do with that.
            for partition, reading in list(self._readings.items()):
                if partition in gone.args[0]:
                    await self._give_up(partition, reading, gone)
            return
        except KafkaError as failure:
            for partition, reading in list(self._readings.items()):
                self._finish(partition, reading, failure)
            return
        began_at = time.monotonic()
        for partition, reading in self._assigned.items():
            if self._readings.get(partition) is reading:
                await self._hand_on(partition, reading, fetched.get(partition))
        if all(reading.is_followed for reading in self._readings.values()):
            await asyncio.sleep(time.monotonic() - began_at)

    async def _give_up(
        self, partition: TopicPartition, reading: _Reading, gone: KafkaError
    ) -> None:
        """End a reading: the changelog's beginning was purged meanwhile, or its end is lost."""
        failure: Exception = gone
        try:
            end = await seams.end_of_log(self._consumer, partition)
        except KafkaError as problem:
            failure = problem
        else:
            if reading.position > end:
                message = (
                    f"the changelog {partition.topic}/{partition.partition} has lost records: it"
                    f" ends at offset {end}, and was read up to {reading.position}"
                )
                failure = StateCorrupt(message)
        if self._readings.get(partition) is reading:
            self._finish(partition, reading, failure)

    async def _hand_on(
        self, partition: TopicPartition, reading: _Reading, records: list[Record] | None
    ) -> None:
        waiting_bytes = 0
        if records:
            try:
                waiting_bytes = reading.take(records, reading.counts_before)
            except HeadraceError as failure:
                self._finish(partition, reading, failure)
                return
        # Behind the last record may stand markers of transactions, which are no records.
        reading.position = await self._consumer.position(partition)
        if self._readings.get(partition) is not reading:
            return
        if reading.is_followed:
            reading.end = self._consumer.last_stable_offset(partition) or reading.end
            reading.told_at_ms = self._consumer.last_poll_timestamp(partition)
        elif reading.position >= reading.end:
            self._finish(partition, reading, None)
            return
        if waiting_bytes > reading.waiting_bytes_max and reading.position < reading.end:
            await self._look_ahead(partition, reading)

    async def _look_ahead(self, partition: TopicPartition, reading: _Reading) -> None:
        """Find where the last commit ends, before all that lies between would wait for it."""
        here = reading.position
        try:
            reading.counts_before = await last_end(self._consumer, partition, here, reading.end)
        except KafkaError as failure:
            if self._readings.get(partition) is reading:
                self._finish(partition, reading, failure)
            return
        if reading.counts_before <= here:
            # Then it is one commit, and somebody is still writing it, or never finished.
            reading.waiting_bytes_max *= 2
        self._consumer.seek(partition, here)

    def _finish(
        self, partition: TopicPartition, reading: _Reading, failure: Exception | None
    ) -> None:
        del self._readings[partition]
        self._changed.set()
        if failure is None:
            reading.done.set_result(reading.position)
        else:
            reading.done.set_exception(failure)


async def last_end(consumer: Any, partition: TopicPartition, start: int, end: int) -> int:
    """Behind the last record from `start` to `end` that ends a commit; `start` if there is none.

    It is looked for from the end of the changelog, where it stands but for what was torn. The
    consumer is left somewhere else.
    """
    back, upto = _LOOK_BACK, end
    while True:
        first = max(start, upto - back)
        found = await _last_end_in(consumer, partition, first, upto)
        if found is not None or first == start:
            return start if found is None else found
        back, upto = back * _LOOK_BACK_FURTHER, first


async def _last_end_in(
    consumer: Any, partition: TopicPartition, first: int, upto: int
) -> int | None:
    found: int | None = None
    consumer.seek(partition, first)
    while await consumer.position(partition) < upto:
        fetched = await consumer.getmany(
            partition, timeout_ms=_POLL_MS, max_records=_RECORDS_AT_ONCE
        )
        for record in fetched.get(partition, ()):
            if record.key == POSITION and record.offset < upto:
                found = record.offset + 1
    return found


def _made_anew(partition: TopicPartition, start: int, end: int) -> StateTruncated:
    return StateTruncated(
        f"the changelog {partition.topic}/{partition.partition} was truncated or made anew: it ends"
        f" at offset {end}, and the state was written up to {start}; bring the topic back, or begin"
        " anew with `headrace reset`"
    )
