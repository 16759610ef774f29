"""One contestant under a steady load: what it takes, and when its records can be read."""

from __future__ import annotations

import asyncio
from array import array
from itertools import count
from pathlib import Path
from statistics import quantiles
from time import monotonic
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.bench.processes import descriptors_of, stat_of
from tests.bench.race.contestants import Contestant, Job
from tests.bench.race.worker import WorkerFailed, cpu_seconds, running
from tests.kafka.clients import FOREVER, Clients

_VALUE = b"x" * 100
_TICK_S = 0.02
_STARTS_WITHIN_S = 180.0
_ALL_WITHIN_S = 60.0


class Heat(NamedTuple):
    """One run."""

    partitions: int
    records_per_second: int
    warm_up_s: float
    seconds: float
    folder: Path
    """Of this run alone; the broker's is below it."""


class Figures(NamedTuple):
    """The load as the reader saw it."""

    worker_cores: float
    broker_cores: float
    median_ms: float
    p99_ms: float
    written: int
    read: int
    descriptors: int
    """That the worker has open."""


async def run(contestant: Contestant, job: Job, heat: Heat) -> Figures:
    """Start it, let it warm up, and measure."""
    clients = Clients(job.bootstrap_servers)
    for topic in (job.source, job.sink):
        await asyncio.to_thread(clients.make_topic, topic, heat.partitions, FOREVER)
    command = contestant.command(job)
    told = {**command.environment, "RACE_PARTITIONS": str(heat.partitions)}
    reader = _Reader(job, heat.partitions)
    async with (
        reader.consumer,
        _producer(job) as producer,
        running(command._replace(environment=told), job.log) as process,
    ):
        reading = asyncio.create_task(reader.read())
        await _write_once(producer, job.source, heat.partitions)
        await _until(lambda: reader.read_records >= heat.partitions, process, job, _STARTS_WITHIN_S)
        writer = _Writer(producer, job.source, heat)
        writing = asyncio.create_task(writer.write())
        await asyncio.sleep(heat.warm_up_s)
        broker = _java_in(heat.folder)
        before = cpu_seconds(process.pid), cpu_seconds(broker)
        reader.latencies_ms = array("d")
        await asyncio.sleep(heat.seconds)
        spent = cpu_seconds(process.pid) - before[0], cpu_seconds(broker) - before[1]
        percents = quantiles(reader.latencies_ms, n=100)
        descriptors = descriptors_of(process.pid)
        writing.cancel()
        await asyncio.wait([writing])
        written = writer.written + heat.partitions
        await _until(lambda: reader.read_records >= written, process, job, _ALL_WITHIN_S)
        reading.cancel()
        await asyncio.wait([reading])
    return Figures(
        worker_cores=spent[0] / heat.seconds,
        broker_cores=spent[1] / heat.seconds,
        median_ms=percents[49],
        p99_ms=percents[98],
        written=written,
        read=reader.read_records,
        descriptors=descriptors,
    )


class _Reader:
    """Reads what is committed, and notes how old each record is."""

    def __init__(self, job: Job, partitions: int) -> None:
        self.latencies_ms = array("d")
        self.read_records = 0
        self.consumer = AIOKafkaConsumer(
            bootstrap_servers=job.bootstrap_servers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            group_id=None,
        )
        self.consumer.assign([TopicPartition(job.sink, number) for number in range(partitions)])

    async def read(self) -> None:
        """Until cancelled."""
        while True:
            batches = await self.consumer.getmany(timeout_ms=100)
            now_ms = monotonic() * 1000
            for records in batches.values():
                self.read_records += len(records)
                self.latencies_ms.extend(now_ms - record.timestamp for record in records)


class _Writer:
    """Writes each record at its own time, whenever the tick comes."""

    def __init__(self, producer: AIOKafkaProducer, topic: str, heat: Heat) -> None:
        self.written = 0
        self._producer = producer
        self._topic = topic
        self._heat = heat

    async def write(self) -> None:
        """Until cancelled."""
        numbers, started = count(), monotonic()
        rate, partitions = self._heat.records_per_second, self._heat.partitions
        while True:
            await asyncio.sleep(_TICK_S)
            batches: dict[int, Any] = {}
            while (at := next(numbers)) < int((monotonic() - started) * rate):
                batch = batches.setdefault(at % partitions, self._producer.create_batch())
                due_ms = int((started + at / rate) * 1000)
                batch.append(key=b"%016x" % at, value=_VALUE, timestamp=due_ms)
                self.written += 1
            numbers = count(at)
            for partition, batch in batches.items():
                await self._producer.send_batch(batch, self._topic, partition=partition)


def _producer(job: Job) -> AIOKafkaProducer:
    return AIOKafkaProducer(bootstrap_servers=job.bootstrap_servers, max_batch_size=512 << 10)


async def _write_once(producer: AIOKafkaProducer, topic: str, partitions: int) -> None:
    for partition in range(partitions):
        await producer.send(
            topic, _VALUE, b"first-%d" % partition, partition=partition, timestamp_ms=0
        )


async def _until(done: Any, process: asyncio.subprocess.Process, job: Job, within_s: float) -> None:
    """Wait for it; what is not there in time is a figure, too."""
    give_up_at = monotonic() + within_s
    while not done() and monotonic() < give_up_at:
        await asyncio.sleep(0.05)
        if process.returncode is not None:
            message = f"ended ({process.returncode}); see {job.log}"
            raise WorkerFailed(message)


def _java_in(folder: Path) -> int:
    """The broker whose files are below a folder."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().split(b"\0")
                is_java = stat_of(int(entry.name)).program == "java"
            except OSError:
                continue  # It has ended meanwhile.
            if is_java and any(bytes(folder / "broker") in word for word in command):
                return int(entry.name)
    message = f"no broker runs in {folder}"
    raise WorkerFailed(message)
