"""The delay of the whole way while little comes in: from an order's own time to its priced row.

Raw orders and raw prices come in steadily, in the order of their times, each twentieth twice. At
the end come records that let all others leave; then all rows are compared with the right ones.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any, NamedTuple

import numpy as np

from tests.bench.spark.topics import PARTITIONS
from tests.bench.spark.watched import Failed, Tree
from tests.bench.steady import Due, Reader, Row, now_ms, steadily
from tests.bench.whole import headrace, peers, raw
from tests.bench.whole.agreement import Agreement, Wanted
from tests.bench.whole.measured import Track, priced
from tests.bench.whole.raw import Event, Writer
from tests.kafka.clients import FOREVER, Clients

GRACE_MS = 2_000
COMMIT_INTERVAL_MS = 1_000
"""How often the rows of each contestant become readable."""
PRODUCTS = 50
_ORDERS_A_PRICE = 5
_WRITE_S = 0.01
_TWICE = 20
"""Each record whose number this divides comes twice."""
_END_MS = 2 * GRACE_MS
_BEHIND_S = 10.0
_PATIENCE_S = 180.0
_LOOK_S = 1.0
_MIB = 1 << 20

Serve = Callable[[Track, int], AbstractContextManager[list[subprocess.Popen[bytes]]]]
_SERVE: dict[str, Serve] = {
    "headrace": headrace.serve,
    "flink": peers.serve_flink,
    "streams": peers.serve_streams,
}


class Load(NamedTuple):
    """How much comes in, how long a contestant becomes warm, and how long it is measured."""

    orders_a_second: int
    warming_s: float
    """Behind the first row."""
    measured_s: float


class Delayed(NamedTuple):
    """The delay of priced orders by one contestant, once."""

    who: str
    round: int
    load: Load
    orders: int
    """Rows of orders of the time that was measured; all of them are in `agreement`."""
    p50_ms: float
    p99_ms: float
    cores: float
    """CPU-seconds a second, of all of the contestant's processes."""
    memory_mib: float
    agreement: Agreement


def dumped(one: Delayed) -> dict[str, Any]:
    """Return a measurement as a file keeps it."""
    parts = {"load": one.load._asdict(), "agreement": one.agreement._asdict()}
    return {**one._asdict(), **parts}


def loaded(said: dict[str, Any]) -> Delayed:
    """Return a measurement that a file kept."""
    parts = {"load": Load(**said["load"]), "agreement": Agreement(**said["agreement"])}
    return Delayed(**{**said, **parts})


def measure(who: str, number: int, track: Track, load: Load) -> Delayed:
    """Let orders and prices come in, and measure how late each priced order can be read."""
    Clients(track.servers).make_topic(track.sink, PARTITIONS, FOREVER)
    orders = Incoming(track.servers, track.topics.orders, order_due)
    prices = Incoming(track.servers, track.topics.prices, price_due)
    with (
        _SERVE[who](track, COMMIT_INTERVAL_MS) as processes,
        closing(Reader(track.servers, track.sink)) as reader,
    ):
        seen = _Seen(processes, reader)
        prices_a_second = max(load.orders_a_second // _ORDERS_A_PRICE, 1)
        with orders.coming_in(load.orders_a_second), prices.coming_in(prices_a_second):
            seen.wait_for(1)
            seen.read_for(load.warming_s)
            begin = seen.moment()
            seen.read_for(load.measured_s)
            until_ms = now_ms()
            # The last of these orders come out under the same load. A look at the processes takes
            # its time, and rows would wait for it.
            seen.read_for(_BEHIND_S)
            end = seen.moment()
        for each in (orders, prices):
            each.end()
        prices.refuse_late()
        wanted = Wanted(len(orders.events), raw.rows_of(orders.events, prices.events))
        seen.wait_for(wanted.count)
    delays_ms = [row.age_ms for row in seen.rows if begin.time_ms <= row.time_ms < until_ms]
    if not delays_ms:
        message = f"{who} made no row of an order of the time that was measured"
        raise Failed(message)
    p50_ms, p99_ms = np.percentile(delays_ms, [50, 99])
    return Delayed(
        who,
        number,
        load,
        len(delays_ms),
        float(p50_ms),
        float(p99_ms),
        1_000 * (end.cpu_s - begin.cpu_s) / (end.time_ms - begin.time_ms),
        seen.memory_bytes() / _MIB,
        wanted.compare(priced(track.servers, track.sink)),
    )


class _Moment(NamedTuple):
    cpu_s: float
    time_ms: float


class _Seen:
    """The rows that a contestant's processes have made so far."""

    def __init__(self, processes: list[subprocess.Popen[bytes]], reader: Reader) -> None:
        self._processes = processes
        self._trees = [Tree(process.pid) for process in processes]
        self._reader = reader
        self.rows: list[Row] = []

    def read_for(self, seconds: float) -> None:
        """Read what comes within so many seconds."""
        self.rows += self._reader.rows(seconds)

    def wait_for(self, count: int) -> None:
        """Read until there are so many; where some do not come, that is told at the end."""
        give_up_at_s = time.monotonic() + _PATIENCE_S
        while len(self.rows) < count and time.monotonic() < give_up_at_s:
            self.moment()
            self.read_for(_LOOK_S)

    def moment(self) -> _Moment:
        """Look at the clock, and at the CPU time and memory of all processes."""
        for process in self._processes:
            if process.poll() is not None:
                message = f"a process has ended: {process.args!r}"
                raise Failed(message)
        return _Moment(sum(sum(tree.sample().values()) for tree in self._trees), now_ms())

    def memory_bytes(self) -> int:
        """Return the most that there was at a look."""
        return sum(sum(tree.memory_max.values()) for tree in self._trees)


class Incoming:
    """One raw topic as it comes in."""

    def __init__(self, servers: str, topic: str, make: Callable[[int, int], Event]) -> None:
        self._topic = topic
        self._writer = Writer(servers, topic, linger_ms=0)
        self._make = make
        self._late_ms = 0.0
        self.events: list[Event] = []

    @contextmanager
    def coming_in(self, a_second: int) -> Iterator[None]:
        """Write so many records a second until the end of the block."""
        with steadily(self.write, a_second, _WRITE_S):
            yield

    def write(self, due: Due) -> None:
        """Write what is due."""
        if due.numbers:
            self._late_ms = max(self._late_ms, now_ms() - due.time_ms(due.numbers[0]))
        for number in due.numbers:
            event = self._make(number, int(due.time_ms(number)))
            self.events.append(event)
            for _ in range(1 if number % _TWICE else 2):
                self._writer.write(event)

    def refuse_late(self) -> None:
        """Refuse to judge anybody if a record came so late that an order may leave before it."""
        if self._late_ms >= GRACE_MS:
            message = (
                f"`{self._topic}` was written {self._late_ms / 1_000:.1f} s late, and the grace is"
                f" {GRACE_MS / 1_000:g} s; measure with fewer orders, or on a quieter machine"
            )
            raise Failed(message)

    def end(self) -> None:
        """Let all records leave."""
        self._writer.end(_END_MS)


def price_due(number: int, due_ms: int) -> Event:
    """Make the price that was due at a moment: at the even millisecond not behind it."""
    return raw.price_of(number, number % PRODUCTS, due_ms // 2 * 2)


def order_due(number: int, due_ms: int) -> Event:
    """Make the order that was due at a moment: at the odd millisecond not behind it.

    One of the products has no price.
    """
    return raw.order_of(number, number % (PRODUCTS + 1), (due_ms + 1) // 2 * 2 - 2)
