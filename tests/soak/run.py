"""Run the soak: a broker, three instances, a load, a reader that accounts for everything."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from headrace.contracts.record import Record
from headrace.services.broker.embedded import EmbeddedBroker
from headrace.services.kafka.records import record_of
from tests.bench.processes import descriptors_of, files_below, memory_bytes
from tests.kafka.clients import Clients
from tests.kill.workers import Worker
from tests.soak.account import Account
from tests.soak.levels import Sample
from tests.soak.stream import CLEANED, DEAD, LATE, PIPELINE, RAW, endings, made

_GROUP = "soak"
_PARTITIONS = 8
_PORTIONS_A_SECOND = 10
_KEPT_BYTES = str(64 << 20)
_BROKER_MIB = 512
_FAR_FUTURE_MS = str((1 << 63) - 1)
_ASK_AGAIN_S = 0.5
_SAMPLE_EACH_S = 15.0
_MIB = 1 << 20
_BLOCK_BYTES = 512


class Plan(NamedTuple):
    """How much, for how long, and how often an instance is killed."""

    minutes: float
    records_per_s: int
    factor: int
    """How many seconds the records' time goes on in a second."""
    kill_each_s: float


class Outcome(NamedTuple):
    """The samples, the account, and the ends of instances."""

    samples: list[Sample]
    account: Account
    kills: int
    unexpected: list[str]
    """How instances ended whom nobody had asked to."""


def soak(folder: Path, plan: Plan, tell: Callable[[str], None]) -> Outcome:
    """Run it to the end, with all brokers and instances stopped behind it."""
    broker = EmbeddedBroker(folder / "kafka", heap_mib=_BROKER_MIB, java_options=())
    broker.start()
    file = folder / "soak.yaml"
    file.write_text(PIPELINE, "utf-8")
    settings = {"HEADRACE_BOOTSTRAP_SERVERS": broker.bootstrap_servers}
    settings |= {"HEADRACE_MEMORY": "256MiB", "HEADRACE_LOG_FORMAT": "json"}
    workers = [Worker(f"worker-{number}", folder, file, settings) for number in range(3)]
    try:
        _make_topics(Clients(broker.bootstrap_servers))
        for worker in workers:
            worker.start()
        return asyncio.run(_Soak(folder, broker.bootstrap_servers, workers, plan).run(tell))
    finally:
        for worker in workers:
            worker.kill()
        broker.stop()


def _make_topics(clients: Clients) -> None:
    # A broker may delete records that were read, or an hour would fill a small disk.
    settings = {"retention.ms": "-1", "retention.bytes": _KEPT_BYTES}
    settings["message.timestamp.after.max.ms"] = _FAR_FUTURE_MS
    for topic in (RAW, CLEANED, LATE, DEAD):
        clients.make_topic(topic, _PARTITIONS, settings)


