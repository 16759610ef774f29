"""How long it takes to have the state again after its folder is gone.

A contestant deduplicates records that are all new, and is stopped. Then he is started twice more,
each time with a few new records waiting: once with his state, and once without. The second takes
longer from its start until those are committed; the difference is the restore.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from tests.bench.race.cluster import Cluster
from tests.bench.race.contestants import Contestant, Job, bare_restore
from tests.bench.race.source import INTERVAL_MS, PARTITIONS, START_MS, Sent, partition_of, pour
from tests.bench.race.worker import Sample, running, watch

_VALUE = b"x" * 100


class Restore(NamedTuple):
    """The cost of restoring the state."""

    contestant: str
    rows: int
    """Records in the changelogs, marks of transactions included."""
    seconds: float
    cpu_seconds: float


async def restore(cluster: Cluster, contestant: Contestant, job: Job, records: int) -> Restore:
    """Fill a contestant's state, and take it away from him."""
    for topic in (job.source, job.sink):
        await cluster.create(topic)
    source = _all_new(records)
    await _process(cluster, contestant, job, islice(source, records))
    kept = await _process(cluster, contestant, job, islice(source, PARTITIONS))
    shutil.rmtree(job.folder / "state")
    lost = await _process(cluster, contestant, job, islice(source, PARTITIONS))
    return Restore(
        contestant.name,
        sum([await cluster.size(topic) for topic in await _changelogs(cluster, job)]),
        lost.seconds - kept.seconds,
        lost.cpu_seconds - kept.cpu_seconds,
    )


async def bare(cluster: Cluster, job: Job) -> Restore:
    """Read a job's changelogs, write what was read to databases like ours, and nothing else."""
    command = bare_restore(job, await _changelogs(cluster, job))
    log = job.folder.with_suffix(".bare")
    async with running(command, log) as process:
        await process.wait()
    return Restore("bare", **json.loads(log.read_text("utf-8")))


async def _changelogs(cluster: Cluster, job: Job) -> list[str]:
    topics = await cluster.topics(f"{job.group}-")
    return [topic for topic in topics if topic.endswith("-changelog")]


async def _process(
    cluster: Cluster, contestant: Contestant, job: Job, records: Iterator[Sent]
) -> Sample:
    """Write records, start the contestant, and stop him once he has committed them."""
    await pour(records, job.source, cluster.bootstrap_servers)
    goal = await cluster.size(job.source)
    topics = (job.group, job.source, job.sink)
    command = contestant.command(job)
    watched = await watch(command, job.log, cluster, topics, goal)
    return watched.samples[-1]


def _all_new(records: int) -> Iterator[Sent]:
    """New keys without end; the first so many within the interval, so that none is forgotten."""
    number = 0
    while True:
        key = b"%016x" % (number * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF)
        timestamp_ms = START_MS + min(number, records) * INTERVAL_MS // records
        yield Sent(partition_of(key), key, _VALUE, timestamp_ms)
        number += 1
