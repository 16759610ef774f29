"""A task's fetched records, in order: they wait, and are taken."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from headrace.contracts.record import Record


class Fetched(NamedTuple):
    """A task's records from the source's consumer."""

    records: list[Record]
    size_bytes: int


class GoneError(Exception):
    """The source has lost the records that were to come next; the task is opened again."""


class Inbox:
    """One task's; a batch is expected before it is offered, so that it counts all the way."""

    def __init__(self, wake_elsewhere: Callable[[], None]) -> None:
        """Begin empty; its task may wait for something else as well, and is woken there, too."""
        self._wake_elsewhere = wake_elsewhere
        self.records = 0
        """Those that were brought and not taken yet."""
        self.size_bytes = 0
        """Of their keys and values; a batch counts until all of it is taken."""
        self._fetched: deque[Fetched] = deque()
        self._arrived = asyncio.Event()
        self._enough = 0
        """With so many records, whoever waits is let go."""

    def expect(self, records: int, size_bytes: int) -> None:
        """So much is on its way."""
        self.records += records
        self.size_bytes += size_bytes

    def offer(self, fetched: Fetched) -> None:
        """The next batch is here."""
        self._fetched.append(fetched)
        if self.records >= self._enough:
            self._arrived.set()

    def wake(self) -> None:
        """Let go of whoever waits for the next batch, or for something else."""
        self._arrived.set()
        self._wake_elsewhere()

    async def wait(self, patience_s: float | None) -> None:
        """Wait until there is a batch, or for so long."""
        if not self._fetched:
            await self._wait(0, patience_s)

    async def wait_for_more(self, enough: int, patience_s: float) -> None:
        """Wait until there are so many records, or for so long."""
        if self.records < enough:
            await self._wait(enough, patience_s)

    async def _wait(self, enough: int, patience_s: float | None) -> None:
        self._enough = enough
        self._arrived.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await self._arrived.wait()

    def take(self, enough: int) -> Fetched | None:
        """The next batch, with those behind it until it is large enough; None where none is here.

        A batch costs as much as many records do, and with many partitions each brings one or two.
        """
        if not self._fetched:
            return None
        first = self._fetched.popleft()
        if not first.records or not self._is_next_in_one(first.records, enough):
            return first
        records, size_bytes = first
        while self._is_next_in_one(records, enough):
            part = self._fetched.popleft()
            records.extend(part.records)
            size_bytes += part.size_bytes
            part.records.clear()
        return Fetched(records, size_bytes)

    def _is_next_in_one(self, records: list[Record], enough: int) -> bool:
        return bool(self._fetched and self._fetched[0].records) and len(records) < enough

    def took(self, fetched: Fetched) -> None:
        """All records of a batch were decided."""
        self.size_bytes -= fetched.size_bytes
        # Faust's stream keeps the message that it gave last, and all batches that came in it.
        fetched.records.clear()

    def clear(self) -> None:
        """Forget what was brought and does not count; it is read again."""
        self._fetched.clear()
        self.records = self.size_bytes = 0
