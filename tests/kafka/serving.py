"""A server in a thread of its own, with a loop of its own, while a test goes on beside it."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

_STARTED_WITHIN_S = 60.0


class ThreadedServer(ABC):
    """Says `_listens` once it does, and ends when `_is_over` is set."""

    def __init__(self) -> None:
        """Nobody listens before `run`."""
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
        everything = asyncio.all_tasks() - {asyncio.current_task()}
        for one in everything:
            one.cancel()
        await asyncio.gather(*everything, return_exceptions=True)

    @abstractmethod
    async def _open(self) -> list[asyncio.Server]:
        """Begin to listen."""
