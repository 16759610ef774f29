"""The Faust table of a hop: its rows are the operators' state, a RocksDB database a partition.

Faust registers the table and its changelog. A task opens its partition here, and reads and writes
whole batches; Faust's own way, one key at a time with a changelog record each, is not offered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import faust
from aiokafka.structs import TopicPartition
from faust.stores.base import Store

from headrace.services.state.partition import PartitionState, is_another
from headrace.services.state.rocks import RocksMemory, delete


class PartitionStores(Store):  # type: ignore[misc]
    """The databases of the partitions that are open here."""

    mundane_level = "debug"

    def __init__(self, url: Any, app: Any, table: StateTable) -> None:
        """Open none yet."""
        super().__init__(url, app, table, table_name=table.name)
        self.open_states: dict[int, PartitionState] = {}

    def persisted_offset(self, tp: TopicPartition) -> int | None:
        """The last changelog offset that is part of a partition's database."""
        state = self.open_states.get(tp.partition)
        return None if state is None else state.changelog_position - 1

    def reset_state(self) -> None:
        """A task rebuilds what is damaged."""

    def apply_changelog_batch(self, *_arguments: Any) -> None:
        """The restorer reads changelogs, a whole commit at a time."""
        raise NotImplementedError

    def backup_partition(self, *_arguments: Any, **_options: Any) -> None:
        """The changelog is the backup."""
        raise NotImplementedError

    def restore_backup(self, *_arguments: Any, **_options: Any) -> None:
        """The changelog is the backup."""
        raise NotImplementedError


class StateTable(faust.Table):  # type: ignore[misc]
    """The state of one hop."""

    mundane_level = "debug"

    def __init__(self, app: Any, name: str, folder: Path, memory: RocksMemory) -> None:
        """Databases lie in `folder`, one a partition."""
        super().__init__(app, name=name, key_type=bytes, value_type=bytes)
        self._folder = folder
        self._memory = memory
        self._parked: dict[int, PartitionState] = {}
        self._busy: dict[int, asyncio.Future[None]] = {}
        """The work of a thread on a partition's folder, by partition."""

    def _new_store_by_url(self, url: Any) -> PartitionStores:
        return PartitionStores(url, self.app, self)

    async def open(
        self, partition: int, now_ms: int, changelog_id: str | None = None
    ) -> PartitionState:
        """Open a partition's database, in a thread; who is cancelled meanwhile leaves none open."""
        parked = self._parked.get(partition)
        if parked is not None and not is_another(parked.overlay.changelog_id, changelog_id):
            del self._parked[partition]
            self.data.open_states[partition] = parked
            return parked
        # It followed a changelog that was made anew meanwhile, and has rows of both.
        await self.close_parked(partition)
        while partition in self._busy:
            await asyncio.wait([self._busy[partition]])
        opening = asyncio.get_running_loop().run_in_executor(
            None,
            PartitionState,
            self._folder / str(partition),
            self.app.conf.id,
            self._memory,
            now_ms,
            changelog_id,
        )
        try:
            state = await asyncio.shield(opening)
        except asyncio.CancelledError:
            await self._occupied(partition, self._close_late(opening))
            raise
        self.data.open_states[partition] = state
        return state

    def park(self, partition: int) -> None:
        """Leave an open database to whoever opens it next."""
        state = self._parked[partition] = self.data.open_states.pop(partition)
        state.is_followed, state.rebuilt_because = True, None

    async def close(self, partition: int) -> None:
        """Let go of a partition's files and locks."""
        state: PartitionState = self.data.open_states.pop(partition)
        await self._occupied(partition, asyncio.to_thread(state.close))

    async def close_parked(self, partition: int) -> None:
        """Let go of a copy that was handed over, and that no task has opened since."""
        state = self._parked.pop(partition, None)
        if state is not None:
            await self._occupied(partition, asyncio.to_thread(state.close))

    async def discard(self, partition: int) -> None:
        """Throw a partition's database away; it is closed, and its changelog has the rows."""
        folder = self._folder / str(partition)
        await self._occupied(partition, asyncio.to_thread(delete, folder))

    async def _close_late(self, opening: Awaitable[PartitionState]) -> None:
        state = await opening
        await asyncio.to_thread(state.close)

    async def _occupied(self, partition: int, work: Awaitable[None]) -> None:
        """Do something with a partition's folder, to the end: the next to open it waits for that.

        A caller that is cancelled meanwhile leaves it to the thread.
        """
        busy = self._busy[partition] = asyncio.ensure_future(work)
        busy.add_done_callback(lambda _: self._busy.pop(partition))
        await asyncio.shield(busy)
