"""The traffic: 240 records a second go in, and each is noted when it can be read."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count, pairwise

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

PARTITIONS = 12
RECORDS_PER_SECOND = 240
_POLL_MS = 100
_VALUE_BYTES = 100


def now_s() -> float:
    """The time of day, as logs have it."""
    return datetime.now(UTC).timestamp()  # noqa: TID251 - beside the stamps of logs


def fill(servers: str, topic: str, keys: int) -> None:
    """Give the workers a state: so many keys, spread evenly."""

    async def produce() -> None:
        async with AIOKafkaProducer(bootstrap_servers=servers, linger_ms=20) as producer:
            for number in range(keys):
                key = b"filled-%d" % number
                value = key.ljust(_VALUE_BYTES, b".")
                await producer.send(topic, value, key, number % PARTITIONS)

    asyncio.run(produce())


class Traffic:
    """Records that are new all the time, and their arrivals at the other end."""

    def __init__(self, servers: str, source: str, sink: str) -> None:
        """The traffic begins with `flowing`."""
        self.arrivals: dict[int, list[float]] = defaultdict(list)
        """When the records of each partition could be read, by a clock that tells the time."""
        self.counts: dict[bytes, int] = defaultdict(int)
        """How often each record came."""
        self.sent: set[bytes] = set()
        self._servers, self._source, self._sink = servers, source, sink
        self._is_over = threading.Event()
        self._is_drained = threading.Event()

    @contextmanager
    def flowing(self) -> Iterator[None]:
        """Records flow while this is open."""
        producing = threading.Thread(target=lambda: asyncio.run(self._produce()))
        watching = threading.Thread(target=lambda: asyncio.run(self._watch()))
        watching.start()
        producing.start()
        try:
            yield
        finally:
            self._is_over.set()
            producing.join()
            self._wait_for_the_last()
            self._is_drained.set()
            watching.join()

    def longest_gap_s(self, partition: int, since_s: float, until_s: float) -> float:
        """The longest time without a record of a partition that could be read."""
        inside = [at for at in self.arrivals[partition] if since_s <= at <= until_s]
        times = [since_s, *inside, until_s]
        return max(after - before for before, after in pairwise(times))

    @property
    def lost(self) -> int:
        """Records that never came."""
        return len(self.sent - self.counts.keys())

    @property
    def doubled(self) -> int:
        """Records that came again."""
        return sum(self.counts[value] - 1 for value in self.sent & self.counts.keys())

    def _wait_for_the_last(self) -> None:
        give_up_at = time.monotonic() + 30
        while self.lost and time.monotonic() < give_up_at:
            time.sleep(0.2)

    async def _produce(self) -> None:
        async with AIOKafkaProducer(bootstrap_servers=self._servers, acks="all") as producer:
            began_at = time.monotonic()
            for number in count():
                if self._is_over.is_set():
                    return
                wait_s = began_at + number / RECORDS_PER_SECOND - time.monotonic()
                if wait_s > 0:
                    await asyncio.sleep(wait_s)
                key = b"flowing-%d" % number
                value = key.ljust(_VALUE_BYTES, b".")
                await producer.send(self._source, value, key, number % PARTITIONS)
                self.sent.add(value)

    async def _watch(self) -> None:
        async with AIOKafkaConsumer(
            self._sink,
            bootstrap_servers=self._servers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            fetch_max_wait_ms=_POLL_MS,
        ) as consumer:
            while not self._is_drained.is_set():
                fetched = await consumer.getmany(timeout_ms=_POLL_MS)
                at_s = now_s()
                for partition, records in fetched.items():
                    for record in records:
                        if record.key.startswith(b"flowing"):
                            self.counts[record.value] += 1
                            self.arrivals[partition.partition].append(at_s)
