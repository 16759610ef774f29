"""The race's input: the same records for everybody, from one seed.

Records are one step of event time apart. A tenth come up to five seconds late, one in a thousand by
more than the grace of reorder. At the end of each partition stands one record that is far ahead of
all others in time, so that every operator lets go of what it holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from random import Random
from typing import NamedTuple

from aiokafka import AIOKafkaProducer
from aiokafka.partitioner import murmur2

PARTITIONS = 4
START_MS = 1_700_000_000_000
INTERVAL_MS = 60_000
GRACE_MS = 10_000
LIMIT_MS = 60_000
WINDOW_MS = 60_000
WINDOW_GRACE_MS = 30_000
_LAST_MS = 3_600_000
"""How far the last record is ahead: further than anybody holds anything."""
_VALUE_BYTES = 100
_VALUES = 1_000
_OUT_OF_ORDER_SHARE = 0.1
_OUT_OF_ORDER_MS_MAX = 5_000
_LATE_SHARE = 0.001
_LATE_MS = (12_000, 20_000)
_BATCH_BYTES = 900_000
_REQUEST_BYTES = 4 << 20


class Source(NamedTuple):
    """How much is raced over."""

    records: int
    keys: int
    step_ms: int = 1
    seed: int = 1

    @property
    def records_with_last(self) -> int:
        """The contents of the topic."""
        return self.records + PARTITIONS


class Sent(NamedTuple):
    """One record of the input."""

    partition: int
    key: bytes
    value: bytes
    timestamp_ms: int


def sent(source: Source) -> Iterator[Sent]:
    """Every record, in the order in which it is written."""
    random = Random(source.seed)
    values = [_value(random) for _ in range(_VALUES)]
    partitions: dict[bytes, int] = {}
    for number in range(source.records):
        key = b"k%d" % random.randrange(source.keys)
        partition = partitions.get(key)
        if partition is None:
            partition = partitions[key] = partition_of(key)
        timestamp_ms = START_MS + number * source.step_ms - _behind_ms(random)
        yield Sent(partition, key, values[number % _VALUES], timestamp_ms)
    end_ms = START_MS + source.records * source.step_ms + _LAST_MS
    for partition in range(PARTITIONS):
        keys = (b"last-%d" % number for number in count())
        key = next(key for key in keys if partition_of(key) == partition)
        yield Sent(partition, key, values[0], end_ms)


def partition_of(key: bytes) -> int:
    """Where Kafka's own clients put a key."""
    hashed: int = murmur2(key)
    return (hashed & 0x7FFFFFFF) % PARTITIONS


async def pour(records: Iterator[Sent], topic: str, bootstrap_servers: str) -> None:
    """Write records into a topic, in whole batches."""
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap_servers,
        max_batch_size=_BATCH_BYTES,
        max_request_size=_REQUEST_BYTES,
    )
    async with producer:
        batches = [producer.create_batch() for _ in range(PARTITIONS)]
        under_way = []
        for partition, key, value, timestamp_ms in records:
            written = batches[partition].append(key=key, value=value, timestamp=timestamp_ms)
            if written is None:
                full = batches[partition]
                under_way.append(await producer.send_batch(full, topic, partition=partition))
                batches[partition] = producer.create_batch()
                batches[partition].append(key=key, value=value, timestamp=timestamp_ms)
        for partition, batch in enumerate(batches):
            under_way.append(await producer.send_batch(batch, topic, partition=partition))
        for one in under_way:
            await one


def _behind_ms(random: Random) -> int:
    draw = random.random()
    if draw < _LATE_SHARE:
        return random.randrange(*_LATE_MS)
    if draw < _LATE_SHARE + _OUT_OF_ORDER_SHARE:
        return random.randrange(_OUT_OF_ORDER_MS_MAX)
    return 0


def _value(random: Random) -> bytes:
    """A small JSON object, most of which no compression can guess."""
    head = b'{"amount":%.2f,"text":"' % (random.random() * 100)
    text = random.randbytes(_VALUE_BYTES).hex().encode()
    return (head + text)[: _VALUE_BYTES - 2] + b'"}'
