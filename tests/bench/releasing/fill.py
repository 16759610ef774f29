"""A week of two cleaned topics, as sidecars leave it: records, and rows of progress."""

from __future__ import annotations

import json
from collections.abc import Iterator

from confluent_kafka import Producer

from headrace.contracts.progress import (
    LAYOUT,
    CleanedBy,
    Progress,
    cleaned_by_row,
    milestone_of,
    milestone_row,
    progress_row,
)
from headrace.contracts.topics import progress_topic
from tests.kafka.clients import Clients

PARTITIONS = 4
SIDES = ("prices", "orders")
WEEK_MS = 7 * 86_400_000
START_MS = 1_700_000_000_000
_PRICES_PER_ORDER = 10
"""One record in so many is a price."""
_PRODUCTS = 1_000
_POLL_EVERY = 1_000


def topic_of(side: str) -> str:
    """The cleaned topic of a side."""
    return f"shop.{side}"


def fill(clients: Clients, records: int, rows: int) -> None:
    """Write so many records and rows of progress, evenly over the week, and that all is idle."""
    for side in SIDES:
        for name in (topic_of(side), progress_topic(topic_of(side)).name):
            clients.make_topic(name, PARTITIONS, {"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": clients.servers, "linger.ms": 50})
    for number, (topic, key, value, at_ms, partition) in enumerate(_week(records, rows)):
        if number % _POLL_EVERY == 0:
            producer.poll(0)
        while True:
            try:
                producer.produce(topic, value, key, partition, timestamp=at_ms)
                break
            except BufferError:
                producer.poll(1)
    left = producer.flush()
    assert left == 0, f"{left} were not written"


_Written = tuple[str, bytes, bytes, int, int]


def _week(records: int, rows: int) -> Iterator[_Written]:
    for side in SIDES:
        name = progress_topic(topic_of(side)).name
        yield name, *cleaned_by_row(CleanedBy(side, LAYOUT, "source", {})), START_MS, 0
    counts = dict.fromkeys(((side, at) for side in SIDES for at in range(PARTITIONS)), 0)
    said = dict.fromkeys(counts, 0)
    every = max(1, records // max(1, rows // len(counts)))
    for number in range(records):
        at_ms = START_MS + number * WEEK_MS // records
        side = "prices" if number % _PRICES_PER_ORDER == 0 else "orders"
        product = number * 7_919 % _PRODUCTS
        partition = product % PARTITIONS
        value: dict[str, object] = {"price_cents": number}
        if side == "orders":
            value = {"order_id": f"{number}", "quantity": 1}
        yield topic_of(side), b"p%d" % product, json.dumps(value).encode(), at_ms, partition
        counts[side, partition] += 1
        if number % every == every - 1:
            for place, count in counts.items():
                yield from _told(place, count, at_ms, said)
    for place, count in counts.items():
        yield from _told(place, count, START_MS + WEEK_MS, said, is_idle=True)


def _told(
    place: tuple[str, int],
    count: int,
    at_ms: int,
    said: dict[tuple[str, int], int],
    *,
    is_idle: bool = False,
) -> Iterator[_Written]:
    side, partition = place
    last = count - 1 if count else None
    progress = Progress(partition, at_ms, at_ms, "raw", count, last, is_idle)
    rows = [progress_row(progress)]
    if milestone_of(progress) > said[place]:
        said[place] = milestone_of(progress)
        rows.insert(0, milestone_row(progress._replace(is_idle=False)))
    for row in rows:
        yield progress_topic(topic_of(side)).name, *row, at_ms, partition
