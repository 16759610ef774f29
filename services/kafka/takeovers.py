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
from aiokafka.errors import for_code
from aiokafka.structs import TopicPartition

from headrace.services.group.shared_transaction import must_end_stranger
from headrace.services.kafka.patience import patient
from headrace.services.kafka.requests import Identity, ListTransactions
from headrace.services.kafka.unfinished import Ended, Known, Takeover, Told
from headrace.services.kafka.writers import Open, Writers

T = TypeVar("T")


class _Given(NamedTuple):
    """An id that was taken from its owner."""

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
        self._names: dict[int, str] = {}
        """The ids of producers; a producer keeps its id for ever."""
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
        told = await self.once("end", transactional_id, self._end)
        return await self.look(transactional_id, told, known)

    async def _end(self, transactional_id: str) -> list[Told]:
        # Many partitions wrote under it, in places that are nobody's alone.
        takeover = await self._takeover(transactional_id, Known(dict.fromkeys(self._topics)))
        given = self._given.get(transactional_id)
        if given is None or not await takeover.is_given_to(given.identity):
            given = self._given[transactional_id] = _Given(*await takeover.give())
        return given.told

    async def strangers(
        self, known: Known, alone: Collection[TopicPartition], prefix: str
    ) -> set[str]:
        """The ids of this prefix under which something is open that the owner of `known` must end.

        `alone` are the places where nobody else writes.
        """
        looking = await self._takeover("", known)
        before = await _open_in(looking)
        names = await self._names_of({one.writer.producer_id for one in before})
        doubtful = [
            (one, name)
            for one in before
            if (name := names.get(one.writer.producer_id)) is not None and name.startswith(prefix)
        ]
        over = {
            one: await (await self._takeover(name, known)).is_over(one.writer.producer_epoch)
            for one, name in doubtful
        }
        # A transaction that has ended meanwhile was about to.
        still = await _open_in(looking) if over else []
        return {
            name
            for one, name in doubtful
            if one in still and must_end_stranger(is_over=over[one], is_alone=one.place in alone)
        }

    async def _names_of(self, producer_ids: Collection[int]) -> Mapping[int, str]:
        """The transactional ids of producers, as far as brokers know them, and let us see them."""
        unknown = [one for one in producer_ids if one not in self._names]
        if unknown:
            self._names |= await self._ask_names(unknown)
        return self._names

    @patient
    async def _ask_names(self, producer_ids: Collection[int]) -> dict[int, str]:
        found: dict[int, str] = {}
        for broker in self._client.cluster.brokers():
            answer = await self._client.send(broker.nodeId, ListTransactions(producer_ids))
            if answer.error_code:
                raise for_code(answer.error_code)
            found |= {producer_id: name for name, producer_id, *_ in answer.transaction_states}
        return found

    async def once(self, what: str, of: str, do: Callable[[str], Awaitable[T]]) -> T:
        """Do something for all who ask for it while it is done for others."""
        key = what, of
        coming = self._next.get(key)
        if coming is None:
            coming = self._next[key] = asyncio.create_task(self._in_turn(key, do))
            coming.add_done_callback(hear)
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
        await self.once("settled", transactional_id, self._settled)

    async def _settled(self, transactional_id: str) -> None:
        await (await self._takeover(transactional_id, Known({}))).until_over()

    async def close(self) -> None:
        """Hang up."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()


def hear(ended: asyncio.Task[Any]) -> None:
    """Have asyncio say nothing of a failure that nobody waits for any more.

    Each caller that waits hears of it. asyncio would log it as an error with a traceback, some time
    later.
    """
    if not ended.cancelled():
        ended.exception()


@patient
async def _open_in(looking: Takeover) -> list[Open]:
    return await looking.open()
