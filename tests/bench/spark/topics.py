"""The input: versions of prices, and facts that look them up, as two Kafka topics.

Both stand in the order of their times, over the same span; the one has even milliseconds and the
other odd ones, so that nobody has to decide who goes first. So the right result is the same for
all: each fact with the newest version that is not newer than it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple
from zlib import crc32

import numpy as np
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from tests.kafka.clients import FOREVER, Clients

PARTITIONS = 4
START_MS = 1_700_000_000_000
SPAN_MS = 10_000_000
RETENTION_MS = 2 * SPAN_MS
_VERSIONS_A_KEY = 5
_TOMBSTONES = 0.05
_UNKNOWN_KEYS = 0.02
_ROWS_A_POLL = 10_000
_FULL_WAIT_S = 0.5
_READ_AT_ONCE = 10_000


class Size(NamedTuple):
    """How much is joined."""

    facts: int
    versions: int

    @property
    def facts_topic(self) -> str:
        """Where the facts stand."""
        return f"facts-{self.facts}"

    @property
    def versions_topic(self) -> str:
        """Where the versions stand."""
        return f"versions-{self.versions}"


class Digest(NamedTuple):
    """The numbers that two results must share: their rows, and a sum that no order changes."""

    rows: int
    checksum: int


Read = tuple[bytes, bytes, int]
"""Key, value and time of a record; a null is empty."""


def fill(servers: str, size: Size) -> None:
    """Make both topics, and write everything."""
    keys = size.versions // _VERSIONS_A_KEY
    clients = Clients(servers)
    for topic in (size.versions_topic, size.facts_topic):
        clients.make_topic(topic, PARTITIONS, FOREVER)
    random = np.random.default_rng(1)
    _write(servers, size.versions_topic, _versions(random, size.versions, keys))
    _write(servers, size.facts_topic, _facts(random, size.facts, keys))


def digest(rows: Iterable[Read]) -> Digest:
    """Of rows of key, value and time."""
    count = checksum = 0
    for key, value, time_ms in rows:
        count += 1
        checksum += crc32(value, crc32(key, time_ms & 0xFFFFFFFF))
    return Digest(count, checksum)


def read_rows(servers: str, topic: str) -> Iterator[Read]:
    """Everything committed in a topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign(
        [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)]
    )
    open_partitions = PARTITIONS
    try:
        while open_partitions:
            for message in consumer.consume(_READ_AT_ONCE, 1.0):
                if message.error() is not None:
                    open_partitions -= 1
                else:
                    yield message.key() or b"", message.value() or b"", message.timestamp()[1]
    finally:
        consumer.close()


_Row = tuple[bytes, bytes | None, int]


def _versions(random: np.random.Generator, count: int, keys: int) -> Iterator[_Row]:
    for number, (key, at_ms, is_tombstone) in enumerate(
        zip(
            random.integers(0, keys, count).tolist(),
            _times(random, count),
            (random.random(count) < _TOMBSTONES).tolist(),
            strict=True,
        )
    ):
        value = b'{"price":%d.%02d,"currency":"EUR","version":%d}' % (
            key % 97,
            number % 100,
            number,
        )
        yield b"k%07d" % key, None if is_tombstone else value, START_MS + at_ms


def _facts(random: np.random.Generator, count: int, keys: int) -> Iterator[_Row]:
    wanted = random.integers(0, int(keys * (1 + _UNKNOWN_KEYS)), count).tolist()
    for number, (key, at_ms) in enumerate(zip(wanted, _times(random, count), strict=True)):
        value = b'{"order":%d,"quantity":%d,"customer":%d}' % (number, number % 7, number % 1_000)
        yield b"k%07d" % key, value, START_MS + at_ms + 1


def _times(random: np.random.Generator, count: int) -> list[int]:
    return [*map(int, 2 * np.sort(random.integers(0, SPAN_MS // 2, count)))]


def _write(servers: str, topic: str, rows: Iterator[_Row]) -> None:
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "linger.ms": 50,
            "queue.buffering.max.messages": 2_000_000,
            "partitioner": "murmur2",
            "compression.type": "lz4",
        }
    )
    for number, (key, value, time_ms) in enumerate(rows):
        while True:
            try:
                producer.produce(topic, key=key, value=value, timestamp=time_ms)
                break
            except BufferError:
                producer.poll(_FULL_WAIT_S)
        if number % _ROWS_A_POLL == 0:
            producer.poll(0)
    producer.flush()
