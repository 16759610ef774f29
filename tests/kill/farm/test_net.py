"""Requests between a client and a server that answers each with itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import pytest

from headrace.services.broker.ports import LOOPBACK, free_ports
from tests.kafka.serving import Connections, cancel_others
from tests.kill.farm.net import Fate, Net, Trap
from tests.runtime.proxy import Kind

WITHIN_S = 60.0


class Server:
    """Takes note of every whole request, and answers it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.heard: list[bytes] = []

    async def serve(self, listens: asyncio.Event, over: asyncio.Event) -> None:
        """Until it is over."""
        carried = Connections().carried_by(self._answer)
        server = await asyncio.start_server(carried, LOOPBACK, self.port)
        listens.set()
        await over.wait()
        server.close()
        await cancel_others()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                length = await reader.readexactly(4)
                body = await reader.readexactly(int.from_bytes(length))
                self.heard.append(body)
                answer = body[4:8] + body
                writer.write(len(answer).to_bytes(4) + answer)
        except (EOFError, ConnectionError):
            return


def request(kind: Kind, number: int) -> bytes:
    body = kind.to_bytes(2) + b"\0\0" + number.to_bytes(4) + b"and more"
    return len(body).to_bytes(4) + body


async def ask(door: int, *requests: bytes) -> bool:
    """Whether all were answered over one connection."""
    reader, writer = await asyncio.open_connection(LOOPBACK, door)
    try:
        for one in requests:
            writer.write(one)
            length = await reader.readexactly(4)
            await reader.readexactly(int.from_bytes(length))
    except (EOFError, ConnectionError):
        return False
    finally:
        writer.transport.abort()
    return True


@contextmanager
def between() -> Iterator[tuple[Net, int, Server]]:
    door, port = free_ports(2)
    server = Server(port)
    net = Net([door], lambda _: port, seed=1)
    loop = asyncio.new_event_loop()
    listens, over = asyncio.Event(), asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(server.serve(listens, over),))
    thread.start()
    asyncio.run_coroutine_threadsafe(listens.wait(), loop).result(WITHIN_S)
    try:
        with net.run():
            yield net, door, server
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


END, PRODUCE = request(Kind.END_TXN, 1), request(Kind.PRODUCE, 2)


@pytest.mark.parametrize(
    ("fate", "answers", "heard"),
    [
        (Fate.LOST, 1, []),
        (Fate.TORN, 1, []),
        (Fate.UNANSWERED, 1, [END]),
        (Fate.SLOW, 2, [END]),
    ],
)
def test_a_request_meets_its_fate_once(fate: Fate, answers: int, heard: list[bytes]) -> None:
    with between() as (net, door, server):
        trap = Trap(Kind.END_TXN, fate)
        net.set_trap(trap)
        assert asyncio.run(ask(door, PRODUCE, END)) == (answers == 2)
        assert trap.wait(WITHIN_S)
        assert server.heard == [one[4:] for one in (PRODUCE, *heard)]
        assert asyncio.run(ask(door, END))


def test_a_late_request_arrives_before_another_of_the_next() -> None:
    with between() as (net, door, server):
        net.set_trap(Trap(Kind.END_TXN, Fate.LATE, before=Kind.PRODUCE, passes=1))
        assert not asyncio.run(ask(door, END))
        assert server.heard == []
        assert asyncio.run(ask(door, PRODUCE, PRODUCE))

        async def until_it_arrives() -> None:
            async with asyncio.timeout(WITHIN_S):
                while END[4:] not in server.heard:  # noqa: ASYNC110 - the server is another loop's
                    await asyncio.sleep(0.01)

        asyncio.run(until_it_arrives())
        assert server.heard[0] == PRODUCE[4:]
        assert server.heard.count(END[4:]) == 1


@pytest.mark.parametrize("weather", ["mute", "deaf"])
def test_a_connection_that_went_one_way_goes_on_when_that_is_over(
    weather: Literal["mute", "deaf"],
) -> None:
    with between() as (net, door, server):
        net.become(weather)

        async def ask_and_wait() -> bool:
            asked = asyncio.ensure_future(ask(door, PRODUCE))
            if weather == "deaf":
                async with asyncio.timeout(WITHIN_S):
                    while not server.heard:  # noqa: ASYNC110 - the server is another loop's
                        await asyncio.sleep(0.01)
            assert not asked.done()
            assert len(server.heard) == (weather == "deaf")
            await asyncio.to_thread(net.become, "clear")
            return await asked

        assert asyncio.run(ask_and_wait())
        assert len(server.heard) == 1
