"""Batches of records: filled in order, sent when they are full, and acknowledged.

An outbox has its own. Towards the partitions behind a repartition, all partitions that commit
together fill the same: a batch costs much, and each of P partitions would send P. So a place also
gets their records by turns, piece by piece. In batches of one partition each, it would get what a
whole transaction has of one, and all of it would wait for what comes of the others behind it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple, Protocol

from aiokafka.errors import MessageSizeTooLargeError, RecordListTooLargeError
from aiokafka.structs import TopicPartition

from headrace.contracts.errors import TopicRefused
from headrace.services.kafka.filling import new_batch
from headrace.services.kafka.limits import Limits

_TOO_LARGE = (MessageSizeTooLargeError, RecordListTooLargeError)
Fill = Callable[..., int]
"""Appends records to a batch from the place `start` on; the place of the first that did not fit."""


class Sender(Protocol):
    """A producer, as batches need it."""

    is_transactional: bool
    """Whether what is sent counts only once it is committed."""

    def telling_failures(self) -> AbstractContextManager[Any]:
        """Give the producer for a while; a failure is raised as what it is."""
        ...

    async def heard(self, acknowledged: asyncio.Future[Any]) -> Any:
        """Wait for the broker's answer to a batch."""
        ...


class Filled(NamedTuple):
    """Records in batches, and those that no batch takes."""

    too_large: list[int]
    """The places of those that are too large for the topic, and were not sent."""
    size_bytes: int
    """The others take so much."""


class _Sent(NamedTuple):
    """A batch on its way."""

    acknowledged: asyncio.Future[Any]
    records: int
    to: TopicPartition


def refused(topic: str, takes_bytes: int) -> TopicRefused:
    """Return the error for a topic that does not take what cannot be made smaller."""
    return TopicRefused(
        f"`{topic}` takes {takes_bytes} bytes at once, which is less than headrace must write"
        " there; raise its max.message.bytes"
    )


class Batches:
    """Towards any partitions; those who fill them take turns between two pieces."""

    def __init__(self, limits: Limits, sender: Sender) -> None:
        """Begin without any."""
        self.limits = limits
        self._sender = sender
        self._filling: dict[TopicPartition, Any] = {}
        self._sent: list[_Sent] = []
        self._turns: defaultdict[TopicPartition, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def fill(self, to: TopicPartition, count: int, fill: Fill) -> Filled:
        """Append so many records, in order."""
        too_large: list[int] = []
        start = size_bytes = 0
        while start < count:
            batch = self._batch(to)
            before_bytes = batch.size()
            start = fill(batch, start=start)
            # Limits change while a batch is filled: one of several records is refused, and no loss.
            is_alone = batch.record_count() == 1
            if is_alone and batch.size() > self.limits.record_bytes(to.topic):
                del self._filling[to]
                too_large.append(start - 1)
                continue
            size_bytes += batch.size() - before_bytes
            if batch.closed():
                await self._send(to)
        return Filled(too_large, size_bytes)

    def _batch(self, to: TopicPartition) -> Any:
        batch = self._filling.get(to)
        if batch is None:
            batch = self._filling[to] = new_batch(
                self.limits.batch_bytes(to.topic), is_transactional=self._sender.is_transactional
            )
        return batch

    async def _send(self, to: TopicPartition) -> None:
        batch = self._filling.pop(to)
        count, size_bytes = batch.record_count(), batch.size()
        batch.close()
        # A producer lets a batch wait for the one before it, and the next would overtake both.
        async with self._turns[to]:
            with self._sender.telling_failures() as producer:
                acknowledged = await producer.send_batch(batch, to.topic, partition=to.partition)
        acknowledged.add_done_callback(partial(self._hear, to.topic, size_bytes, count))
        self._sent.append(_Sent(acknowledged, count, to))

    def _hear(
        self, topic: str, size_bytes: int, records: int, acknowledged: asyncio.Future[Any]
    ) -> None:
        """Learn from a refusal, whatever fails first because of it."""
        if not acknowledged.cancelled() and isinstance(acknowledged.exception(), _TOO_LARGE):
            self.limits.learn(topic, size_bytes, records)

    def has_sent(self, to: TopicPartition) -> bool:
        """Whether anything went there that `settle` was not told of yet."""
        return to in self._filling or any(sent.to == to for sent in self._sent)

    async def settle(self) -> dict[TopicPartition, int]:
        """Wait until everything sent is acknowledged; the next offset of each partition."""
        for to in list(self._filling):
            await self._send(to)
        ends: dict[TopicPartition, int] = {}
        sent, self._sent = self._sent, []
        for acknowledged, count, to in sent:
            metadata = await self._sender.heard(acknowledged)
            ends[to] = metadata.offset + count
        return ends

    def forget(self) -> None:
        """Wait for nothing any more, and send nothing that was not sent."""
        for sent in self._sent:
            sent.acknowledged.cancel()
        self._sent, self._filling = [], {}
