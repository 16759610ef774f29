"""The inputs of a job as sidecars leave them: cleaned topics, with progress in each transaction.

All of a job's inputs stand in the order of their times over the same span, tables at even and
streams at odd milliseconds, so that nobody has to decide who goes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import count
from types import MappingProxyType
from typing import NamedTuple

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
from headrace.contracts.record import Headers
from headrace.contracts.topics import cleaned_topic, progress_topic
from headrace.services.runtime.output.partitioner import murmur2
from tests.bench.spark.topics import PARTITIONS, SPAN_MS, START_MS, Digest, Read, Size
from tests.kafka.clients import Clients

GRACE_MS = 2_000
"""How far the sidecars' progress is behind the newest record, as with a grace of theirs."""
LAST_MS = START_MS + SPAN_MS + GRACE_MS
"""The time of records behind all others, by which whoever waits for a grace lets those leave."""
_RECORDS_A_COMMIT = 5_000
_FULL_WAIT_S = 0.1
_WITHIN_S = 60.0
_Row = tuple[bytes, bytes | None, int, int]
HeadersOf = Callable[[bytes], Headers]
"""The headers of a record with that key."""


Ends = Mapping[tuple[str, int], int]
"""The offset behind the last record of each topic and partition."""


class Cleaned(NamedTuple):
    """The names of one input's topics, and its pipeline."""

    pipeline: str
    topic: str


class Made(NamedTuple):
    """The rows that a job made."""

    digest: Digest
    """Of the rows that must be right."""
    rows: int
    """How many it wrote, tombstones and rows that later ones replace included."""
    stayed: int = 0
    """How many rows that should have gone are in no digest."""


class Filled(NamedTuple):
    """The filled topics of a job, and the rows that it must make of them."""

    job: str
    size: Size
    inputs: dict[str, Cleaned]
    """By the names that the job gives them, the stream or the largest table last."""
    ends: Ends
    wanted: Digest
    judge: Callable[[Iterable[Read]], Made]
    """Digests a topic of rows."""
    judge_streams: Callable[[Iterable[Read]], Made] | None = None
    """Digests those of Kafka Streams, where it promises less."""
    registry: str | None = None
    """Where the schemas of the values stand; without one, values are JSON."""
    round: int = 0
    """So often all contestants have run before; each run has topics of its own."""


class Records(NamedTuple):
    """One input, in the order of its times."""

    keys: list[bytes]
    values: list[bytes | None]
    times_ms: list[int]
    partitions: list[int]


def records_of(
    keys: list[bytes],
    values: list[bytes] | list[bytes | None],
    times_ms: list[int],
    homes: list[bytes] | None = None,
) -> Records:
    """Put records where Kafka's clients put their keys, or these other ones."""
    partitions = [murmur2(key) % PARTITIONS for key in homes or keys]
    return Records(keys, [*values], times_ms, partitions)


def times_of(random: np.random.Generator, records: int, *, odd: bool = False) -> list[int]:
    """Draw the times of records, in their order."""
    even = 2 * np.sort(random.integers(0, SPAN_MS // 2, records))
    return [*map(int, START_MS + odd + even)]


def last_keys() -> list[bytes]:
    """Return a key for each partition that no other record has."""
    found: dict[int, bytes] = {}
    for number in count():
        key = b"last-%d" % number
        found.setdefault(murmur2(key) % PARTITIONS, key)
        if len(found) == PARTITIONS:
            return [*found.values()]
    raise AssertionError


def write(
    servers: str,
    job: str,
    size: Size,
    inputs: Mapping[str, Records],
    headers_of: Mapping[str, HeadersOf] = MappingProxyType({}),
) -> tuple[dict[str, Cleaned], Ends]:
    """Write the inputs of a job; return their names, and where their records end."""
    names = {name: Cleaned(name, f"{job}-{size.facts}-{name}.cleaned") for name in inputs}
    ends: dict[tuple[str, int], int] = {}
    for name, records in inputs.items():
        sidecar = Sidecar(servers, names[name], headers_of.get(name, lambda _key: ()))
        write_records(sidecar, records)
        # At the end all sidecars have passed everything, so that every record leaves.
        sidecar.commit((), LAST_MS + 1)
        ends |= {(names[name].topic, partition): end for partition, end in sidecar.ends.items()}
    return names, ends


class Sidecar:
    """Writes one cleaned topic and its progress, commit by commit."""

    def __init__(
        self, servers: str, names: Cleaned, headers_of: HeadersOf = lambda _key: ()
    ) -> None:
        self._names = names
        self._headers_of = headers_of
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
        is_record = topic == self._names.topic
        headers: list[tuple[str, str | bytes | None]] = []
        if is_record:
            headers += self._headers_of(key)
        noted = self._note if is_record else None
        while True:
            try:
                self._producer.produce(
                    topic,
                    value,
                    key,
                    partition,
                    timestamp=time_ms,
                    headers=headers,
                    on_delivery=noted,
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


def write_records(sidecar: Sidecar, records: Records) -> None:
    """Commit records in pieces, each with the progress behind it."""
    size = len(records.keys)
    for start in range(0, size, _RECORDS_A_COMMIT):
        end = min(start + _RECORDS_A_COMMIT, size)
        rows = zip(*(column[start:end] for column in records), strict=True)
        sidecar.commit(rows, records.times_ms[end - 1] - GRACE_MS)
