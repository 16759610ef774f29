"""Records that come in steadily by the clock, and how old their results are once readable.

A record's time is the moment at which it was due. So a writer that is held up makes delays longer,
and hides none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tests.bench.spark.topics import PARTITIONS

ORDERS_A_SECOND, PRICES_A_SECOND = 100, 20
_POLL_S = 0.1


class Due(NamedTuple):
    """The records that became due since the last time, and the time until which that is so."""

    numbers: range
    until_ms: int
    began_ms: float
    a_second: int

    def time_ms(self, number: int) -> float:
        """Return when a record was due."""
        return self.began_ms + number * 1_000 / self.a_second


@contextmanager
def steadily(
    write: Callable[[Due], None], a_second: int, every_s: float, behind_ms: int = 0
) -> Iterator[None]:
    """Have so many records a second written until the end, each when it is old enough."""
    ends = Event()
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(_write, write, a_second, lambda: not ends.wait(every_s), behind_ms)
        try:
            yield
        finally:
            ends.set()
            writing.result()


def _write(
    write: Callable[[Due], None], a_second: int, goes_on: Callable[[], bool], behind_ms: int
) -> None:
    number, began_ms = 0, now_ms() - behind_ms
    while goes_on():
        until_ms = now_ms() - behind_ms
        due = int((until_ms - began_ms) * a_second / 1_000)
        write(Due(range(number, due), int(until_ms), began_ms, a_second))
        number = due


class Row(NamedTuple):
    """A record that was read."""

    time_ms: int
    age_ms: float
    """How old it was when it could be read."""


class Reader:
    """Reads what is committed in a topic, as it comes."""

    def __init__(self, servers: str, topic: str) -> None:
        """Begin with the first record."""
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "nobody",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 10,
            }
        )
        self._consumer.assign(
            [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)]
        )

    def rows(self, seconds: float) -> Iterator[Row]:
        """Yield each record that can be read within so many seconds."""
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0:
            # To ask for many at once is to wait until there are as many, or until the time is over.
            message = self._consumer.poll(min(left_s, _POLL_S))
            if message is not None:
                assert message.error() is None, message.error()
                time_ms = message.timestamp()[1]
                yield Row(time_ms, now_ms() - time_ms)

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()


def now_ms() -> float:
    """Return the time by the clock, which the records carry."""
    return time.time() * 1_000  # noqa: TID251 (records carry the clock's time)
