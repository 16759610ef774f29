"""Faust, fed whole fetches: one message for all batches that came at once of one topic.

    aiokafka's fetcher -> BatchThread (consumer's thread) -> BatchConsumer (main loop)
      -> Faust's conductor and channel -> the hop's agent -> its tasks

With hundreds of partitions a fetch brings hundreds of batches of a record or two, and a message of
Faust's costs as much as many records do.

Every batch carries the lease under which its partition was being read. A task that was opened
again reads from an earlier offset; what is still on its way from before would leave a hole, and is
known by its old lease.

A partition comes paused, and is resumed when its task is ready: nothing is fetched that nobody
may process yet, which is the race that loses records in stock Faust. From then on it is paused, in
the same breath in which records are handed on, whenever enough of them wait, and resumed when they
are taken; so one slow partition holds up no other, and memory is bounded.

Offsets are committed by tasks, with what they stand for, and never by Faust.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, NamedTuple, TypeVar

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError, OffsetOutOfRangeError
from aiokafka.structs import OffsetAndMetadata, TopicPartition
from faust.events import Event
from faust.topics import Topic
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from faust.types.tuples import ConsumerMessage
from mode.threads import WorkerThread

from headrace.contracts.record import Record, offset_of, size_bytes
from headrace.services.kafka import seams
from headrace.services.kafka.coordinator import OURS, GroupConsumer
from headrace.services.kafka.member_offsets import Member
from headrace.services.runtime.input.survey import Surveyed

T = TypeVar("T")
POLL_S = 1.0
FEW_RECORDS = 1_000
_FETCH_WAIT_MS = 500
_ENOUGH_BYTES = 1 << 20
"""A broker that gathers records for a fetch sends so many at once."""


class BatchTopic(Topic):  # type: ignore[misc]
    """A topic whose events carry the records as they are."""

    def _compile_decode(self) -> Any:
        app = self.app

        async def decode(message: ConsumerMessage, *, propagate: bool = False) -> Event:  # noqa: ARG001
            return Event(app, None, message.value, message.headers, message)

        return decode


class Batch(NamedTuple):
    """Records of one partition, in order; none where it has lost those that were asked for."""

    partition: TopicPartition
    lease: int
    """Of the task for which the partition was being read."""
    records: list[Record]
    size_bytes: int
    """Of keys and values."""


class Bounds(NamedTuple):
    """Where a source partition begins and ends, and where the group is."""

    earliest: int
    end: int
    committed: int | None
    is_ours: bool
    """Whether a task committed it, with its state; not somebody who moved the group by hand."""


class _Thread(WorkerThread):  # type: ignore[misc]
    """Ends with the process: taking leave of a group may wait long for a broker that is silent."""

    def __init__(self, service: Any, **options: Any) -> None:
        super().__init__(service, **options)
        self.daemon = True


class BatchThread(driver.AIOKafkaConsumerThread):  # type: ignore[misc]
    """The consumer's thread."""

    mundane_level = "debug"
    Worker = _Thread

    def __post_init__(self) -> None:
        """Begin without readers."""
        super().__post_init__()
        self._leases: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._brought: dict[TopicPartition, int] = {}
        """Behind the last record that was handed on, by partition."""

    def _create_worker_consumer(self, _transport: Any) -> AIOKafkaConsumer:
        worker = self.app.worker
        return GroupConsumer(
            worker.rebalance,
            worker.main_loop,
            **worker.consumer_options(),
            group_id=self.app.conf.id,
            rebalance_timeout_ms=worker.rebalance_timeout_ms,
            enable_auto_commit=False,
            # A task says where it reads on; what is not there any more is its matter, too.
            auto_offset_reset="none",
            isolation_level="read_committed",
            max_partition_fetch_bytes=worker.work.shares.fetch_bytes,
            fetch_max_bytes=worker.work.budget.fetched_bytes(1),
            fetch_max_wait_ms=_FETCH_WAIT_MS,
        )

    async def _fetch_records(
        self, consumer: AIOKafkaConsumer, *_args: Any, **_options: Any
    ) -> list[Batch]:
        fetched: dict[TopicPartition, list[Record]]
        try:
            fetched = await consumer.getmany(timeout_ms=int(POLL_S * 1000))
        except OffsetOutOfRangeError as gone:
            return [
                Batch(partition, self._leases[partition], [], 0)
                for partition in gone.args[0]
                if partition in self._leases
            ]
        batches = []
        worker = self.app.worker
        for partition, records in fetched.items():
            lease = self._leases.get(partition)
            if lease is None:
                continue
            batch = Batch(partition, lease, records, size_bytes(records))
            batches.append(batch)
            self._brought[partition] = offset_of(records[-1]) + 1
            if worker.has_enough_with(batch):
                consumer.pause(partition)
                self._paused.add(partition)
        return batches

    async def _there(self, call: Coroutine[Any, Any, T]) -> T:
        """Run in the consumer's thread; Faust's queue of calls would let it wait behind a poll."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, self.thread_loop))

    async def seek_and_resume(self, partition: TopicPartition, offset: int, lease: int) -> None:
        """Begin to read a partition that was paused; its batches carry the lease from now on."""
        await self._there(self._seek_and_resume(partition, offset, lease))

    async def _seek_and_resume(self, partition: TopicPartition, offset: int, lease: int) -> None:
        consumer = self._ensure_consumer()
        if partition in consumer.assignment():
            self._leases[partition] = lease
            self._brought[partition] = offset
            consumer.seek(partition, offset)
            consumer.resume(partition)

    def resume(self, partition: TopicPartition) -> None:
        """Go on reading where too much waited; may be called from any thread."""
        if partition in self._paused:
            self.thread_loop.call_soon_threadsafe(self._resume, partition)

    def _resume(self, partition: TopicPartition) -> None:
        self._paused.discard(partition)
        consumer = self._ensure_consumer()
        if partition in consumer.assignment():
            consumer.resume(partition)

    def ask_for_rebalance(self) -> None:
        """Join the group again."""
        self.thread_loop.call_soon_threadsafe(
            seams.coordinator(self._ensure_consumer()).request_rejoin
        )

    def heartbeat_at_s(self) -> float | None:
        """When the group last answered, by a clock that only goes forward."""
        coordinator = None if self._consumer is None else seams.coordinator(self._consumer)
        at_s: float | None = None if coordinator is None else coordinator.heartbeat_at_s
        return at_s

    def member(self) -> Member | None:
        """Return the name under which the group knows us, as far as we have heard."""
        known_as: Member | None = seams.coordinator(self._ensure_consumer()).member
        return known_as

    def sends_until_s(self) -> float:
        """Until when we may send without a transaction, as far as the group has told us."""
        until_s: float = seams.coordinator(self._ensure_consumer()).term.ends_at_s
        return until_s

    async def is_counted(self) -> bool:
        """Whether the group, asked now, counts us as a member."""
        return await self._there(seams.coordinator(self._ensure_consumer()).is_counted())

    def share(self, fetch_bytes: int, in_all_bytes: int) -> None:
        """Fetch so much of each partition at once from now on, and of all of them."""
        seams.set_fetch_bytes(self._ensure_consumer(), fetch_bytes, in_all_bytes)

    def gather(self, seconds: float) -> None:
        """Have brokers gather records for so long before they answer; not at all where it is 0."""
        gathers = (_ENOUGH_BYTES, int(seconds * 1000)) if seconds else (1, _FETCH_WAIT_MS)
        seams.set_fetch_wait(self._ensure_consumer(), *gathers)

    async def pause(self, partition: TopicPartition) -> None:
        """Stop reading a partition."""
        await self._there(self._pause(partition))

    async def _pause(self, partition: TopicPartition) -> None:
        consumer = self._ensure_consumer()
        self._leases.pop(partition, None)
        if partition in consumer.assignment():
            consumer.pause(partition)

    async def bounds(self, partition: TopicPartition) -> Bounds:
        """Where a partition begins and ends, and what the group committed."""
        return await self._there(self._bounds(partition))

    async def _bounds(self, partition: TopicPartition) -> Bounds:
        consumer = self._ensure_consumer()
        firsts, ends, committed = await asyncio.gather(
            consumer.beginning_offsets([partition]),
            consumer.end_offsets([partition]),
            seams.committed(consumer, partition),
        )
        earliest, end = firsts[partition], ends[partition]
        if committed is None:
            return Bounds(earliest, end, None, is_ours=False)
        return Bounds(earliest, end, committed.offset, committed.metadata == OURS)

    async def commit_offset(self, partition: TopicPartition, offset: int) -> None:
        """Commit an offset; refused where the partition is not ours any more."""
        await self._there(self._commit_offset(partition, OffsetAndMetadata(offset, OURS)))

    async def _commit_offset(self, partition: TopicPartition, found: OffsetAndMetadata) -> None:
        await self._ensure_consumer().commit({partition: found})

    async def survey(self) -> dict[TopicPartition, Surveyed]:
        """Every partition of ours that has a leader: where the consumer is, and where it ends."""
        return await self._there(self._survey())

    async def _survey(self) -> dict[TopicPartition, Surveyed]:
        consumer = self._ensure_consumer()
        # The others would wait for the leader of one, and count as behind or awake meanwhile.
        partitions, at_s = seams.led(consumer, consumer.assignment()), time.monotonic()
        at_ms = self.app.worker.work.now_ms()
        # A consumer knows both of its last fetch, and what stopped fetching hears of nothing new.
        stable = await consumer.end_offsets(partitions) if partitions else {}
        ends = await seams.ends_of_logs(consumer, partitions)
        found = {}
        for partition in partitions & consumer.assignment():
            if partition in self._leases:
                fetched = await consumer.position(partition)
                found[partition] = Surveyed(
                    fetched,
                    ends[partition],
                    stable[partition],
                    at_s,
                    self._brought[partition],
                    at_ms,
                )
        return found


class BatchConsumer(driver.Consumer):  # type: ignore[misc]
    """Faust's consumer, handing on the batches of a topic as one message."""

    mundane_level = "debug"

    def _new_consumer_thread(self) -> BatchThread:
        return BatchThread(self, loop=self.loop, beacon=self.beacon)

    @property
    def thread(self) -> BatchThread:
        """Where the real consumer lives."""
        thread: BatchThread = self._thread
        return thread

    def ack(self, message: ConsumerMessage) -> bool:
        """Do nothing else: a task commits what it was given."""
        message.acked = True
        return True

    async def commit(self, *_args: Any, **_options: Any) -> bool:
        """Offsets are committed by tasks."""
        return False

    async def _drain_messages(self, fetcher: Any) -> None:
        while not (self.should_stop or fetcher.should_stop):
            try:
                batches = await self.thread.getmany(None, POLL_S)
            except self.consumer_stopped_errors:
                return
            except KafkaError as problem:
                self.app.worker.fail(problem)
                return
            # Counted first: a task empties what it has taken.
            brought = sum(len(batch.records) for batch in batches)
            await self._hand_on(batches)
            self.thread.gather(self.app.worker.gathering_s())
            if brought < FEW_RECORDS:
                # No reader sees it before the next commit, and larger batches cost less.
                await asyncio.sleep(self.app.worker.breath_s())

    async def _hand_on(self, batches: list[Batch]) -> None:
        by_topic: dict[str, list[Batch]] = {}
        for batch in batches:
            if not batch.records:
                self.app.worker.offer(batch)
            elif self.app.worker.expect(batch):
                by_topic.setdefault(batch.partition.topic, []).append(batch)
        for together in by_topic.values():
            await self.callback(self._message(together))

    def _message(self, batches: list[Batch]) -> ConsumerMessage:
        """Make one message, which says that it is of the first batch's partition."""
        tp, last = TP(*batches[0].partition), batches[0].records[-1]
        return ConsumerMessage(
            tp.topic,
            tp.partition,
            last.offset,
            last.timestamp_ms / 1000,
            0,
            (),
            None,
            batches,
            None,
            tp=tp,
            generation_id=self.app.consumer_generation_id,
        )


class BatchTransport(driver.Transport):  # type: ignore[misc]
    """Faust's transport with our consumer."""

    Consumer = BatchConsumer
