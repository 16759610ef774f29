"""The Faust app of a pipeline: an agent and a table for each hop, and nothing that gets in the way.

Agents, topics, tables, changelogs and the worker's services are Faust's. Its producer, its recovery
and its offsets are not used: tasks do that, in one transaction. The web server stays off.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

import faust
from aiokafka.structs import TopicPartition
from faust.app.base import BootStrategy
from faust.tables.manager import TableManager
from faust.types import TP

from headrace.contracts.hops import Hop
from headrace.services.kafka.security import faust_brokers
from headrace.services.runtime.input.binding import (
    Batch,
    BatchConsumer,
    BatchTopic,
    BatchTransport,
)
from headrace.services.runtime.task.table import StateTable
from headrace.services.runtime.worker import Worker


class _Boot(BootStrategy):  # type: ignore[misc]
    enable_kafka_producer = False
    enable_web = False


class _Tables(TableManager):  # type: ignore[misc]
    """Registers tables; tasks read their rows, and their changelogs stay out of the group."""

    mundane_level = "debug"

    async def on_start(self) -> None:
        await self._update_channels()

    async def _update_channels(self) -> None:
        self._tables_finalized.set()
        for table in self.values():
            await table.maybe_start()
        self._tables_registered.set()

    def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Tasks close what they opened."""


class SidecarApp(faust.App):  # type: ignore[misc]
    """A pipeline as a Faust app."""

    mundane_level = "debug"

    BootStrategy = _Boot
    worker: Worker

    def _new_transport(self) -> BatchTransport:
        return BatchTransport(self.conf.broker_consumer, self)

    async def route(self, partitions: Iterable[TopicPartition]) -> None:
        """Lead records of these partitions to their agents, and begin to fetch."""
        await self.topics.maybe_wait_for_subscriptions()
        await self.topics.on_partitions_assigned({TP(*partition) for partition in partitions})
        if not self.flow_control.is_active():
            # It empties the agents' queues as well, and what stays waits in them.
            self.flow_control.resume()
        await self._fetcher.maybe_start()

    async def _producer_flush(self, _logger: Any) -> None:
        """Faust's own producer sends nothing."""

    def _create_directories(self) -> None:
        """Tasks make the folders of their databases."""

    async def _stop_consumer(self) -> None:
        await self.worker.close()
        await self._fetcher.stop()


def make_app(worker: Worker) -> SidecarApp:
    """The app that feeds a worker."""
    spec, settings = worker.spec, worker.settings
    app = SidecarApp(
        spec.pipeline,
        broker=faust_brokers(settings),
        store="memory://",
        datadir=str(worker.work.folder),
        TableManager=_Tables,
        topic_disable_leader=True,
        topic_allow_declare=False,
        table_standby_replicas=0,
        web_enabled=False,
        stream_wait_empty=False,
        # Batches, not records; how many may wait is bounded by pausing partitions.
        stream_buffer_maxsize=1 << 16,
    )
    app.worker = worker
    for hop in worker.hops.values():
        _add_hop(app, hop)
    return app


def _add_hop(app: SidecarApp, hop: Hop) -> None:
    worker = app.worker
    topic = BatchTopic(app, topics=[hop.topic], key_type=bytes, value_type=bytes)
    work = worker.work
    table = StateTable(app, hop.name, work.folder / hop.name, work.memory)
    work.tables[hop.name] = app.tables.add(table)

    async def clean(stream: Any) -> None:
        fetches: AsyncIterator[list[Batch]] = stream
        async for batches in fetches:
            for batch in batches:
                worker.offer(batch)

    app.agent(topic, name=f"{app.conf.id}.{hop.name}")(clean)


async def start_app(app: SidecarApp) -> None:
    """Start Faust's services, and the worker with the consumer's thread."""
    consumer: BatchConsumer = app.consumer
    await app.worker.start(consumer.thread, app.route)
    await app.start()
