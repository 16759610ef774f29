"""An instance ends transactions of others, for all partitions that come to it.

Partitions come together, and often from one owner. So a question is put once for all who need its
answer at the time, over one connection.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, NamedTuple, TypeVar

from aiokafka.client import AIOKafkaClient

from headrace.services.kafka.requests import Identity
from headrace.services.kafka.unfinished import Ended, Known, Takeover, Told
from headrace.services.kafka.writers import Writers

T = TypeVar("T")


class _Given(NamedTuple):
    """An id that was taken from whoever had it."""

    identity: Identity
    told: list[Told]


class Takeovers:
    """One instance's; its connection is made when it is needed."""

    def __init__(self, client: Mapping[str, Any], topics: Collection[str], timeout_ms: int) -> None:
        """Connect with these options; all that is written goes to these topics."""
        self._options = client
        self._topics = topics
        self._timeout_ms = timeout_ms
        self._client: Any = None
        self._connecting = asyncio.Lock()
        self._writers = Writers(self._send)
        self._given: dict[str, _Given] = {}
        self._next: dict[tuple[str, str], asyncio.Task[Any]] = {}
        self._turns: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)

    async def _send(self, node: int, request: Any) -> Any:
        return await self._client.send(node, request)

    async def _takeover(self, transactional_id: str, known: Known) -> Takeover:
        async with self._connecting:
            if self._client is None:
                client = AIOKafkaClient(**self._options)
                try:
                    await client.bootstrap()
                    await client.set_topics([*self._topics])
                except BaseException:
                    await client.close()
                    raise
                self._client = client
        return Takeover(self._client, transactional_id, self._timeout_ms, known, self._writers)

    async def look(self, transactional_id: str, told: list[Told], known: Known) -> list[Ended]:
        """End what stands open of an id of ours from before it was given to us."""
        takeover = await self._takeover(transactional_id, known)
        await takeover.end(told)
        return takeover.ended

    async def end(self, transactional_id: str, known: Known) -> list[Ended]:
        """End what another has open under an id, and what an outage left of it."""
        told = await self._once("end", transactional_id, self._end)
        return await self.look(transactional_id, told, known)

    async def _end(self, transactional_id: str) -> list[Told]:
        takeover = await self._takeover(transactional_id, Known({}))
        given = self._given.get(transactional_id)
        if given is None or not await takeover.is_given_to(given.identity):
            given = self._given[transactional_id] = _Given(*await takeover.give())
        return given.told

    async def _once(self, what: str, transactional_id: str, do: Callable[[str], Awaitable[T]]) -> T:
        """Do something for all who ask for it while it is done for others."""
        key = what, transactional_id
        coming = self._next.get(key)
        if coming is None:
            coming = self._next[key] = asyncio.create_task(self._in_turn(key, do))
        # One who gives up leaves it to the others.
        done: T = await asyncio.shield(coming)
        return done

    async def _in_turn(self, key: tuple[str, str], do: Callable[[str], Awaitable[T]]) -> T:
        async with self._turns[key]:
            # A later question may be about a later transaction.
            del self._next[key]
            return await do(key[1])

    async def retire(self, transactional_id: str, known: Known) -> list[Ended]:
        """End once what an earlier headrace has open under an id that nobody has any more."""
        takeover = await self._takeover(transactional_id, known)
        await takeover.retire()
        return takeover.ended

    async def settled(self, transactional_id: str) -> None:
        """Wait until all readers see what was committed last under an id."""
        await self._once("settled", transactional_id, self._settled)

    async def _settled(self, transactional_id: str) -> None:
        await (await self._takeover(transactional_id, Known({}))).until_over()

    async def close(self) -> None:
        """Hang up."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()
