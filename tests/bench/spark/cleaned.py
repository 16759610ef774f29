"""Orders and prices as two sidecars leave them: cleaned topics, with progress in each transaction.

Both stand in the order of their times over the same span, an order at an odd and a price at an even
millisecond. So the right result is the same for all: each order with the newest price that is not
newer than it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from zlib import crc32

import numpy as np
from confluent_kafka import Message, Producer

from headrace.contracts.progress import (
    LAYOUT,
    CleanedBy,
    Progress,
    cleaned_by_row,
    milestone_of,
    milestone_row,
    progress_row,
)
from headrace.contracts.topics import cleaned_topic, progress_topic
from tests.bench.spark.topics import PARTITIONS, SPAN_MS, START_MS, Digest, Size, read_rows
from tests.kafka.clients import Clients

GRACE_MS = 2_000
"""How far the sidecars' progress is behind the newest record, as with a grace of theirs."""
_VERSIONS_A_KEY = 5
_TOMBSTONES = 0.05
_UNKNOWN_KEYS = 0.02
_RECORDS_A_COMMIT = 5_000
_FULL_WAIT_S = 0.1
_WITHIN_S = 60.0
_LAST_MS = START_MS + SPAN_MS + GRACE_MS
_Row = tuple[bytes, bytes | None, int, int]
_LAST_ORDERS: list[_Row] = [
    (b"last-%d" % number, b'{"order_id":"last","quantity":1}', _LAST_MS, number)
    for number in range(PARTITIONS)
]
"""Where a grace goes by the orders alone, these let the others leave; nothing has their price."""


class Cleaned(NamedTuple):
    """The names of one input's topics, and its pipeline."""

    pipeline: str
    topic: str


class Filled(NamedTuple):
    """The names of the filled topics, and the rows that a job must make of them."""

    prices: Cleaned
    orders: Cleaned
    ends: int
    """The sum of the offsets behind the last records."""
    wanted: Digest


class _Records(NamedTuple):
    keys: list[bytes]
    values: list[bytes | None]
    times_ms: list[int]
    partitions: list[int]


def fill(servers: str, size: Size) -> Filled:
    """Make the topics, and write everything as sidecars do."""
    keys = size.versions // _VERSIONS_A_KEY
    random = np.random.default_rng(1)
    prices, orders = _prices(random, size.versions, keys), _orders(random, size.facts, keys)
    table, stream = (Cleaned(name, f"{name}-{size.facts}.cleaned") for name in ("prices", "orders"))
    ends = _write(servers, table, prices, ()) + _write(servers, stream, orders, _LAST_ORDERS)
    return Filled(table, stream, ends, _wanted(prices, orders))


def digest_of(rows: Iterable[tuple[bytes, str, int, int]]) -> Digest:
    """Of rows of key, order, quantity and price."""
    count = checksum = 0
    for key, order, quantity, price in rows:
        count += 1
        checksum += crc32(b"%s %s %d %d" % (key, order.encode(), quantity, price))
    return Digest(count, checksum)


def priced(servers: str, topic: str) -> Iterator[tuple[bytes, str, int, int]]:
    """Read such rows from a topic of priced orders as JSON."""
    for key, value, _ in read_rows(servers, topic):
        row = json.loads(value)
        yield key, row["order_id"], row["quantity"], row["price_cents"]


def _wanted(prices: _Records, orders: _Records) -> Digest:
    """Join both in the simplest way: their times never meet, so one sort orders them."""
    return digest_of(_joined(prices, orders))


def _joined(prices: _Records, orders: _Records) -> Iterator[tuple[bytes, str, int, int]]:
    now: dict[bytes, bytes | None] = {}
    order = np.argsort(np.array(prices.times_ms + orders.times_ms), kind="stable")
    for place in order.tolist():
        if place < len(prices.keys):
            now[prices.keys[place]] = prices.values[place]
            continue
        at = place - len(prices.keys)
        price = now.get(orders.keys[at])
        if price is not None:
            value = json.loads(orders.values[at] or b"")
            cents = json.loads(price)["price_cents"]
            yield orders.keys[at], value["order_id"], value["quantity"], cents


