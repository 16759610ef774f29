"""A plain, fast load: a stretch of the stream again and again, each time later.

Where a soak's load comes from should cost little beside what it loads; so records are made once,
and only their times move. A round is longer than any interval of the pipelines, so that ids,
windows and held records come and go as they would with new ones.
"""

from __future__ import annotations

import asyncio
import threading
import time
from itertools import islice

from aiokafka import AIOKafkaProducer

from headrace.contracts.record import Record
from tests.kill.feeder import send
from tests.kill.stream import POISON_MS, Stream

_PORTION = 2_000
_ROUND_MS = 60_000


class Load:
    """A thread that sends so many records a second; None is as fast as it can."""

    def __init__(
        self, servers: str, topic: str, partitions: int, records_per_s: int | None
    ) -> None:
        """Make it; `start` sends."""
        self._servers = servers
        self._topic = topic
        self._records_per_s = records_per_s
        self._portions = _portions(topic, partitions)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._problem: BaseException | None = None
        self.sent = 0

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; what went wrong is raised here."""
        self._stopping.set()
        self._thread.join()
        if self._problem is not None:
            raise self._problem

    def _run(self) -> None:
        try:
            asyncio.run(self._send())
        except BaseException as problem:  # noqa: BLE001 - raised by `stop`
            self._problem = problem

    async def _send(self) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=self._servers, max_batch_size=1 << 20)
        await producer.start()
        try:
            due_at = time.monotonic()
            ahead_ms = 0
            while not self._stopping.is_set():
                for portion in self._portions:
                    await send(producer, self._topic, [_later(one, ahead_ms) for one in portion])
                    self.sent += len(portion)
                    if self._records_per_s is not None:
                        due_at += len(portion) / self._records_per_s
                        await asyncio.sleep(max(0.0, due_at - time.monotonic()))
                        due_at = max(due_at, time.monotonic() - 1)
                    if self._stopping.is_set():
                        break
                ahead_ms += self._round_ms()
        finally:
            await producer.stop()

    def _round_ms(self) -> int:
        times_ms = [one.timestamp_ms for portion in self._portions for one in portion]
        believed = [time_ms for time_ms in times_ms if time_ms < POISON_MS]
        return max(_ROUND_MS, max(believed) - min(believed))


def _portions(topic: str, partitions: int) -> list[list[Record]]:
    """Enough of the stream for a round, cut into portions."""
    stream = Stream(topic, partitions, seed=0)
    count = 800 * partitions // 1_000 + 8
    return [portion.records for portion in islice(stream.portions(_PORTION), 2 * count)]


def _later(record: Record, ahead_ms: int) -> Record:
    if record.timestamp_ms >= POISON_MS:
        return record
    return record._replace(timestamp_ms=record.timestamp_ms + ahead_ms)
