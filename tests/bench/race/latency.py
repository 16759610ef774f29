"""How long a record takes from being written to being readable, under a steady load.

A record's timestamp is the moment, by this machine's clock, at which it was due to be written: a
writer that is held up makes latencies longer, and hides none. Every key is new, so every record
leaves. The reader sees what is committed.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from statistics import quantiles
from time import monotonic
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.bench.race.cluster import Cluster
from tests.bench.race.contestants import Contestant, Job
from tests.bench.race.source import PARTITIONS, Sent, pour
from tests.bench.race.worker import WorkerFailed, cpu_seconds, running

_VALUE = b"x" * 100
_TICK_S = 0.005
_TICK_BYTES_MAX = 512 << 10
"""Of a partition: a writer that was held up once must be able to catch up."""
_WARM_UP_S = 30.0
"""Long enough for compilers that work meanwhile."""
_FIRST_S = 60.0
_READ_PARTITION = 0
"""All are alike, and whoever reads them all takes half a core from those who are measured."""


class Latency(NamedTuple):
    """Milliseconds, at a number of records per second."""

    contestant: str
    records_per_second: int
    median_ms: float
    p95_ms: float
    p99_ms: float
    cpu_share: float
    """CPU-seconds that the worker took in a second."""
    measured_records: int


async def latency(
    cluster: Cluster, contestant: Contestant, job: Job, records_per_second: int, seconds: float
) -> Latency:
    """Run a contestant beside a writer and a reader."""
    for topic in (job.source, job.sink):
        await cluster.create(topic)
    async with (
        _reader(cluster, job.sink) as reader,
        running(contestant.command(job), job.log) as process,
    ):
        # The contestant has no backlog when the measuring begins.
        await pour(_one_a_partition(), job.source, cluster.bootstrap_servers)
        await asyncio.wait_for(_first(reader, process, job.log), _FIRST_S)
        async with _writing(cluster, job.source, records_per_second):
            await _latencies_ms(reader, _WARM_UP_S)
            before = cpu_seconds(process.pid)
            taken = await _latencies_ms(reader, seconds)
            spent = cpu_seconds(process.pid) - before
    percents = quantiles(taken, n=100)
    return Latency(
        contestant.name,
        records_per_second,
        median_ms=percents[49],
        p95_ms=percents[94],
        p99_ms=percents[98],
        cpu_share=spent / seconds,
        measured_records=len(taken),
    )


def _one_a_partition() -> Iterator[Sent]:
    for partition in range(PARTITIONS):
        yield Sent(partition, b"first-%d" % partition, _VALUE, 0)


@asynccontextmanager
async def _reader(cluster: Cluster, topic: str) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        group_id=None,
    )
    async with consumer:
        consumer.assign([TopicPartition(topic, _READ_PARTITION)])
        yield consumer


@asynccontextmanager
async def _writing(cluster: Cluster, topic: str, records_per_second: int) -> AsyncIterator[None]:
    producer = AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, max_batch_size=_TICK_BYTES_MAX
    )
    async with producer:
        writer = asyncio.create_task(_write(producer, topic, records_per_second))
        try:
            yield
        finally:
            writer.cancel()
            await asyncio.wait([writer])
        if not writer.cancelled():
            writer.result()


async def _write(producer: AIOKafkaProducer, topic: str, records_per_second: int) -> None:
    """A few records a tick, each at its own time, whenever the tick comes."""
    numbers = count()
    started = monotonic()
    written = 0
    while True:
        await asyncio.sleep(_TICK_S)
        due = int((monotonic() - started) * records_per_second)
        batches = [producer.create_batch() for _ in range(PARTITIONS)]
        for at in range(written, due):
            number = next(numbers)
            due_ms = int((started + at / records_per_second) * 1000)
            partition = number % PARTITIONS
            written_at = batches[partition].append(
                key=b"%016x" % number, value=_VALUE, timestamp=due_ms
            )
            if written_at is None:
                break
            written += 1
        for partition, batch in enumerate(batches):
            if batch.record_count():
                await producer.send_batch(batch, topic, partition=partition)


async def _first(reader: AIOKafkaConsumer, process: asyncio.subprocess.Process, log: Path) -> None:
    """Wait until anything comes out."""
    while not await reader.getmany(timeout_ms=100):
        if process.returncode is not None:
            message = f"ended ({process.returncode}); see {log}"
            raise WorkerFailed(message)


async def _latencies_ms(reader: AIOKafkaConsumer, seconds: float) -> array[float]:
    """The latency of each record that arrives within so many seconds."""
    taken = array("d")
    end = monotonic() + seconds
    while monotonic() < end:
        batches = await reader.getmany(timeout_ms=100)
        now_ms = monotonic() * 1000
        for records in batches.values():
            taken.extend(now_ms - record.timestamp for record in records)
    return taken
