"""A shared producer's life, from one epoch to the next, and what breaks it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from aiokafka.errors import KafkaError

from headrace.services.kafka import transactions
from headrace.services.kafka.limits import Limits
from headrace.services.kafka.member_offsets import Teller
from headrace.services.kafka.unfinished import Told
from headrace.services.runtime.output.batches import Batches
from headrace.services.runtime.output.producer import telling_failures


class TransactionBrokenError(Exception):
    """A producer has discarded all that partitions sent since its last commit."""

    def __init__(self, problem: Exception | None) -> None:
        """The transaction failed of this; None where another partition could not go on."""
        super().__init__("another partition failed" if problem is None else repr(problem))
        self.problem = problem


class Life:
    """A producer, from one epoch to the next."""

    is_transactional = True

    def __init__(self, producer: Any, limits: Limits) -> None:
        """Its producer is still to be started."""
        self.producer = producer
        self.batches = Batches(limits, self)
        """Those that all partitions fill."""
        self.told: list[Told] = []
        """Of transactions that were before it."""
        self.teller: Teller
        self.broken: asyncio.Future[TransactionBrokenError] = asyncio.Future()
        self.ended: asyncio.Future[None] = asyncio.Future()
        """The transaction that is open now."""
        self._waiting: set[asyncio.Future[None]] = set()
        self.ending: asyncio.Task[None] | None = None
        """Ends that transaction."""

    def check(self) -> None:
        """Raise what broke it."""
        if self.broken.done():
            raise TransactionBrokenError(self.broken.result().problem)

    def breaks(self, problem: Exception | None) -> None:
        """Let go of all that wait."""
        self.broken.set_result(TransactionBrokenError(problem))
        self.batches.forget()
        for waiter in self._waiting:
            _let_go(waiter)

    async def until(self, event: asyncio.Future[Any]) -> None:
        """Wait for something, or until it is broken.

        `asyncio.wait` would look through all that wait for the same, each time that one goes.
        """
        if not event.done() and not self.broken.done():
            waiter: asyncio.Future[None] = asyncio.Future()
            let_go = partial(_let_go, waiter)
            event.add_done_callback(let_go)
            self._waiting.add(waiter)
            try:
                await waiter
            finally:
                self._waiting.discard(waiter)
                event.remove_done_callback(let_go)
        if not event.done():
            self.check()

    @contextmanager
    def telling_failures(self) -> Iterator[Any]:
        """The producer, for a while; where its transaction is broken, that is what is said."""
        try:
            with telling_failures(self.producer):
                yield self.producer
        except (KafkaError, *transactions.OUT_OF_STATE):
            self.check()
            raise

    async def heard(self, acknowledged: asyncio.Future[Any]) -> Any:
        """Wait for the broker's answer to a batch."""
        await self.until(acknowledged)
        with self.telling_failures():
            return await acknowledged


def _let_go(waiter: asyncio.Future[None], _: object = None) -> None:
    if not waiter.done():
        waiter.set_result(None)
