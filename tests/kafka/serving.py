"""A server in a thread of its own, with a loop of its own, while a test goes on beside it."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

_STARTED_WITHIN_S = 60.0
_QUIET_TURNS = 3
"""A connection that is being accepted becomes a task one turn later. A task that has ended aborts
its connection in the next turn of the loop, and the connection closes in the turn after that."""
Carry = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


class Connections:
    """The connections of a server, each of which a task of its own carries.

    asyncio leaves a connection open if its task is cancelled before it begins. Here a connection is
    closed however its task ends.
    """

    def __init__(self) -> None:
        """No client has come."""
        self._carrying: set[asyncio.Task[None]] = set()

    def carried_by(
        self, carry: Carry
    ) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        """Return what `asyncio.start_server` calls with each connection."""

        def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.get_running_loop().create_task(carry(reader, writer))
            self._carrying.add(task)
            task.add_done_callback(self._carrying.discard)
            task.add_done_callback(lambda _: writer.transport.abort())

        return meet

    def cut(self) -> None:
        """End all connections."""
        for task in self._carrying:
            task.cancel()


async def cancel_others() -> None:
    """Cancel all other tasks of this loop, and those that begin meanwhile."""
    quiet_turns = 0
    while quiet_turns < _QUIET_TURNS:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        quiet_turns = 0 if others else quiet_turns + 1
        for one in others:
            one.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0)


class ThreadedServer(ABC):
    """Says `_listens` once it does, and ends when `_is_over` is set."""

    def __init__(self) -> None:
        """The server listens once `run` begins."""
        self._loop = asyncio.new_event_loop()
        self._listens = threading.Event()
        self._is_over = asyncio.Event()

    @contextmanager
    def run(self) -> Iterator[None]:
        """Listen in a thread."""
        thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))
        thread.start()
        try:
            assert self._listens.wait(_STARTED_WITHIN_S)
            yield
        finally:
            self._loop.call_soon_threadsafe(self._is_over.set)
            thread.join()
            self._loop.close()

    async def _serve(self) -> None:
        servers = await self._open()
        self._listens.set()
        await self._is_over.wait()
        for server in servers:
            server.close()
        await cancel_others()

    @abstractmethod
    async def _open(self) -> list[asyncio.Server]:
        """Begin to listen."""