class _Soak:
    def __init__(self, folder: Path, servers: str, workers: list[Worker], plan: Plan) -> None:
        self._folder = folder
        self._servers = servers
        self._workers = workers
        self._plan = plan
        self._account = Account()
        self._samples: list[Sample] = []
        self._kills = 0
        self._sent = 0
        self._step_ms = plan.factor * 1000 * _PARTITIONS // plan.records_per_s

    async def run(self, tell: Callable[[str], None]) -> Outcome:
        """Let the load, the reader, the killer and the watcher run side by side."""
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._servers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        )
        await consumer.start()
        try:
            outputs = _places(CLEANED, LATE, DEAD)
            consumer.assign(outputs)
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(self._read(consumer))
                asides = [group.create_task(one) for one in (self._kill(), self._watch(tell))]
                await self._load()
                for task in asides:
                    task.cancel()
                ends = await consumer.end_offsets(_places(RAW))
                await self._until_committed(sum(ends.values()))
                await asyncio.to_thread(self._stop_workers)
                for place, end in (await consumer.end_offsets(outputs)).items():
                    while await consumer.position(place) < end:  # noqa: ASYNC110 - nobody tells
                        await asyncio.sleep(_ASK_AGAIN_S)
                reading.cancel()
        finally:
            await consumer.stop()
        ended = [line for one in self._workers for line in (*one.unexpected, *one.gave_up)]
        return Outcome(self._samples, self._account, self._kills, ended)

    async def _load(self) -> None:
        """Send what is due, ten times a second, and what lets all of it leave."""
        producer = AIOKafkaProducer(
            bootstrap_servers=self._servers, enable_idempotence=True, max_batch_size=1 << 18
        )
        await producer.start()
        try:
            each = self._plan.records_per_s // _PORTIONS_A_SECOND
            due_at = time.monotonic()
            for _ in range(int(self._plan.minutes * 60 * _PORTIONS_A_SECOND)):
                await _send(producer, self._portion(each))
                due_at += 1 / _PORTIONS_A_SECOND
                await asyncio.sleep(max(0.0, due_at - time.monotonic()))
            for partition in range(_PARTITIONS):
                number = self._sent // _PARTITIONS + 1
                await _send(producer, endings(partition, number, self._step_ms))
        finally:
            await producer.stop()

    def _portion(self, count: int) -> Iterator[Record]:
        for sent in range(self._sent, self._sent + count):
            one = made(sent % _PARTITIONS, sent // _PARTITIONS, self._step_ms)
            self._account.open(one)
            yield one.record
        self._sent += count

    async def _read(self, consumer: AIOKafkaConsumer) -> None:
        async for message in consumer:
            self._account.close(message.topic, record_of(message))

    async def _kill(self) -> None:
        """Kill the second and the third instance in turn, and start it again."""
        for worker in cycle(self._workers[1:]):
            await asyncio.sleep(self._plan.kill_each_s)
            worker.kill()
            worker.start()
            self._kills += 1

    async def _watch(self, tell: Callable[[str], None]) -> None:
        began_at = time.monotonic()
        while True:
            await asyncio.sleep(_SAMPLE_EACH_S)
            for worker in self._workers:
                worker.look()
                worker.start()
            sample = await asyncio.to_thread(self._sample, (time.monotonic() - began_at) / 60)
            self._samples.append(sample)
            tell("  ".join(f"{name} {value:,.1f}" for name, value in sample._asdict().items()))

    def _sample(self, minute: float) -> Sample:
        pid = self._workers[0].pid
        assert pid is not None
        # Asked before what was sent is counted: an answer may take a while.
        committed = self._committed()
        changelogs = (self._folder / "kafka").glob("broker-1/data/*-changelog-*")
        return Sample(
            minute,
            memory_bytes(pid) / _MIB,
            descriptors_of(pid),
            sum(_bytes_in(worker.state_folder) for worker in self._workers) / _MIB,
            sum(_bytes_in(folder) for folder in changelogs) / _MIB,
            self._sent - committed,
        )

    def _committed(self) -> int:
        found = Clients(self._servers).committed_offsets(_GROUP)
        return sum(offset for (topic, _), offset in found.items() if topic == RAW)

    async def _until_committed(self, end: int) -> None:
        while await asyncio.to_thread(self._committed) < end:
            await asyncio.sleep(_ASK_AGAIN_S)
            for worker in self._workers:
                worker.look()
                worker.start()

    def _stop_workers(self) -> None:
        for worker in self._workers:
            worker.stop()


async def _send(producer: AIOKafkaProducer, records: Iterator[Record]) -> None:
    sent = [
        await producer.send(
            RAW, one.value, one.key, one.partition, one.timestamp_ms, list(one.headers)
        )
        for one in records
    ]
    await asyncio.gather(*sent)


def _places(*topics: str) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for topic in topics for number in range(_PARTITIONS)]


def _bytes_in(folder: Path) -> int:
    """Add up what the files of a folder take on disk; a broker's indexes are mostly holes."""
    return sum(file.st_blocks * _BLOCK_BYTES for file in files_below(folder).values())
