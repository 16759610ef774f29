"""The rows by which source partitions that commit together tell places how far they are.

A place is told of all of them in one row. With a row each there would be as many rows a second as
source partitions times places: 4,096 with 64 of each. A row speaks of records that stand before it.
So it comes last in the batches that all of them fill, and is part of the same transaction.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial

from aiokafka.structs import TopicPartition

from headrace.contracts.origin import TIME_BYTES, SourceTime, times_row
from headrace.services.kafka.filling import fill
from headrace.services.runtime.output.batches import Batches, refused

ByPlace = defaultdict[int, list[SourceTime]]
_PARTS_OF_BATCH = 16
"""A row takes at most such a part of a batch: a topic may take little at once."""


class Times:
    """The times that the partitions of a transaction tell each place."""

    def __init__(self) -> None:
        """Begin without any."""
        self._by_topic: defaultdict[str, ByPlace] = defaultdict(partial(defaultdict, list))

    def of(self, topic: str) -> ByPlace:
        """Return the times that the places of a topic will be told, to add to them."""
        return self._by_topic[topic]

    def forget(self) -> None:
        """Tell nothing of a transaction that was discarded."""
        self._by_topic.clear()

    async def say(self, batches: Batches) -> None:
        """Append the rows to the batches."""
        told = [
            (topic, place, times)
            for topic, by_place in self._by_topic.items()
            for place, times in by_place.items()
        ]
        self.forget()
        for topic, place, times in told:
            to = TopicPartition(topic, place)
            at_once = times_at_once(batches.limits.batch_bytes(topic))
            rows = [
                times_row(topic, place, times[first : first + at_once])
                for first in range(0, len(times), at_once)
            ]
            filled = await batches.fill(to, len(rows), partial(fill, rows=rows))
            if filled.too_large:
                raise refused(topic, batches.limits.record_bytes(topic))


def times_at_once(batch_bytes: int) -> int:
    """Return how many times a row has at most, where a batch may be so large."""
    return max(1, batch_bytes // _PARTS_OF_BATCH // TIME_BYTES)
