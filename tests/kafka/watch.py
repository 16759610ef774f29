"""A group's offsets, asked for again and again over one connection.

with OffsetsWatch(clients, "clicks", [("clicks.raw", 0)]) as watch:
    watch.ask()
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from headrace.services.kafka.requests import OffsetsUnstableError
from tests.kafka.clients import Clients, coordinator_of, stable_offsets


class OffsetsWatch:
    """The offsets that a group has committed in some partitions."""

    def __init__(self, clients: Clients, group: str, places: Iterable[tuple[str, int]]) -> None:
        """It connects when it is asked."""
        self._clients = clients
        self._group = group
        self._places = [TopicPartition(*place) for place in places]
        self._runner = asyncio.Runner()
        self._client: AIOKafkaClient | None = None
        self._coordinator: int | None = None

    def __enter__(self) -> Self:
        """Keep the connection from now on."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        if self._client is not None:
            self._runner.run(self._client.close())
        self._runner.close()

    def ask(self) -> dict[tuple[str, int], int]:
        """Return the offsets, by topic and partition.

        There are none in an outage, before the group has a coordinator, and while a transaction
        that commits some is on its way.
        """
        try:
            return self._runner.run(self._ask())
        except OffsetsUnstableError:
            return {}
        except KafkaError:
            self._coordinator = None
            return {}

    async def _ask(self) -> dict[tuple[str, int], int]:
        client = self._client
        if client is None:
            client = AIOKafkaClient(
                bootstrap_servers=self._clients.servers, **self._clients.security
            )
            try:
                await client.bootstrap()
            except KafkaError:
                await client.close()
                raise
            self._client = client
        if self._coordinator is None:
            self._coordinator = await coordinator_of(client, self._group)
        return await stable_offsets(client, self._coordinator, self._group, self._places)
