"""The raw topics: orders and prices out of order and with duplicates, as producers leave them.

An order has an odd and a price an even millisecond, and no two of a topic share one. So nobody has
to decide who goes first, and the right rows follow from the rules alone: the first of each id
counts, and an order has the newest price of its product that is not newer than itself.

Three things are left out, since the systems promise different things about them: records later than
the grace, tombstones, and duplicates that are older than the first of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple
from zlib import crc32

import numpy as np
from confluent_kafka import Producer

from tests.bench.spark.topics import PARTITIONS, START_MS, Size
from tests.bench.whole.agreement import Priced, Wanted, order_id
from tests.kafka.clients import FOREVER, Clients

GRACE_MS = 10_000
INTERVAL_MS = 3_600_000
RETENTION_MS = 30 * 86_400_000
_ORDER_STEP_MS = 10
_LATE_SHARE, _LATE_MS = 0.1, 5_000
_DUPLICATES_SHARE, _RESENT_MS = 0.05, 30_000
_VERSIONS_A_KEY = 5
_UNKNOWN_KEYS = 0.02
_END_MS = 3_600_000
"""How far the last records are ahead: further than anybody holds anything."""
_LINGER_MS = 50
_FULL_WAIT_S = 0.5


class Topics(NamedTuple):
    """The names of both topics."""

    orders: str
    prices: str


class Raw(NamedTuple):
    """The filled topics, and what must come of them."""

    size: Size
    topics: Topics
    records: int
    """In both topics, duplicates and last records included."""
    wanted: Wanted


class Event(NamedTuple):
    """A record as its producer makes it."""

    key: bytes
    value: bytes
    time_ms: int
    id: bytes


def fill(servers: str, size: Size) -> Raw:
    """Make both topics, and write everything."""
    random = np.random.default_rng(1)
    keys = max(size.versions // _VERSIONS_A_KEY, 1)
    prices = prices_of(random, size, keys)
    orders = orders_of(random, size, keys)
    topics = make_topics(servers, f"{size.facts}")
    records = 0
    for name, events in zip(topics, (orders, prices), strict=True):
        records += _write(servers, name, arrivals(random, events))
    return Raw(size, topics, records, Wanted(size.facts, rows_of(orders, prices)))


def make_topics(servers: str, name: str) -> Topics:
    """Make both topics, empty."""
    topics = Topics(f"orders-{name}.raw", f"prices-{name}.raw")
    Clients(servers).make_topics(topics, PARTITIONS, FOREVER)
    return topics


def prices_of(random: np.random.Generator, size: Size, keys: int) -> list[Event]:
    """Return the prices, in the order of their times."""
    step_ms = _ORDER_STEP_MS * size.facts // size.versions
    times_ms = _times(random, size.versions, step_ms)
    of_keys = random.integers(0, keys, size.versions).tolist()
    return [*map(price_of, range(size.versions), of_keys, times_ms)]


def orders_of(random: np.random.Generator, size: Size, keys: int) -> list[Event]:
    """Return the orders, in the order of their times; some ask for products without a price."""
    of_keys = random.integers(0, int(keys * (1 + _UNKNOWN_KEYS)) + 1, size.facts).tolist()
    times_ms = _times(random, size.facts, _ORDER_STEP_MS)
    return [*map(order_of, range(size.facts), of_keys, times_ms)]


def price_of(number: int, key: int, time_ms: int) -> Event:
    """Make a price at an even millisecond."""
    value = b'{"price_cents":%d}' % (100 + number % 9_901)
    return Event(b"k%07d" % key, value, time_ms, b"p%09d" % number)


def order_of(number: int, key: int, time_ms: int) -> Event:
    """Make an order at the odd millisecond behind an even one."""
    name = order_id(number).encode()
    value = b'{"order_id":"%s","quantity":%d,"customer":"c%04d"}' % (
        name,
        1 + number % 7,
        number % 1_000,
    )
    return Event(b"k%07d" % key, value, time_ms + 1, name)


def arrivals(random: np.random.Generator, events: list[Event]) -> Iterator[Event]:
    """Put events in the order in which they arrive, each duplicate behind the first.

    A duplicate has the time of the first, as if a producer had sent it again, or a later one, as if
    an application had.
    """
    count = len(events)
    is_late = random.random(count) < _LATE_SHARE
    late_ms = np.where(is_late, random.integers(0, _LATE_MS, count), 0).tolist()
    times_ms = [event.time_ms + late for event, late in zip(events, late_ms, strict=True)]
    arriving = list(zip(times_ms, events, strict=True))
    again = np.flatnonzero(random.random(count) < _DUPLICATES_SHARE).tolist()
    behind_ms = random.integers(1, _RESENT_MS, len(again)).tolist()
    for place, number in enumerate(again):
        time_ms = times_ms[number] + behind_ms[place]
        event = events[number]
        arriving.append((time_ms, event if place % 2 else event._replace(time_ms=time_ms)))
    arriving.sort(key=lambda one: one[0])
    return (event for _, event in arriving)


def rows_of(orders: Iterable[Event], prices: Iterable[Event]) -> Iterator[Priced]:
    """Join in the simplest way: both are in the order of their times, which never meet."""
    now: dict[bytes, int] = {}
    coming = iter(prices)
    price = next(coming, None)
    for order in orders:
        while price is not None and price.time_ms < order.time_ms:
            now[price.key] = number_in(price.value, b'"price_cents":')
            price = next(coming, None)
        cents = now.get(order.key)
        if cents is not None:
            key, quantity = order.key.decode(), number_in(order.value, b'"quantity":')
            yield Priced(
                key, key, order.id.decode(), quantity, cents, quantity * cents, order.time_ms
            )


def number_in(value: bytes, name: bytes) -> int:
    """Return the number behind a name, without a parser of JSON that contestants use as well."""
    start = value.index(name) + len(name)
    end = start
    while value[end : end + 1].isdigit():
        end += 1
    return int(value[start:end])


def _times(random: np.random.Generator, count: int, step_ms: int) -> list[int]:
    """Return even milliseconds, one in each step."""
    offsets = 2 * random.integers(0, step_ms // 2, count)
    return [int(each) for each in START_MS + np.arange(count) * step_ms + offsets]


def _write(servers: str, topic: str, events: Iterable[Event]) -> int:
    writer = Writer(servers, topic, _LINGER_MS)
    count = 0
    for event in events:
        writer.write(event)
        count += 1
    writer.end(_END_MS)
    return count + PARTITIONS


class Writer:
    """Writes a raw topic."""

    def __init__(self, servers: str, topic: str, linger_ms: int) -> None:
        """Open a plain producer."""
        self._topic = topic
        self._last_ms = START_MS
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "linger.ms": linger_ms,
                "queue.buffering.max.messages": 1_000_000,
                "compression.type": "lz4",
            }
        )

    def write(self, event: Event) -> None:
        """Write a record; it is there a little later."""
        self._last_ms = max(self._last_ms, event.time_ms)
        self._produce(event, crc32(event.key) % PARTITIONS)

    def end(self, ahead_ms: int) -> None:
        """Write a record to each partition by which all others leave, and wait for everything."""
        # An order here has no price, and a price no order, so they make no rows.
        for partition in range(PARTITIONS):
            name = f"end-of-{self._topic}-{partition}".encode()
            value = b'{"order_id":"o%09d","quantity":1,"price_cents":1}' % 0
            self._produce(Event(name, value, self._last_ms + ahead_ms, name), partition)
        self._producer.flush()

    def _produce(self, event: Event, partition: int) -> None:
        headers: list[tuple[str, str | bytes | None]] = [("id", event.id)]
        while True:
            try:
                self._producer.produce(
                    *(self._topic, event.value, event.key, partition),
                    timestamp=event.time_ms,
                    headers=headers,
                )
            except BufferError:
                self._producer.poll(_FULL_WAIT_S)
            else:
                self._producer.poll(0)
                return
