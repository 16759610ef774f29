"""Rebuild state from its changelog, so that a command can show it.

Running instances notice nothing: the rebuild joins no group, and deletes its files at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import OffsetOutOfRangeError
from aiokafka.structs import TopicPartition

from headrace.contracts.errors import KafkaUnreachable
from headrace.contracts.hops import Hop
from headrace.contracts.pipeline import PipelineSpec
from headrace.contracts.time import format_duration_ms
from headrace.services.kafka import seams
from headrace.services.kafka.cluster import Cluster, Ends, connected
from headrace.services.kafka.records import record_of
from headrace.services.kafka.security import client_options
from headrace.services.runtime.changelog.restorer import last_end
from headrace.services.settings import Settings
from headrace.services.state.changelog import Restoration
from headrace.services.state.overlay import Overlay
from headrace.services.state.rocks import MEMORY_BYTES, RocksMemory, RocksStore

_POLL_MS = 100
_FETCH_BYTES = 4 << 20
_RECORDS_AT_ONCE = 10_000
Show = Callable[[Hop, int, Overlay, Ends], None]
"""Shown a hop, a partition, its state, and where its changelog begins and ends."""


async def rebuild(
    spec: PipelineSpec, settings: Settings, partition: int | None, show: Show
) -> None:
    """Make the state of every partition again, or of one, and show each, in no order."""
    memory = RocksMemory(settings.memory_bytes or MEMORY_BYTES)
    async with connected(settings) as cluster, AsyncExitStack() as stack:
        consumer = AIOKafkaConsumer(
            **client_options(settings, "rebuild"),
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed",
            max_partition_fetch_bytes=_FETCH_BYTES,
        )
        stack.push_async_callback(seams.stop, consumer)
        await consumer.start()
        reader = _Reader(consumer, settings.stall_timeout_ms)
        places = [
            (hop, number)
            for hop in spec.hops()
            for number in await cluster.ends(hop.changelog.name)
            if partition is None or number == partition
        ]
        while places:
            hop, number = places[-1]
            with _scratch(spec.pipeline, memory) as overlay:
                changelog = TopicPartition(hop.changelog.name, number)
                ends = await _take_up(reader, cluster, changelog, overlay)
                if ends is not None:
                    show(hop, number, overlay, ends)
                    places.pop()


class _Reader:
    """A consumer that gives up on brokers which bring nothing for too long."""

    def __init__(self, consumer: AIOKafkaConsumer, stall_timeout_ms: int) -> None:
        self._consumer = consumer
        self._stall_timeout_ms = stall_timeout_ms
        self._moved_at_s = time.monotonic()
        self.seek, self.position = consumer.seek, consumer.position

    def assign(self, changelog: TopicPartition) -> None:
        """Read a changelog from now on."""
        self._moved_at_s = time.monotonic()
        self._consumer.assign([changelog])

    async def getmany(self, *partitions: TopicPartition, **bounds: int) -> Mapping[Any, Any]:
        """Return what has come; KafkaUnreachable where that is nothing again and again."""
        fetched: Mapping[Any, Any] = await self._consumer.getmany(*partitions, **bounds)
        if fetched:
            self._moved_at_s = time.monotonic()
        elif time.monotonic() - self._moved_at_s > self._stall_timeout_ms / 1_000:
            stalled = format_duration_ms(self._stall_timeout_ms)
            message = f"the brokers gave no record of a changelog for {stalled}; try again"
            raise KafkaUnreachable(message)
        return fetched


@contextmanager
def _scratch(pipeline: str, memory: RocksMemory) -> Iterator[Overlay]:
    """Room for a state, for as long as it is looked at."""
    with TemporaryDirectory(prefix="headrace-") as folder:
        store = RocksStore(Path(folder) / "state", memory)
        try:
            yield Overlay(store, pipeline)
        finally:
            store.close()


async def _take_up(
    reader: _Reader, cluster: Cluster, changelog: TopicPartition, overlay: Overlay
) -> Ends | None:
    """Where what was read begins and ends; None where its beginning was purged meanwhile."""
    ends = (await cluster.ends(changelog.topic))[changelog.partition]
    restoration = Restoration(overlay)
    reader.assign(changelog)
    try:
        counts_before = await last_end(reader, changelog, ends.first, ends.end)
        reader.seek(changelog, ends.first)
        while await reader.position(changelog) < ends.end:
            fetched = await reader.getmany(timeout_ms=_POLL_MS, max_records=_RECORDS_AT_ONCE)
            records = map(record_of, fetched.get(changelog, ()))
            restoration.take(records, counts_before)
    except OffsetOutOfRangeError:
        return None
    return ends
