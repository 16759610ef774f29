"""How much topics take at once: what brokers say, and what their refusals teach.

A topic's `max.message.bytes` bounds a batch, and so each record: the smallest batch has one. Where
nobody may see that setting, or somebody lowers it, a refusal says that a batch was too large, and
not by how much. No refusal tells that somebody has raised it, so brokers are asked again.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiokafka.errors import KafkaError
from aiokafka.protocol.admin import DescribeConfigsRequest

from headrace.services.observe.logs import logger as logger_of

BATCH_BYTES = 512 << 10
"""Below the broker's own default for `max.message.bytes`; larger ones are hardly cheaper."""
_ROW_ROOM_BYTES = 512
"""For what a batch says beside a row, and for the name of the row's store."""
_ASK_AGAIN_S = 30.0
_TOPIC = 2
"""A topic, among what may have settings."""
_SETTING = "max.message.bytes"
logger = logger_of(__name__)


class Limits:
    """Of all topics that a worker writes to."""

    def __init__(self, told: Mapping[str, int]) -> None:
        """As far as brokers tell."""
        self._told = dict(told)
        self._batches = {topic: min(BATCH_BYTES, size) for topic, size in told.items()}
        self._records = dict(told)

    def batch_bytes(self, topic: str) -> int:
        """How much to send at once."""
        return self._batches.get(topic, BATCH_BYTES)

    def record_bytes(self, topic: str) -> int:
        """How large a batch of one record may be."""
        return self._records.get(topic, sys.maxsize)

    def row_bytes(self, changelog: str) -> int:
        """How large a row of the state may be, with its key."""
        return self.record_bytes(changelog) - _ROW_ROOM_BYTES

    def learn(self, topic: str, size_bytes: int, records: int) -> None:
        """A broker refused a batch of this size."""
        if records > 1:
            smaller = min(self.batch_bytes(topic), size_bytes) // 2
        else:
            smaller = size_bytes - 1
            self._records[topic] = min(self.record_bytes(topic), smaller)
        self._batches[topic] = min(self.batch_bytes(topic), smaller)
        logger.warning(
            "a topic takes less at once than it was sent, and is sent less from now on",
            topic=topic,
            refused_bytes=size_bytes,
            batch_bytes=self._batches[topic],
        )

    async def keep_asking(self, ask: Callable[[Any], Awaitable[Any]]) -> None:
        """Ask some broker now and then, for ever, for the settings that we may see."""
        request = DescribeConfigsRequest([(_TOPIC, topic, [_SETTING]) for topic in self._told])
        while True:
            await asyncio.sleep(_ASK_AGAIN_S)
            if not self._told:
                continue
            try:
                self._hear(await ask(request))
            except KafkaError as problem:
                logger.warning("the broker did not say how much topics take", why=repr(problem))

    def _hear(self, answer: Any) -> None:
        """Take in the settings that were changed; of the others refusals may have taught more."""
        for code, _, _, topic, entries in answer.resources:
            for _, written, *_ in () if code else entries:
                size_bytes = int(written)
                if self._told[topic] != size_bytes:
                    self._told[topic] = self._records[topic] = size_bytes
                    self._batches[topic] = min(BATCH_BYTES, size_bytes)
                    logger.info(
                        "a topic takes another size at once", topic=topic, takes_bytes=size_bytes
                    )
