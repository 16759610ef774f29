"""A producer that sends nothing any more once its owner may not, whatever it still holds.

aiokafka never gives up a batch of an idempotent producer: it sends it again as long as it takes. So
a request asks right before it is written whether it may be. A producer can give up what it holds,
with its connections: the kernel discards all that it has not delivered yet.

The private names are those of `seams.py`.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from itertools import chain
from typing import Any

from aiokafka.errors import KafkaError
from aiokafka.protocol.produce import ProduceRequest

from headrace.services.kafka.requests import Identity
from headrace.services.kafka.seams import Connection

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_DISCARD = struct.pack("ii", 1, 0)
"""Linger for no time: who closes the socket then takes back what was not delivered."""
_EPOCH_MAX = 32_766


class GivenUpError(KafkaError):  # type: ignore[misc]
    """The producer gave up what was not acknowledged, since another may soon be the owner.

    It is not one of those that aiokafka tries again.
    """


def now_s() -> float:
    """The time by a clock that goes on while the machine sleeps, where there is one."""
    return time.clock_gettime(_CLOCK)


class Discarding(Connection):
    """A connection that delivers nothing any more once it is closed."""

    def close(self, reason: Any = None, exc: BaseException | None = None) -> Any:
        """Close it; the kernel discards what it has not delivered."""
        if self._writer is not None and not self._writer.transport.is_closing():
            connected = self._writer.transport.get_extra_info("socket")
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DISCARD)
        return super().close(reason, exc)


def send_only_while(producer: Any, may_send: Callable[[], bool]) -> None:
    """Have each batch ask right before it is written, and no connection deliver it once closed."""
    client = producer.client
    send, get_connection = client.send, client._get_conn

    async def get_discarding(*arguments: Any, **options: Any) -> Any:
        connection = await get_connection(*arguments, **options)
        if connection is not None:
            connection.__class__ = Discarding
        return connection

    async def send_if(node_id: int, request: Any, **options: Any) -> Any:
        if not isinstance(request, ProduceRequest):
            return await send(node_id, request, **options)
        prepare = request.prepare

        def prepare_if(versions: Any) -> Any:
            """Called by the connection, which then writes before anything else runs."""
            if not may_send():
                raise GivenUpError
            return prepare(versions)

        request.prepare = prepare_if
        try:
            return await send(node_id, request, **options)
        except KafkaError as problem:
            if may_send():
                raise
            raise GivenUpError from problem

    client.send, client._get_conn = send_if, get_discarding


class _Pending(set[Any]):
    """The batches that wait for an answer; one may be taken out that is not there any more."""

    def remove(self, batch: Any) -> None:
        """Take a batch out, if it is there."""
        self.discard(batch)


def give_up(producer: Any) -> None:
    """Fail all that a producer holds, and close its connections; it must not be allowed to send."""
    accumulator = producer._message_accumulator
    # A batch that is about to be sent again leaves these twice, or was never among them.
    accumulator._pending_batches = _Pending(accumulator._pending_batches)
    accumulator.fail_all(GivenUpError())
    for connection in list(producer.client._conns.values()):
        connection.close()


def take_unsent_as_heard(producer: Any) -> None:
    """Have asyncio say nothing of batches that fail before they are sent.

    The caller that waits for a batch's answer hears of its failure. A batch has a second future,
    for the moment in which it is sent, and no caller asks for that one. asyncio would log its
    failure as an error with a traceback, some time later.
    """
    accumulator = producer._message_accumulator
    fail_all = accumulator.fail_all

    def fail_all_and_hear(problem: BaseException) -> None:
        fail_all(problem)
        for batch in chain.from_iterable(accumulator._batches.values()):
            batch._drain_waiter.exception()

    accumulator.fail_all = fail_all_and_hear


def identity_of(producer: Any) -> Identity:
    """Return the number and epoch under which brokers know a producer that was started."""
    return Identity(*producer._txn_manager._pid_and_epoch)


def next_identity(identity: Identity | None) -> Identity | None:
    """Return the identity by which brokers refuse what this one has sent and is late (KIP-360).

    None where there was none, or no epoch is left: then a broker gives a new number.
    """
    if identity is None or identity.producer_epoch >= _EPOCH_MAX:
        return None
    return identity._replace(producer_epoch=identity.producer_epoch + 1)
