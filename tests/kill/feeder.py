"""Writes the stream, at a steady rate, whatever becomes of the broker meanwhile.

A producer's answer from a broker that dies may be wrong either way. It does not matter here: the
judge goes by what stands in the topic, and not by what was meant to stand there.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from headrace.contracts.record import Record
from tests.kill.stream import Portion

_BATCH_BYTES = 256 << 10
_TRANSACTION_MS = 10_000
_AGAIN_S = 0.2


class Feeder:
    """A thread that feeds a topic until it is stopped."""

    def __init__(
        self,
        servers: str,
        topic: str,
        portions: Iterator[Portion],
        records_per_s: int,
        codec: str | None = None,
        *,
        transacts: bool = True,
    ) -> None:
        """Make it; `start` sends. Without transactions everything counts."""
        self._transacts = transacts
        self._codec = codec
        self._records_per_s = records_per_s
        self._servers = servers
        self._topic = topic
        self._portions = portions
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feeder", daemon=True)
        self._problem: BaseException | None = None
        self._producers: list[Any] = []
        self._is_open = False
        self.sent = 0
        """Records that were sent, those of aborted transactions included."""
        self.aborted = 0
        """Records in transactions that were aborted."""
        self.failures = 0
        """How often the broker went away."""

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End with the transaction that is open; what went wrong is raised here."""
        self._stopping.set()
        self._thread.join()
        if self._problem is not None:
            raise self._problem

    def _run(self) -> None:
        try:
            asyncio.run(self._feed())
        except BaseException as problem:  # noqa: BLE001 - raised by `stop`
            self._problem = problem

    async def _feed(self) -> None:
        due_at = time.monotonic()
        try:
            for portion in self._portions:
                if not self._transacts:
                    portion = portion._replace(fate="plain", ends=True)  # noqa: PLW2901
                await self._send_whatever_comes(portion)
                is_outside = portion.fate == "plain" and self._transacts
                if self._stopping.is_set() and portion.ends and not is_outside:
                    return
                due_at += len(portion.records) / self._records_per_s
                await asyncio.sleep(max(0.0, due_at - time.monotonic()))
                # The feeder does not catch up on records that a slow broker did not take.
                due_at = max(due_at, time.monotonic())
        finally:
            await self._disconnect()

    async def _send_whatever_comes(self, portion: Portion) -> None:
        try:
            await self._send(portion)
        except KafkaError:
            self.failures += 1
            await self._disconnect()
            await asyncio.sleep(_AGAIN_S)

    async def _send(self, portion: Portion) -> None:
        if not self._producers:
            await self._connect()
        plain, transactional = self._producers
        if portion.fate == "plain":
            await send(plain, self._topic, portion.records)
        else:
            if not self._is_open:
                await transactional.begin_transaction()
                self._is_open = True
            await send(transactional, self._topic, portion.records)
            if portion.ends:
                self._is_open = False
                await self._end(transactional, portion)
            if portion.fate == "aborted":
                self.aborted += len(portion.records)
        self.sent += len(portion.records)

    async def _end(self, transactional: Any, portion: Portion) -> None:
        if portion.fate == "committed":
            await transactional.commit_transaction()
        else:
            await transactional.abort_transaction()

    async def _connect(self) -> None:
        plain = AIOKafkaProducer(**self._options())
        transactional = AIOKafkaProducer(
            **self._options(), transactional_id="feeder", transaction_timeout_ms=_TRANSACTION_MS
        )
        self._producers = [plain, transactional]
        self._is_open = False
        for producer in self._producers:
            await producer.start()

    def _options(self) -> dict[str, Any]:
        return {
            "bootstrap_servers": self._servers,
            "acks": "all",
            "enable_idempotence": True,
            "max_batch_size": _BATCH_BYTES,
            "compression_type": self._codec,
        }

    async def _disconnect(self) -> None:
        producers, self._producers = self._producers, []
        for producer in producers:
            try:
                await producer.stop()
            except KafkaError:
                self.failures += 1


async def send(producer: Any, topic: str, records: list[Record]) -> None:
    """Send records to their partitions, and wait until they are acknowledged."""
    parts: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        parts[record.partition].append(record)
    acknowledged = []
    for partition, part in parts.items():
        batch = producer.create_batch()
        for record in part:
            fitted = batch.append(
                key=record.key,
                value=record.value,
                timestamp=record.timestamp_ms,
                headers=list(record.headers),
            )
            assert fitted is not None, "a portion must fit into one batch"
        acknowledged.append(await producer.send_batch(batch, topic, partition=partition))
    for one in acknowledged:
        await one
