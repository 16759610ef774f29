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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple
from urllib.error import URLError
from urllib.request import urlopen
from zlib import crc32

import numpy as np
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from headrace.contracts.topics import cleaned_topic
from headrace.services.broker.ports import free_ports
from tests.bench.spark import plain
from tests.bench.spark.cleaned import GRACE_MS, Cleaned, Sidecar
from tests.bench.spark.topics import PARTITIONS
from tests.bench.spark.watched import ROOT, Tree
from tests.kafka.clients import Clients

ORDERS_A_SECOND, PRICES_A_SECOND = 100, 20
_KEYS = 50
_COMMIT_S = 0.2
_WARMING_S = 60.0
_MEASURED_S = 60.0
_END_WITHIN_S = 60.0
_MIB = 1 << 20
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
        command = ("headrace.services.cli", "spark", str(file), "--metrics-port", str(port))
        with _running(command, folder / "log") as process:
            delay = _measured(process, servers, topic, port)
        counts = Clients(servers).make_topic(f"{topic}-plain", PARTITIONS)
        counted = (plain.__name__, servers, str(folder), counts)
        with _running((*counted, orders.topic, prices.topic), folder / "plain.log"):
            time.sleep(_WARMING_S + _MEASURED_S)
    return delay._replace(plain_batch_ms=_plain_batch_ms(folder / "plain.log"))


@contextmanager
def _running(module: tuple[str, ...], said: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A module of Python with its arguments, until the end of the block."""
    with said.open("wb") as log:
        command = [sys.executable, "-m", *module]
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
        try:
            yield process
            assert process.poll() is None, f"it ended, and said:\n{said.read_text()}"
        finally:
            process.terminate()
            process.wait(_END_WITHIN_S)


def _plain_batch_ms(said: Path) -> float:
    lines = [line.split() for line in said.read_text().splitlines() if line.startswith(plain.SAYS)]
    # The first half of the time was for Java to become warm.
    return statistics.median(float(words[-2]) for words in lines[len(lines) // 2 :])


def _measured(process: subprocess.Popen[bytes], servers: str, topic: str, port: int) -> Delay:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 10,
        }
    )
    consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in range(PARTITIONS)])
    tree = Tree(process.pid)
    try:
        _read_for(consumer, _WARMING_S, port)
        before = sum(tree.sample().values())
        delays_ms, groups, batches_ms = _read_for(consumer, _MEASURED_S, port)
        used = sum(tree.sample().values()) - before
    finally:
        consumer.close()
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


def _read_for(
    consumer: Consumer, seconds: float, port: int
) -> tuple[list[float], int, list[float]]:
    """Return how old each record was when it could be read, and in how many groups they came.

    Also return how long the last micro-batch took, whenever records came.
    """
    delays_ms: list[float] = []
    batches_ms: list[float] = []
    groups, last_s = 0, 0.0
    until_s = time.monotonic() + seconds
    while (left_s := until_s - time.monotonic()) > 0:
        for message in consumer.consume(1_000, min(left_s, 0.1)):
            assert message.error() is None, message.error()
            delays_ms.append(_now_ms() - message.timestamp()[1])
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


def _now_ms() -> float:
    return time.time() * 1_000  # noqa: TID251 (records carry the clock's time)


@contextmanager
def _trickling(sidecar: Sidecar, a_second: int, make: object) -> Iterator[None]:
    """Write so many records a second until the end, each when it is a grace old."""
    ends = Event()
    thread = Thread(target=_trickle, args=(sidecar, a_second, make, ends))
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def _trickle(sidecar: Sidecar, a_second: int, make: object, ends: Event) -> None:
    assert callable(make)
    number, began_ms = 0, _now_ms() - GRACE_MS
    while not ends.wait(_COMMIT_S):
        until_ms = _now_ms() - GRACE_MS
        due = int((until_ms - began_ms) * a_second / 1_000)
        sidecar.commit(
            (make(n, began_ms + n * 1_000 / a_second) for n in range(number, due)), int(until_ms)
        )
        number = due


def _order(number: int, at_ms: float) -> tuple[bytes, bytes, int, int]:
    return _record(number, at_ms, b'{"order_id":"o%d","quantity":1}' % number)


def _price(number: int, at_ms: float) -> tuple[bytes, bytes, int, int]:
    return _record(number, at_ms, b'{"price_cents":%d}' % number)


def _record(number: int, at_ms: float, value: bytes) -> tuple[bytes, bytes, int, int]:
    key = b"k%d" % (number % _KEYS)
    return key, value, int(at_ms), crc32(key) % PARTITIONS
