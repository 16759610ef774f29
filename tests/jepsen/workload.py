"""Writers and readers over any log, for a while; what they saw is the history.

Half of the writers write in transactions. All of them rest for random times, so that some have a
transaction open while others come and go. A writer that is not answered, or refused, gives up what
it was at and lives on under another name: what it had sent may still arrive, in whatever order.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Sequence
from typing import NamedTuple, Protocol

from tests.jepsen.history import End, Event, Finished, History, Outcome, Read, Write

_COMMITS = 0.75
_VALUES_MAX = 6


class Unknown(Exception):
    """No answer came, or one that says nothing: it may have happened or not."""


class Refused(Exception):
    """It has not happened, and never will."""


class Writer(Protocol):
    """Writes to a log; without a transaction each value by itself."""

    async def begin(self) -> None:
        """Begin a transaction."""

    async def send(self, partition: int, value: str) -> Awaitable[object]:
        """Send a value; what is returned is done when it is acknowledged."""
        ...

    async def commit(self) -> None:
        """Commit the transaction that is open."""

    async def abort(self) -> None:
        """Abort it."""

    async def close(self) -> None:
        """Give up whatever is open, and go."""


class Reader(Protocol):
    """Reads what is committed."""

    async def some(self) -> Sequence[tuple[int, int, str]]:
        """Return partition, offset and value of new records; wait a little if there are none."""
        ...

    async def rest(self) -> Sequence[tuple[int, int, str]]:
        """All that there still is, when all writers have ended."""
        ...

    async def close(self) -> None:
        """Go."""


class Log(Protocol):
    """The client's operations; each raises `Unknown` or `Refused` where it fails."""

    partitions: int

    async def writer(self, transactional_id: str | None) -> Writer:
        """One more writer; one of the same id before it can write no more."""
        ...

    async def reader(self) -> Reader:
        """One more reader, from the beginning."""
        ...


class Size(NamedTuple):
    """How much is done."""

    writers: int = 6
    readers: int = 2
    rounds: int = 40
    """So often each writer writes some values, or a transaction."""
    rest_s: float = 0.3
    """The longest rest."""


async def run(log: Log, seed: int, size: Size, over: asyncio.Event | None = None) -> History:
    """Let all of them work, and the readers finish behind them; `over` ends the writers early."""
    history: list[Event] = []
    over = over or asyncio.Event()
    written = asyncio.Event()
    reading = [
        asyncio.ensure_future(_read(log, f"reader-{number}", history, written))
        for number in range(size.readers)
    ]
    writing = [
        _Life(log, number, random.Random(f"{seed} {number}"), history).work(size, over)
        for number in range(size.writers)
    ]
    await asyncio.gather(*writing)
    written.set()
    await asyncio.gather(*reading)
    return history


async def _read(log: Log, name: str, history: list[Event], written: asyncio.Event) -> None:
    reader = await log.reader()
    try:
        while not written.is_set():
            history += [Read(name, *one) for one in await reader.some()]
        history += [Read(name, *one) for one in await reader.rest()]
        history.append(Finished(name))
    finally:
        await reader.close()


class _Life:
    """A writer, over all its names."""

    def __init__(self, log: Log, number: int, luck: random.Random, history: list[Event]) -> None:
        self._log = log
        self._luck = luck
        self._history = history
        self._id = f"writer-{number}" if number % 2 else None
        self._family = f"writer-{number}"
        self._lives = 0
        self._values = 0
        self._writer: Writer | None = None

    @property
    def _name(self) -> str:
        return f"{self._family}.{self._lives}"

    async def work(self, size: Size, over: asyncio.Event) -> None:
        """So many rounds, whatever comes."""
        for _ in range(size.rounds):
            if over.is_set():
                break
            await self._round(size.rest_s)
            await asyncio.sleep(self._luck.uniform(0, size.rest_s))
        if self._writer is not None:
            await self._writer.close()

    async def _round(self, rest_s: float) -> None:
        try:
            if self._writer is None:
                self._writer = await self._log.writer(self._id)
            if self._id is None:
                await self._write(self._writer, None)
            else:
                await self._transact(self._writer, rest_s)
        except (Unknown, Refused):
            broken, self._writer = self._writer, None
            self._lives += 1
            if broken is not None:
                await broken.close()

    async def _transact(self, writer: Writer, rest_s: float) -> None:
        transaction = f"{self._name}-{self._values}"
        commits = self._luck.random() < _COMMITS
        outcome: Outcome = "unknown"
        asked = False
        try:
            await writer.begin()
            await self._write(writer, transaction)
            await asyncio.sleep(self._luck.uniform(0, rest_s))
            asked = commits
            await (writer.commit() if commits else writer.abort())
            outcome = "yes"
        except Refused:
            outcome = "no"
            raise
        finally:
            # A transaction that was never told to commit has not committed.
            self._history.append(End(transaction, "commit" if asked else "abort", outcome))

    async def _write(self, writer: Writer, transaction: str | None) -> None:
        """Some values, all on their way at once."""
        sent: list[tuple[int, Awaitable[object]]] = []
        problem: Exception | None = None
        for _ in range(self._luck.randint(1, _VALUES_MAX)):
            value = f"{self._family}:{self._values}"
            self._values += 1
            partition = self._luck.randrange(self._log.partitions)
            place = len(self._history)
            self._history.append(Write(self._name, partition, value, "unknown", transaction))
            try:
                sent.append((place, await writer.send(partition, value)))
            except (Unknown, Refused) as error:
                self._settle(place, "no" if isinstance(error, Refused) else "unknown")
                problem = error
                break
        for place, acknowledged in sent:
            try:
                await acknowledged
                self._settle(place, "yes")
            except (Unknown, Refused) as error:
                self._settle(place, "no" if isinstance(error, Refused) else "unknown")
                problem = error
        if problem is not None:
            raise problem

    def _settle(self, place: int, outcome: Outcome) -> None:
        write = self._history[place]
        assert isinstance(write, Write)
        self._history[place] = write._replace(outcome=outcome)
