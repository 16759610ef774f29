"""A task's answer to a failure, before it is opened again from its last commit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from aiokafka.structs import TopicPartition

from headrace.contracts.errors import SchemaAwaited, StateCorrupt
from headrace.contracts.hops import Hop
from headrace.contracts.record import Record
from headrace.services.observe.logs import logger as logger_of
from headrace.services.runtime.input.ahead import Ahead, BatchFailedError
from headrace.services.runtime.task.work import Work

_STAND_BACK_S = 1.0, 60.0
"""How long a partition rests that nobody can say why it failed: at first, and at most."""
_SOUND_AFTER_S = 3_600.0
"""A database that has served for so long since it was rebuilt was rebuilt well."""
logger = logger_of(__name__)


class Trouble:
    """One task's."""

    def __init__(
        self,
        work: Work,
        hop: Hop,
        partition: int,
        ahead: Ahead,
        is_closing: Callable[[], bool],
    ) -> None:
        """Begin without a failure; `ahead` is told how to go on."""
        self._registry = work.registry
        self._is_closing = is_closing
        self._source = TopicPartition(hop.topic, partition)
        self._table = work.tables[hop.name]
        self._partition = partition
        self._ahead = ahead
        self._where: Mapping[str, Any] = {"topic": hop.topic, "partition": partition}
        self._rest_s = _STAND_BACK_S[0]
        self._has_rebuilt = False
        self._serves_since_s: float | None = None
        """When the database that there is now was first given records."""

    async def learn(self, records: list[Record]) -> None:
        """Have the schemas of these records looked up; it takes as long as the registry is away."""
        self._serves_since_s = self._serves_since_s or time.monotonic()
        if numbers := self._registry.lacks(records):
            await self._registry.learn(numbers, self._source, self._is_closing)

    async def take_care(self, failed: BatchFailedError | SchemaAwaited) -> None:
        """Find the record to blame, one by one; where none is, rest before all is tried again."""
        if isinstance(failed, SchemaAwaited):
            await self._registry.learn([failed.number], self._source, self._is_closing)
            return
        why = failed.__cause__
        if self._ahead.take_care(failed):
            # Other records fail now, so the partition has come past those for which it rested.
            self._rest_s = _STAND_BACK_S[0]
            logger.info("a batch failed, and is done record by record", **self._where, why=why)
            return
        logger.error(
            "processing fails, and no record is to blame; it is tried again",
            **self._where,
            offsets=str(failed),
            why=why,
            again_in_s=self._rest_s,
            exc_info=why,
        )
        await asyncio.sleep(self._rest_s)
        self._rest_s = min(2 * self._rest_s, _STAND_BACK_S[1])

    async def discard(self, damage: StateCorrupt) -> None:
        """Rebuild a damaged database; if what was rebuilt is soon damaged too, its changelog is."""
        since_s, self._serves_since_s = self._serves_since_s, None
        is_sound = since_s is not None and time.monotonic() - since_s >= _SOUND_AFTER_S
        if self._has_rebuilt and not is_sound:
            raise damage
        self._has_rebuilt = True
        logger.warning("state is rebuilt", **self._where, why=str(damage))
        await self._table.discard(self._partition)
