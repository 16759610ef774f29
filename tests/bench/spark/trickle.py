"""The delay of the shipped job while little comes in: from an order's time to its priced record.

Two sidecars release what is a grace old, and commit five times a second. The job runs with its own
defaults, into Kafka. Behind it a plain query of Spark (`plain`) reads the same topics, for the time
that a micro-batch takes.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import NamedTuple
from urllib.error import URLError
from urllib.request import urlopen
from zlib import crc32

import numpy as np

from headrace.contracts.topics import cleaned_topic
from headrace.services.broker.ports import free_ports
from tests.bench.spark import plain
from tests.bench.spark.cleaned import GRACE_MS, Cleaned, Sidecar
from tests.bench.spark.topics import PARTITIONS
from tests.bench.spark.watched import Tree, running
from tests.bench.steady import ORDERS_A_SECOND, PRICES_A_SECOND, Due, Reader, steadily
from tests.kafka.clients import Clients

_KEYS = 50
_COMMIT_S = 0.2
_WARMING_S = 60.0
_MEASURED_S = 60.0
_MIB = 1 << 20
_Row = tuple[bytes, bytes, int, int]
_BATCH_SECONDS = re.compile(r'headrace_spark_batch_seconds{part="triggerExecution",.*?} (\S+)')


class Delay(NamedTuple):
    """The delay of priced orders, and the job's use of the machine meanwhile."""

    orders: int
    p50_ms: float
    p99_ms: float
    grace_ms: int
    batches: int
    """How many micro-batches wrote while it was measured."""
    cores: float
    """CPU-seconds a second, of all of the job's processes."""
    memory_mib: float
    batch_ms: float
    """How long a micro-batch took in the median, and one of the plain query."""
    plain_batch_ms: float


def run(servers: str, folder: Path) -> Delay:
    """Let orders and prices trickle, and measure what the job makes of them."""
    folder.mkdir(parents=True)
    orders, prices = (Cleaned(name, f"{name}-trickle.cleaned") for name in ("orders", "prices"))
    topic = "priced-trickle"
    Clients(servers).make_topic(topic, PARTITIONS, cleaned_topic(topic).settings())
    file = folder / "job.yaml"
    job = {
        "job": "orders-prices",
        "name": topic,
        "servers": servers,
        "checkpoint": str(folder / "checkpoint"),
        "inputs": {"prices": prices._asdict(), "orders": orders._asdict()},
        "retention": "1h",
        "sink": {"kafka": {"topic": topic}},
    }
    file.write_text(json.dumps(job), "utf-8")
    with (
        _trickling(Sidecar(servers, orders), ORDERS_A_SECOND, _order),
        _trickling(Sidecar(servers, prices), PRICES_A_SECOND, _price),
    ):
        (port,) = free_ports(1)
        command = ["headrace.services.cli", "spark", str(file), "--metrics-port", str(port)]
        with running([sys.executable, "-m", *command], folder / "log") as process:
            delay = _measured(process, servers, topic, port)
        counts = Clients(servers).make_topic(f"{topic}-plain", PARTITIONS)
        counted = [plain.__name__, servers, str(folder), counts, orders.topic, prices.topic]
        with running([sys.executable, "-m", *counted], folder / "plain.log"):
            time.sleep(_WARMING_S + _MEASURED_S)
    return delay._replace(plain_batch_ms=_plain_batch_ms(folder / "plain.log"))


def _plain_batch_ms(said: Path) -> float:
    lines = [line.split() for line in said.read_text().splitlines() if line.startswith(plain.SAYS)]
    # The first half of the time was for Java to become warm.
    return statistics.median(float(words[-2]) for words in lines[len(lines) // 2 :])


def _measured(process: subprocess.Popen[bytes], servers: str, topic: str, port: int) -> Delay:
    tree = Tree(process.pid)
    with closing(Reader(servers, topic)) as reader:
        _read_for(reader, _WARMING_S, port)
        before = sum(tree.sample().values())
        delays_ms, groups, batches_ms = _read_for(reader, _MEASURED_S, port)
        used = sum(tree.sample().values()) - before
    p50_ms, p99_ms = np.percentile(delays_ms, [50, 99])
    return Delay(
        len(delays_ms),
        float(p50_ms),
        float(p99_ms),
        GRACE_MS,
        groups,
        used / _MEASURED_S,
        sum(tree.memory_max.values()) / _MIB,
        statistics.median(batches_ms),
        0.0,
    )


def _read_for(reader: Reader, seconds: float, port: int) -> tuple[list[float], int, list[float]]:
    """Return how old each record was when it could be read, and in how many groups they came.

    Also return how long the last micro-batch took, whenever records came.
    """
    delays_ms: list[float] = []
    batches_ms: list[float] = []
    groups, last_s = 0, 0.0
    for row in reader.rows(seconds):
        delays_ms.append(row.age_ms)
        if time.monotonic() - last_s > 3 * _COMMIT_S:
            groups += 1
            batches_ms += _batch_ms(port)
        last_s = time.monotonic()
    return delays_ms, groups, batches_ms


def _batch_ms(port: int) -> list[float]:
    """How long the last micro-batch took, if any is over."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            page = answer.read().decode()
    except URLError:
        return []
    return [1_000 * float(found) for found in _BATCH_SECONDS.findall(page)]


def _trickling(
    sidecar: Sidecar, a_second: int, make: Callable[[int, float], _Row]
) -> AbstractContextManager[None]:
    """Commit so many records a second until the end, each when it is a grace old."""

    def commit(due: Due) -> None:
        sidecar.commit((make(n, due.time_ms(n)) for n in due.numbers), due.until_ms)

    return steadily(commit, a_second, _COMMIT_S, GRACE_MS)


def _order(number: int, at_ms: float) -> _Row:
    return _record(number, at_ms, b'{"order_id":"o%d","quantity":1}' % number)


def _price(number: int, at_ms: float) -> _Row:
    return _record(number, at_ms, b'{"price_cents":%d}' % number)


def _record(number: int, at_ms: float, value: bytes) -> _Row:
    key = b"k%d" % (number % _KEYS)
    return key, value, int(at_ms), crc32(key) % PARTITIONS
