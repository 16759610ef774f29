"""Reads changelogs, in a thread of its own, with a consumer that belongs to no group.

A rebalance of the group does not touch it, and its work does not hold up the partitions that run.
Whoever wants a changelog read gives a position and a function that takes records; the function is
called in this thread, and never again once `restore` or `follow` has ended, whichever way it did.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError, OffsetOutOfRangeError
from aiokafka.structs import TopicPartition

from contracts.errors import HeadraceError, StateTruncated
from contracts.record import Record
from services.observe.logs import logger as logger_of
from services.runtime import seams

Take = Callable[[list[Record]], None]
_POLL_MS = 50
_FETCH_BYTES = 4 << 20
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
    done: Future[int] = field(default_factory=Future)


class Restorer:
    """The thread; `start` and `stop` it with the worker."""

    def __init__(
        self, client: Mapping[str, Any], isolation_level: str, fail: Callable[[BaseException], None]
    ) -> None:
        """Read with these client options; `fail` hears, in the main loop, if the thread dies."""
        self._fail = fail
        self._main_loop = asyncio.get_running_loop()
        self._client = client
        self._isolation_level = isolation_level
        self._readings: dict[TopicPartition, _Reading] = {}
        self._assigned: dict[TopicPartition, _Reading] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="restorer", daemon=True)
        self._consumer: Any = None
        self._changed = asyncio.Event()
        self._connected = asyncio.Event()
        self._is_stopping = False

    async def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    async def stop(self) -> None:
        """Stop reading, and end the thread."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end)
            await asyncio.to_thread(self._thread.join)

    def remaining(self, partition: TopicPartition) -> int:
        """How many records are still to be read, about."""
        return self.lag(partition) or 0

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
            dropped = asyncio.run_coroutine_threadsafe(self._drop(partition), self._loop)
            await asyncio.shield(asyncio.wrap_future(dropped))

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except Exception as failure:  # noqa: BLE001 - handed to the worker, which ends
            self._main_loop.call_soon_threadsafe(self._fail, failure)
        finally:
            self._loop.close()

    def _end(self) -> None:
        self._is_stopping = True
        self._changed.set()

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
            while not self._is_stopping:
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
        while not self._is_stopping:
            self._consumer = AIOKafkaConsumer(
                **self._client,
                enable_auto_commit=False,
                auto_offset_reset="none",
                isolation_level=self._isolation_level,
                max_partition_fetch_bytes=_FETCH_BYTES,
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
            self._consumer.unsubscribe()
            return
        self._consumer.assign(list(self._assigned))
        for partition, reading in self._assigned.items():
            self._consumer.seek(partition, reading.position)

    async def _read(self) -> None:
        try:
            fetched = await self._consumer.getmany(timeout_ms=_POLL_MS)
        except OffsetOutOfRangeError as gone:
            # Its beginning was purged meanwhile; the others have nothing to do with that.
            for partition in self._readings.keys() & gone.args[0].keys():
                self._finish(partition, self._readings[partition], gone)
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

    async def _hand_on(
        self, partition: TopicPartition, reading: _Reading, records: list[Record] | None
    ) -> None:
        if records:
            try:
                reading.take(records)
            except HeadraceError as failure:
                self._finish(partition, reading, failure)
                return
        # Behind the last record may stand markers of transactions, which are no records.
        reading.position = await self._consumer.position(partition)
        if self._readings.get(partition) is not reading:
            return
        if reading.is_followed:
            reading.end = self._end_of(partition) or reading.end
        elif reading.position >= reading.end:
            self._finish(partition, reading, None)

    def _end_of(self, partition: TopicPartition) -> int | None:
        """As the last fetch had it."""
        if self._isolation_level == "read_committed":
            end: int | None = self._consumer.last_stable_offset(partition)
        else:
            end = self._consumer.highwater(partition)
        return end

    def _finish(
        self, partition: TopicPartition, reading: _Reading, failure: Exception | None
    ) -> None:
        del self._readings[partition]
        self._changed.set()
        if failure is None:
            reading.done.set_result(reading.position)
        else:
            reading.done.set_exception(failure)


def _made_anew(partition: TopicPartition, start: int, end: int) -> StateTruncated:
    return StateTruncated(
        f"the changelog {partition.topic}/{partition.partition} was truncated or made anew: it ends"
        f" at offset {end}, and the state was written up to {start}; bring the topic back, or begin"
        " anew with `headrace reset`"
    )
