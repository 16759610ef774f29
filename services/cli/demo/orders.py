"""The demo's orders and prices, as careless producers send them, and what is made of them.

Orders come twice or late, prices overtake each other. Behind the sidecars an order meets the price
that its product had at the order's own time; from the raw topics, joined at once, some do not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from random import Random
from typing import Any, NamedTuple

from headrace.contracts.record import Record
from headrace.services.cli.demo.clicks import CLEANED as COUNTS
from headrace.services.cli.demo.clicks import PIPELINE as CLICKS_PIPELINE
from headrace.services.cli.demo.clicks import START_MS

ORDERS, PRICES, LIMITS = "orders.raw", "prices.raw", "limits"
PRICED, PRICED_RAW, ALERTS = "orders.priced", "orders.priced-at-once", "alerts"
PIPELINES = {
    "orders": """\
pipeline: orders
source: {topic: orders.raw}
operators:
  - reorder: {grace: 5s}
  - deduplicate: {by: key+id, id: value.order_id, interval: 1m}
sink: {topic: orders.cleaned}
""",
    "prices": """\
pipeline: prices
source: {topic: prices.raw}
operators:
  - reorder: {grace: 9s}
sink: {topic: prices.cleaned}
""",
}
_JOB = """\
job: {job}
name: demo-{name}
servers: {servers}
checkpoint: {checkpoint}
retention: 10m
inputs:
{inputs}
sink: {{kafka: {{topic: {sink}, partitions: 1}}}}
tasks: 1
shuffle-partitions: 1
"""
_PRODUCTS = ("tea", "coffee", "cocoa")
_ORDERS, _ORDER_EVERY_MS = 24, 2_500
_PRICE_EVERY_MS, _PRICES_UNTIL_MS = 4_000, 60_000
_DELAY_MS = (1_000, 4_500)
_PRICE_DELAY_MS = (2_000, 8_500)
_END_MS = START_MS + 120_000
"""Behind everything: who has seen this knows that nothing earlier is to come."""
_MOST_CLICKS = 4
END = "end"


class Sent(NamedTuple):
    """A record of the demo, and when it arrives."""

    at_ms: int
    record: Record


def orders(random: Random) -> list[Record]:
    """Orders, one each two and a half seconds: some late, some sent again."""
    sent = []
    for number in range(_ORDERS):
        timestamp_ms = START_MS + 3_000 + number * _ORDER_EVERY_MS
        value = {"order_id": f"o{number}", "quantity": random.randint(1, 4)}
        record = _record(ORDERS, random.choice(_PRODUCTS), value, timestamp_ms)
        delay_ms = random.randint(*_DELAY_MS) if random.random() < 1 / 4 else 0
        sent.append(Sent(timestamp_ms + delay_ms, record))
        if random.random() < 1 / 5:
            sent.append(Sent(timestamp_ms + delay_ms + random.randint(*_DELAY_MS), record))
    last = _record(ORDERS, END, {"order_id": END, "quantity": 0}, _END_MS)
    return _as_they_arrive([*sent, Sent(_END_MS, last)])


def prices(random: Random) -> list[Record]:
    """Prices, a new one for each product every four seconds; some overtake others."""
    sent = []
    for place, product in enumerate(_PRODUCTS):
        for after_ms in range(0, _PRICES_UNTIL_MS, _PRICE_EVERY_MS):
            timestamp_ms = START_MS + place * 1_300 + after_ms
            value = {"price_cents": 100 * (place + 1) + random.randint(0, 19) * 5}
            delay_ms = random.randint(*_PRICE_DELAY_MS) if random.random() < 1 / 2 else 0
            sent.append(
                Sent(timestamp_ms + delay_ms, _record(PRICES, product, value, timestamp_ms))
            )
    last = _record(PRICES, END, {"price_cents": 0}, _END_MS)
    return _as_they_arrive([*sent, Sent(_END_MS, last)])


def limits(users: Iterable[str]) -> list[Record]:
    """How often a user may click in a window before somebody wants to know."""
    allowed: dict[str, Any] = {"least": None, "most": _MOST_CLICKS}
    known = [_record(LIMITS, user, allowed, START_MS) for user in users]
    return [*known, _record(LIMITS, END, allowed, _END_MS)]


def jobs(servers: str, checkpoints: str) -> dict[str, str]:
    """The files of the jobs, by name."""

    def text(name: str, job: str, sink: str, inputs: dict[str, str]) -> str:
        lines = "\n".join(f"  {key}: {{{value}}}" for key, value in inputs.items())
        checkpoint = f"{checkpoints}/{name}"
        return _JOB.format(
            name=name, job=job, servers=servers, checkpoint=checkpoint, inputs=lines, sink=sink
        )

    cleaned = {
        "prices": "topic: prices.cleaned, pipeline: prices",
        "orders": "topic: orders.cleaned, pipeline: orders",
    }
    raw = {"prices": f"topic: {PRICES}", "orders": f"topic: {ORDERS}"}
    counted = {
        "limits": f"topic: {LIMITS}",
        "counts": f"topic: {COUNTS}, pipeline: {CLICKS_PIPELINE}",
    }
    return {
        "priced": text("priced", "orders-prices", PRICED, cleaned),
        "at-once": text("at-once", "orders-prices", PRICED_RAW, raw) + "release: stream-time\n",
        "alerts": text("alerts", "count-alerts", ALERTS, counted),
    }


def _record(topic: str, key: str, value: dict[str, Any], timestamp_ms: int) -> Record:
    return Record(key.encode(), json.dumps(value).encode(), timestamp_ms, (), topic, 0, None)


def _as_they_arrive(sent: list[Sent]) -> list[Record]:
    return [one.record for one in sorted(sent, key=lambda one: one.at_ms)]
