"""The soak: two workers at half load for a while, and what memory they take.

How much the full load is, is measured first: records are sent as fast as this machine can while
the workers read, and what they commit counts. Then memory is read from the system once a while, and
told as a table. It is flat when a worker's second half takes hardly more than its first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from headrace.services.broker.embedded import EmbeddedBroker
from tests.kafka.clients import Clients
from tests.kill.load import Load
from tests.kill.pipelines import CASES, CLEANED, RAW
from tests.kill.workers import Worker
from tests.kill.world import written

_FULL_LOAD_FOR_S = 30.0
_WARM_UP_S = 60.0
_SAMPLES = 20
_KEPT_BYTES = str(64 << 20)
_GROWTH_MAX = 0.05
_MIB = 1024


class Sample(NamedTuple):
    """One line of the table."""

    at_s: float
    rss_kib: list[int]
    """Of each worker."""
    committed: int
    """Source offsets that the group has committed, all partitions together."""
    behind: int
    """How many are still to be read."""


def soak(
    folder: Path, pipeline: str, partitions: int, minutes: float, tell: Callable[[str], None]
) -> list[str]:
    """Run it; what is wrong."""
    spec = CASES[pipeline].spec
    file = written(spec, folder)
    with ExitStack() as stack:
        broker = EmbeddedBroker(folder / "kafka", properties={"log.roll.ms": "30000"})
        stack.callback(broker.kill)
        broker.start()
        clients = Clients(broker.bootstrap_servers)
        # The broker may delete records that were read, or ten minutes would fill the disk.
        settings = {"retention.ms": "-1", "retention.bytes": _KEPT_BYTES}
        settings["message.timestamp.after.max.ms"] = str((1 << 63) - 1)
        for topic in (RAW, CLEANED):
            clients.make_topic(topic, partitions, settings)
        workers = _started(folder, file, broker.bootstrap_servers, stack)
        full = _full_load(broker.bootstrap_servers, spec.pipeline, partitions)
        tell(f"full load is {full:,.0f} records a second; soaking at half of it")
        load = Load(broker.bootstrap_servers, RAW, partitions, int(full / 2))
        load.start()
        try:
            samples = _sampled(clients, spec.pipeline, workers, minutes, tell)
        finally:
            load.stop()
        for worker in workers:
            worker.stop()
    return [*_growth(samples), *(line for worker in workers for line in worker.unexpected)]


def _started(folder: Path, file: Path, servers: str, stack: ExitStack) -> list[Worker]:
    settings = {
        "HEADRACE_BOOTSTRAP_SERVERS": servers,
        "HEADRACE_MEMORY": "256MiB",
        "HEADRACE_LOG_FORMAT": "json",
    }
    workers = [Worker(f"worker-{number}", folder, file, settings) for number in range(2)]
    for worker in workers:
        stack.callback(worker.kill)
        worker.start()
    return workers


def _full_load(servers: str, group: str, partitions: int) -> float:
    """Measure how much the workers commit in a second at full load."""
    load = Load(servers, RAW, partitions, None)
    load.start()
    clients = Clients(servers)
    give_up_at = time.monotonic() + 120
    while _committed(clients, group) == 0 and time.monotonic() < give_up_at:
        time.sleep(0.5)
    time.sleep(_FULL_LOAD_FOR_S / 3)
    began_at, begun = time.monotonic(), _committed(clients, group)
    time.sleep(_FULL_LOAD_FOR_S)
    per_s = (_committed(clients, group) - begun) / (time.monotonic() - began_at)
    load.stop()
    return per_s


def _sampled(
    clients: Clients,
    group: str,
    workers: list[Worker],
    minutes: float,
    tell: Callable[[str], None],
) -> list[Sample]:
    time.sleep(_WARM_UP_S)
    began_at = time.monotonic()
    samples: list[Sample] = []
    tell(f"{'minute':>7} {'worker-0':>10} {'worker-1':>10} {'records/s':>11} {'behind':>9}")
    for number in range(_SAMPLES + 1):
        due_at = began_at + number * minutes * 60 / _SAMPLES
        time.sleep(max(0.0, due_at - time.monotonic()))
        committed = _committed(clients, group)
        behind = sum(clients.end_offsets(RAW).values()) - committed
        at_s = time.monotonic() - began_at
        sample = Sample(at_s, [_rss_kib(worker) for worker in workers], committed, behind)
        earlier = samples[-1] if samples else sample
        per_s = (committed - earlier.committed) / max(1e-9, at_s - earlier.at_s)
        sizes = " ".join(f"{kib / _MIB:6.1f} MiB" for kib in sample.rss_kib)
        tell(f"{at_s / 60:7.1f} {sizes} {per_s:11,.0f} {behind:9,}")
        samples.append(sample)
    return samples


def _committed(clients: Clients, group: str) -> int:
    found = clients.committed_offsets(group)
    return sum(offset for (topic, _), offset in found.items() if topic == RAW)


def _rss_kib(worker: Worker) -> int:
    for line in Path(f"/proc/{worker.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    message = f"the system does not say what memory {worker.name} takes"
    raise AssertionError(message)


def _growth(samples: Sequence[Sample]) -> list[str]:
    """Which workers grow."""
    problems = []
    half = len(samples) // 2
    for number in range(len(samples[0].rss_kib)):
        sizes = [sample.rss_kib[number] / _MIB for sample in samples]
        before, after = mean(sizes[:half]), mean(sizes[half:])
        if after > before * (1 + _GROWTH_MAX):
            grew = f"from {before:.1f} to {after:.1f} MiB"
            problems.append(f"worker-{number} grows: its two halves' means went {grew}")
    return problems
