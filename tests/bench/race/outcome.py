"""The output, read to the end, and reduced to numbers that can be compared.

A record counts with its key, value and timestamp. The checksum does not depend on order or
partition; the sequence of each partition is kept beside it, for operators that promise an order.
Headers do not count: headrace writes a result's window into one, and nobody else does.
"""

from __future__ import annotations

from array import array
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition

from tests.bench.race.source import PARTITIONS

_frame = Struct(">iiq")
_MASK = (1 << 64) - 1


class Outcome:
    """Digests of records, by partition and in order."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.sequences: list[array[int]] = [array("Q") for _ in range(PARTITIONS)]
        self.next_offsets = [0] * PARTITIONS
        """Behind the last record of each partition; transactions leave marks behind it."""

    def add(self, partition: int, key: bytes | None, value: bytes | None, time_ms: int) -> None:
        """One record more."""
        key, value = key or b"", value or b""
        framed = _frame.pack(len(key), len(value), time_ms) + key + value
        digest = int.from_bytes(blake2b(framed, digest_size=8).digest())
        self.sequences[partition].append(digest)

    @property
    def count(self) -> int:
        """How many records."""
        return sum(map(len, self.sequences))

    @property
    def checksum(self) -> int:
        """The same for the same records in any order and any partition."""
        return sum(map(sum, self.sequences)) & _MASK

    @property
    def order(self) -> tuple[bytes, ...]:
        """The same for the same records in the same order in each partition."""
        return tuple(
            blake2b(sequence.tobytes(), digest_size=8).digest() for sequence in self.sequences
        )


async def read_outcome(topic: str, bootstrap_servers: str) -> Outcome:
    """Everything committed in a topic."""
    outcome = Outcome()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        group_id=None,
    )
    async with consumer:
        partitions = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        consumer.assign(partitions)
        # Open transactions included: a broker answers a commit before readers are shown it.
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap_servers) as anything:
            ends = await anything.end_offsets(partitions)
        while True:
            behind = [one for one in partitions if await consumer.position(one) < ends[one]]
            if not behind:
                return outcome
            for partition, records in (await consumer.getmany(timeout_ms=200)).items():
                number = partition.partition
                for record in records:
                    outcome.add(number, record.key, record.value, record.timestamp)
                outcome.next_offsets[number] = records[-1].offset + 1


class Disagreement(Exception):
    """Two contestants made different records out of the same ones."""


class Fingerprint(NamedTuple):
    """The numbers that two outcomes must share."""

    records: int
    checksum: int
    order: tuple[bytes, ...] | None
    """None for operators that promise none."""


def fingerprint(outcome: Outcome, *, ordered: bool) -> Fingerprint:
    """The numbers of an outcome that count."""
    return Fingerprint(outcome.count, outcome.checksum, outcome.order if ordered else None)


def check_same(name: str, outcome: Outcome, first: Outcome, *, ordered: bool) -> None:
    """Refuse an outcome that is not the first one's."""
    mine, theirs = (fingerprint(one, ordered=ordered) for one in (outcome, first))
    if mine != theirs:
        message = f"{name} made {mine}, and the first to do the same {theirs}"
        raise Disagreement(message)


def check_beginning(name: str, outcome: Outcome, whole: Outcome) -> None:
    """Refuse an outcome that, in some partition, is not how the whole one begins."""
    pairs = zip(outcome.sequences, whole.sequences, strict=True)
    if any(mine != theirs[: len(mine)] for mine, theirs in pairs):
        message = f"{name} does not begin as the others do"
        raise Disagreement(message)