def _prices(random: np.random.Generator, count: int, keys: int) -> _Records:
    of_keys = random.integers(0, keys, count)
    times_ms = _times(random, count)
    gone = random.random(count) < _TOMBSTONES
    values = [
        None if is_gone else b'{"price_cents":%d}' % (100 + number % 9_901)
        for number, is_gone in enumerate(gone.tolist())
    ]
    return _records(of_keys, values, [START_MS + at_ms for at_ms in times_ms])


def _orders(random: np.random.Generator, count: int, keys: int) -> _Records:
    of_keys = random.integers(0, int(keys * (1 + _UNKNOWN_KEYS)), count)
    values = [
        b'{"order_id":"o%09d","quantity":%d,"customer":"c%04d"}' % (n, 1 + n % 7, n % 1_000)
        for n in range(count)
    ]
    return _records(of_keys, values, [START_MS + at_ms + 1 for at_ms in _times(random, count)])


def _records(
    of_keys: np.ndarray, values: list[bytes] | list[bytes | None], times_ms: list[int]
) -> _Records:
    keys = [b"k%07d" % key for key in of_keys.tolist()]
    partitions = [crc32(key) % PARTITIONS for key in keys]
    return _Records(keys, [*values], times_ms, partitions)


def _times(random: np.random.Generator, count: int) -> list[int]:
    return [*map(int, 2 * np.sort(random.integers(0, SPAN_MS // 2, count)))]


class Sidecar:
    """Writes one cleaned topic and its progress, commit by commit."""

    def __init__(self, servers: str, names: Cleaned) -> None:
        self._names = names
        self._said = progress_topic(names.topic).name
        clients = Clients(servers)
        for each in (cleaned_topic(names.topic), progress_topic(names.topic)):
            clients.make_topic(each.name, PARTITIONS, each.settings())
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "transactional.id": f"{names.topic}-writer",
                "linger.ms": 5,
                "compression.type": "lz4",
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        self._producer.init_transactions(_WITHIN_S)
        self.ends = dict.fromkeys(range(PARTITIONS), 0)
        self._milestones = dict.fromkeys(range(PARTITIONS), 0)
        self._producer.begin_transaction()
        spec = {"pipeline": names.pipeline}
        self._tell(0, *cleaned_by_row(CleanedBy(names.pipeline, LAYOUT, "source", spec)))
        self._producer.commit_transaction(_WITHIN_S)

    def commit(self, rows: Iterable[_Row], until_ms: int) -> None:
        """Write records, and that none on time is older than `until_ms`, in one transaction."""
        self._producer.begin_transaction()
        for key, value, time_ms, partition in rows:
            self._produce(self._names.topic, key, value, partition, time_ms)
        # The offsets of the records are known once they are written.
        self._producer.flush()
        for partition, end in self.ends.items():
            last = end - 1 if end else None
            progress = Progress(partition, until_ms, until_ms + GRACE_MS, "raw", end, last)
            self._tell(partition, *progress_row(progress))
            if milestone_of(progress) > self._milestones[partition]:
                self._milestones[partition] = milestone_of(progress)
                self._tell(partition, *milestone_row(progress))
        self._producer.commit_transaction(_WITHIN_S)

    def _tell(self, partition: int, key: bytes, value: bytes) -> None:
        self._produce(self._said, key, value, partition, 0)

    def _produce(
        self, topic: str, key: bytes, value: bytes | None, partition: int, time_ms: int
    ) -> None:
        noted = self._note if topic == self._names.topic else None
        while True:
            try:
                self._producer.produce(
                    topic, value, key, partition, timestamp=time_ms, on_delivery=noted
                )
            except BufferError:
                self._producer.poll(_FULL_WAIT_S)
            else:
                return

    def _note(self, _error: object, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        assert partition is not None, "a written record has a partition"
        assert offset is not None, "a written record has an offset"
        self.ends[partition] = offset + 1


def _write(servers: str, names: Cleaned, records: _Records, last: Iterable[_Row]) -> int:
    sidecar = Sidecar(servers, names)
    size = len(records.keys)
    for start in range(0, size, _RECORDS_A_COMMIT):
        end = min(start + _RECORDS_A_COMMIT, size)
        rows = zip(*(column[start:end] for column in records), strict=True)
        sidecar.commit(rows, records.times_ms[end - 1] - GRACE_MS)
    # At the end both sidecars have passed everything, so that every order leaves.
    sidecar.commit(last, _LAST_MS + 1)
    return sum(sidecar.ends.values())
