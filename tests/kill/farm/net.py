"""Brokers with a proxy in front of each: sidecars go through it, everybody else does not.

    cut           every connection ends at once
    slow          each request takes its time
    mute, deaf    requests, or answers, wait until it is over: what a network does that goes one way
    a trap        strikes at the next request of a kind, once

A request that is late arrives over a connection of its own, between other requests of the sidecar
that had sent it, or, where none of those come, a little later.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Literal

from headrace.services.broker.embedded import EmbeddedBroker
from headrace.services.broker.kraft import Endpoint, Node
from headrace.services.broker.ports import LOOPBACK, free_ports
from tests.kafka.frames import CutError, read_frame
from tests.kafka.serving import Connections, ThreadedServer
from tests.runtime.proxy import Kind

Weather = Literal["clear", "slow", "mute", "deaf"]
_SLOW_S = 0.25
_LATE_AT_LAST_S = 1.5
_ANSWER_WITHIN_S = 10.0


class Fate(Enum):
    """The fate of the request that a trap waits for."""

    LATE = "late"
    LOST = "lost"
    TORN = "torn"
    UNANSWERED = "unanswered"
    SLOW = "slow"


@dataclass(eq=False)
class Trap:
    """Strikes at the next request of a kind."""

    kind: Kind
    fate: Fate
    before: Kind = Kind.PRODUCE
    """A late request arrives right before one of these."""
    passes: int = 0
    """And so many of these may pass before."""
    _sprung: threading.Event = field(default_factory=threading.Event)

    def spring(self) -> None:
        """It has struck."""
        self._sprung.set()

    def wait(self, within_s: float) -> bool:
        """Whether it struck."""
        return self._sprung.wait(within_s)


@dataclass(eq=False)
class _Held:
    """A request that is to arrive late."""

    frame: bytes
    door: int
    before: Kind
    passes: int
    due: asyncio.Event = field(default_factory=asyncio.Event)


class ProxiedBrokers(EmbeddedBroker):
    """A cluster whose `bootstrap_servers` are doors; `plain_servers` lead past them."""

    def __init__(self, folder: Path, brokers: int, properties: Mapping[str, str]) -> None:
        """Choose the doors; nothing listens at them yet."""
        self.doors = free_ports(brokers)
        super().__init__(folder, brokers=brokers, properties=properties)

    def behind(self, door: int) -> int:
        """The port of the broker behind a door."""
        return int(self._nodes[door].clients.bound.rpartition(":")[2])

    def _choose_ports(self) -> list[Node]:
        return [
            node._replace(clients=Endpoint(node.clients.bound, f"{LOOPBACK}:{door}"))
            for node, door in zip(super()._choose_ports(), self.doors, strict=True)
        ]


class Net(ThreadedServer):
    """The network between sidecars and brokers."""

    def __init__(self, doors: list[int], behind: Callable[[int], int], seed: int) -> None:
        """The doors open when `run` begins."""
        super().__init__()
        self._doors = doors
        self._behind = behind
        self._random = random.Random(f"net {seed}")
        self._weather: Weather = "clear"
        self._changes = asyncio.Condition()
        self._trap: Trap | None = None
        self._held: list[_Held] = []
        self._connections = Connections()
        self._late: set[asyncio.Task[None]] = set()

    def become(self, weather: Weather) -> None:
        """From now on."""
        asyncio.run_coroutine_threadsafe(self._become(weather), self._loop).result()

    def cut(self) -> None:
        """End all connections."""
        self._loop.call_soon_threadsafe(self._connections.cut)

    def set_trap(self, trap: Trap | None) -> None:
        """Wait for a request; for none with None."""

        def take() -> None:
            self._trap = trap

        self._loop.call_soon_threadsafe(take)

    async def _become(self, weather: Weather) -> None:
        async with self._changes:
            self._weather = weather
            self._changes.notify_all()

    async def _not_while(self, weather: Weather) -> None:
        async with self._changes:
            await self._changes.wait_for(lambda: self._weather != weather)

    async def _open(self) -> list[asyncio.Server]:
        return [
            await asyncio.start_server(
                self._connections.carried_by(partial(self._carry, number)), LOOPBACK, door
            )
            for number, door in enumerate(self._doors)
        ]

    async def _carry(
        self, door: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Carry both ways until one of them ends, or there is no broker."""
        try:
            up_reader, up_writer = await asyncio.open_connection(LOOPBACK, self._behind(door))
        except OSError:
            return
        unanswered: set[bytes] = set()
        both = [
            asyncio.ensure_future(self._carry_requests(door, reader, up_writer, unanswered)),
            asyncio.ensure_future(self._carry_answers(up_reader, writer, unanswered)),
        ]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # A second cancellation may end the wait below, so the connection is closed before it.
            up_writer.transport.abort()
            for one in both:
                one.cancel()
            await asyncio.gather(*both, return_exceptions=True)

    async def _carry_requests(
        self,
        door: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        unanswered: set[bytes],
    ) -> None:
        while True:
            frame = await read_frame(reader)
            await self._not_while("mute")
            if self._weather == "slow":
                await asyncio.sleep(self._random.uniform(0.0, _SLOW_S))
            kind = int.from_bytes(frame[4:6])
            self._let_late_ones_pass(kind)
            trap = self._trap
            if trap is not None and kind == trap.kind:
                self._trap = None
                trap.spring()
                await self._meet_its_fate(trap, door, frame, writer, unanswered)
            writer.write(frame)

    async def _meet_its_fate(
        self,
        trap: Trap,
        door: int,
        frame: bytes,
        writer: asyncio.StreamWriter,
        unanswered: set[bytes],
    ) -> None:
        match trap.fate:
            case Fate.LATE:
                held = _Held(frame, door, trap.before, trap.passes)
                self._held.append(held)
                task = self._loop.create_task(self._arrive_late(held))
                self._late.add(task)
                task.add_done_callback(self._late.discard)
                raise CutError
            case Fate.LOST:
                raise CutError
            case Fate.TORN:
                writer.write(frame[: self._random.randrange(1, len(frame))])
                await writer.drain()
                raise CutError
            case Fate.UNANSWERED:
                unanswered.add(frame[8:12])
            case Fate.SLOW:
                await asyncio.sleep(2 * _SLOW_S)

    def _let_late_ones_pass(self, kind: int) -> None:
        for held in self._held:
            if kind == held.before:
                held.passes -= 1
                if held.passes < 0:
                    held.due.set()

    async def _arrive_late(self, held: _Held) -> None:
        try:
            await asyncio.wait_for(held.due.wait(), _LATE_AT_LAST_S)
        except TimeoutError:
            held.due.set()
        self._held.remove(held)
        try:
            async with asyncio.timeout(_ANSWER_WITHIN_S):
                await self._ask(held)
        except (OSError, EOFError, TimeoutError):
            return  # its broker is down: then the request is lost, which is a fate as well

    async def _ask(self, held: _Held) -> None:
        """Hand a request to its broker over a connection of its own, and wait for the answer."""
        reader, writer = await asyncio.open_connection(LOOPBACK, self._behind(held.door))
        try:
            writer.write(held.frame)
            await read_frame(reader)
        finally:
            writer.transport.abort()

    async def _carry_answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, unanswered: set[bytes]
    ) -> None:
        while True:
            frame = await read_frame(reader)
            await self._not_while("deaf")
            if frame[4:8] in unanswered:
                raise CutError
            writer.write(frame)
