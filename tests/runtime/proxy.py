"""A proxy between a sidecar and its broker that strikes at one request of a transaction.

    with proxied(make_broker) as (broker, proxy):
        strike = proxy.strike(Kind.END_TXN, How.LATE, before=Kind.PRODUCE, passes=1)
        strike.wait()

Or the sidecar is cut off at such a request, until `proxy.restore()`.

It understands as much of Kafka's protocol as tells requests apart: each begins with its length, its
kind, its version and a number that its answer repeats.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any

from headrace.services.broker.embedded import EmbeddedBroker
from headrace.services.broker.kraft import PLAINTEXT, Endpoint, Listener
from headrace.services.broker.ports import free_ports
from tests.kafka.fixtures import OwnKafka
from tests.kafka.frames import CutError, read_frame
from tests.kafka.serving import Connections, ThreadedServer
from tests.runtime.sidecar import WITHIN_S

_LOOPBACK = "127.0.0.1"
_SLOW_S = 0.5
METADATA = 3
"""A question about topics, of which none named means all; its number in Kafka's protocol."""
OFFSET_COMMIT = 8
"""An offset that is committed outside of a transaction."""
_FLEXIBLE_METADATA = 9


class Kind(IntEnum):
    """The requests of a transaction, by their number in Kafka's protocol."""

    PRODUCE = 0
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28


class How(Enum):
    """The fates of a request."""

    LATE = "its connection is cut, and it arrives within the next transaction"
    UNANSWERED = "it arrives, and its connection is cut before the answer"
    LOST = "its connection is cut, and it never arrives"
    SLOW = "it takes its time"
    CUT_OFF = "it never arrives, and nor does anything else, either way, until the network is back"


@dataclass(eq=False)
class Strike:
    """At the next request of a kind."""

    kind: Kind
    how: How
    before: Kind
    """Behind the end of that transaction, a late request arrives right before one of these."""
    passes: int = 0
    """And so many of these may pass before; where all is cut off, so many of its own kind."""
    held: bytes | None = None
    is_next_transaction: bool = False
    _done: threading.Event = field(default_factory=threading.Event)

    def finish(self) -> None:
        """It has struck."""
        self._done.set()

    def wait(self) -> None:
        """Wait until it has struck, and what was held has arrived and was answered."""
        assert self._done.wait(WITHIN_S), f"no {self.kind.name} was struck: {self}"


class Proxy(ThreadedServer):
    """Listens at one port of this machine, and speaks with a broker at another."""

    def __init__(self, port: int, broker_port: int) -> None:
        """Listen at no port before `run`."""
        super().__init__()
        self._port = port
        self._broker_port = broker_port
        self._strike: Strike | None = None
        self._connections = Connections()
        self._is_cut_off = False
        self.carried: set[int] = set()
        """Every kind of request that came through."""
        self.asked_for_all_topics = 0
        """How often somebody did."""

    @property
    def address(self) -> str:
        """Where a sidecar connects."""
        return f"{_LOOPBACK}:{self._port}"

    def strike(self, kind: Kind, how: How, before: Kind, passes: int) -> Strike:
        """Strike at the next request of this kind."""
        strike = Strike(kind, how, before, passes)

        def take() -> None:
            self._strike = strike

        self._loop.call_soon_threadsafe(take)
        return strike

    def cut_off(self, kind: Kind, passes: int = 0) -> Strike:
        """Cut everybody off at such a request; connections stay open, and are silent."""
        return self.strike(kind, How.CUT_OFF, kind, passes)

    def restore(self) -> None:
        """Let the network be back; it does not know the connections of before any more."""

        def restore() -> None:
            self._is_cut_off = False
            self._connections.cut()

        self._loop.call_soon_threadsafe(restore)

    async def _open(self) -> list[asyncio.Server]:
        carried = self._connections.carried_by(self._carry)
        return [await asyncio.start_server(carried, _LOOPBACK, self._port)]

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection(_LOOPBACK, self._broker_port)
        asked: dict[bytes, int] = {}
        ways: list[Coroutine[Any, Any, None]] = [
            self._carry_requests(reader, up_writer, asked),
            self._carry_answers(up_reader, writer, asked),
        ]
        both = [asyncio.ensure_future(way) for way in ways]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # A second cancellation may end the wait below, so the connection is closed before it.
            up_writer.transport.abort()
            for one in both:
                one.cancel()
            await asyncio.gather(*both, return_exceptions=True)

    async def _carry_requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: dict[bytes, int]
    ) -> None:
        while True:
            frame = await read_frame(reader)
            kind = int.from_bytes(frame[4:6])
            await self._hear_request(kind, frame)
            if self._is_cut_off:
                continue
            self.carried.add(kind)
            self.asked_for_all_topics += kind == METADATA and _names_no_topic(frame)
            asked[frame[8:12]] = kind
            writer.write(frame)

    async def _hear_request(self, kind: int, frame: bytes) -> None:
        strike = self._strike
        if strike is None:
            return
        if strike.how is How.CUT_OFF:
            strike.passes -= kind == strike.kind
            if strike.passes < 0:
                self._strike, self._is_cut_off = None, True
                strike.finish()
        elif strike.held is not None and strike.is_next_transaction and kind == strike.before:
            strike.passes -= 1
            if strike.passes >= 0:
                return
            self._strike = None
            await self._ask(strike.held)
            strike.finish()
        elif kind == strike.kind and strike.held is None and strike.how is not How.UNANSWERED:
            if strike.how is How.LATE:
                strike.held = frame
                strike.is_next_transaction = kind == Kind.INIT_PRODUCER_ID
                raise CutError
            self._strike = None
            if strike.how is How.SLOW:
                await asyncio.sleep(_SLOW_S)
            strike.finish()
            if strike.how is How.LOST:
                raise CutError

    async def _carry_answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: dict[bytes, int]
    ) -> None:
        while True:
            frame = await read_frame(reader)
            if self._is_cut_off:
                continue
            kind = asked.pop(frame[4:8])
            strike = self._strike
            if strike is not None:
                if strike.how is How.UNANSWERED and kind == strike.kind:
                    self._strike = None
                    strike.finish()
                    raise CutError
                if strike.held is not None and kind == Kind.END_TXN:
                    strike.is_next_transaction = True
            writer.write(frame)

    async def _ask(self, frame: bytes) -> None:
        """Hand a request to the broker over a connection of its own, and wait for the answer."""
        reader, writer = await asyncio.open_connection(_LOOPBACK, self._broker_port)
        try:
            writer.write(frame)
            await read_frame(reader)
        finally:
            writer.transport.abort()


def _names_no_topic(frame: bytes) -> bool:
    """Whether the list of topics is null: -1, or 0 behind a header's own tags."""
    client_ends = 14 + max(int.from_bytes(frame[12:14], signed=True), 0)
    if int.from_bytes(frame[6:8]) >= _FLEXIBLE_METADATA:
        return frame[client_ends + 1] == 0
    return int.from_bytes(frame[client_ends : client_ends + 4], signed=True) < 0


@contextmanager
def proxied(
    make: OwnKafka, properties: Mapping[str, str] | None = None
) -> Iterator[tuple[EmbeddedBroker, Proxy]]:
    """A broker that sends those who come through a proxy to the proxy again."""
    ours, theirs = free_ports(2)
    way_in = Endpoint(f"{_LOOPBACK}:{theirs}", f"{_LOOPBACK}:{ours}")
    broker = make(properties, listeners={"PROXIED": Listener(PLAINTEXT, way_in)})
    proxy = Proxy(ours, theirs)
    with proxy.run():
        yield broker, proxy
