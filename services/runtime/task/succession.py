"""A partition comes to a new owner: what others left open is ended, and its changelog read.

The owner names its producer in the state before it writes anything else, and takes the name back
with its last commit. So a successor knows whether something was left open, and under which name.
An owner may die before its name counts, and a broker may forget how the last transaction of an
owner ended. So a successor also asks the brokers who has something open there, and under which id.
"""

from __future__ import annotations

import asyncio
import time

from aiokafka.structs import TopicPartition

from headrace.contracts.hops import Hop
from headrace.services.observe.logs import logger as logger_of
from headrace.services.runtime.changelog.restoring import restore
from headrace.services.runtime.task.tally import Tally
from headrace.services.runtime.task.work import Work
from headrace.services.state.partition import PartitionState

_LOOK_AGAIN_S = 0.02
_SAY_AFTER_S = 1.0
logger = logger_of(__name__)


class Succession:
    """One partition's, on its way to be run here."""

    def __init__(
        self, work: Work, hop: Hop, partition: int, state: PartitionState, tally: Tally
    ) -> None:
        """Its database is open; `tally` counts what is read."""
        self.left_open: list[bytes] = []
        """Keys whose newest record never counted."""
        self._work = work
        self._hop = hop
        self._partition = partition
        self._state = state
        self._tally = tally
        self._changelog = TopicPartition(hop.changelog.name, partition)

    async def begin(self) -> None:
        """Read what can be read while somebody else may still own the partition."""
        if self._state.rebuilt_because is not None:
            place = {"topic": self._hop.topic, "partition": self._partition}
            logger.warning("state is rebuilt", **place, why=self._state.rebuilt_because)
        if not self._state.is_followed:
            await self.read(is_last=False)

    async def read(self, *, is_last: bool) -> None:
        """Read the changelog to its end."""
        found = await restore(self._state, self._work.restorer, self._changelog, is_last=is_last)
        self._tally.restored_records += found.records
        self.left_open += found.left_open

    async def take_over(self) -> None:
        """End what the owner before has left open, and read what it has committed."""
        if self._work.exactly_once:
            if self._state.is_followed:
                # The owner may have left since, in peace, and goes on with other partitions.
                await self.read(is_last=False)
            await self._end_producers()
            await self._work.ways.check_counted()
        else:
            if await self._hides_something():
                await self._end_what_hides()
            await self.read(is_last=True)

    async def _end_producers(self) -> None:
        """End what others have open: first by the producer that the state names, then by others.

        The rows that are read then may name a later owner's. The end is hidden as long as a commit
        has no markers.
        """
        work, state = self._work, self._state
        ended, began_at_s, has_said = None, time.monotonic(), False
        while True:
            named = state.producer
            if named is not None and named != ended:
                await work.ways.end_producer(named, self._hop, self._partition)
                ended = named
            await work.ways.end_strangers(self._hop, self._partition)
            is_hidden = await self._hides_something()
            await self.read(is_last=not is_hidden)
            if state.producer == named and not is_hidden:
                return
            if is_hidden and not has_said and time.monotonic() - began_at_s > _SAY_AFTER_S:
                has_said = True
                logger.warning(
                    "an open transaction hides the end of the changelog, and is waited for",
                    where=f"{self._changelog.topic}/{self._partition}",
                )
            if is_hidden:
                await asyncio.sleep(_LOOK_AGAIN_S)

    async def _hides_something(self) -> bool:
        return await self._work.restorer.hides_something(self._changelog)

    async def _end_what_hides(self) -> None:
        """End what an earlier owner left open that ran exactly once, and this one does not.

        It hides the end of the changelog until it times out, and the rows that are written behind
        it as well. Exactly once, a successor ends it in any case.
        """
        ways = self._work.ways
        if self._state.producer is not None:
            await ways.end_producer(self._state.producer, self._hop, self._partition)
        await ways.end_strangers(self._hop, self._partition)
        await ways.end_former(self._hop, self._partition)
        logger.warning(
            "a transaction of an owner that ran exactly once was open; ended",
            where=f"{self._changelog.topic}/{self._partition}",
        )
