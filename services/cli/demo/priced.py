"""Spark's results for the orders: behind the sidecars, and from the raw topics at once."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from headrace.contracts.record import Record
from headrace.services.cli.demo.clicks import START_MS
from headrace.services.cli.demo.orders import ALERTS, END, PRICED, PRICED_RAW
from headrace.services.kafka.records import read_records
from headrace.services.settings import Settings


class Priced(NamedTuple):
    """An order in both results."""

    order: str
    product: str
    at_ms: int
    """Since the demo's beginning."""
    quantity: int
    price_cents: int
    at_once_cents: tuple[int, ...]
    """The prices that the raw join gave it, one for each time that the order came."""

    @property
    def is_doubled(self) -> bool:
        """Whether the raw join has it more than once."""
        return len(self.at_once_cents) > 1

    @property
    def is_mispriced(self) -> bool:
        """Whether the raw join gave it another price than it had, or none."""
        return set(self.at_once_cents) != {self.price_cents}

    @property
    def is_off(self) -> bool:
        """Whether the raw join is wrong about it."""
        return self.is_doubled or self.is_mispriced


class Alert(NamedTuple):
    """A window with more clicks than its user is allowed."""

    user: str
    from_s: int
    to_s: int
    clicks: int
    most: int


def money(cents: int) -> str:
    """An amount as people write it."""
    return f"{cents / 100:.2f}"


def read_priced(settings: Settings) -> list[Priced]:
    """The orders, by time, each with both of its results."""
    at_once: dict[str, list[int]] = {}
    for record in read_records(settings, PRICED_RAW):
        row = json.loads(record.value or b"")
        at_once.setdefault(row["order_id"], []).append(row["price_cents"])
    found = []
    for record in read_records(settings, PRICED):
        row = json.loads(record.value or b"")
        prices = tuple(at_once.get(row["order_id"], ()))
        at_ms = record.timestamp_ms - START_MS
        priced = Priced(
            row["order_id"], row["product"], at_ms, row["quantity"], row["price_cents"], prices
        )
        found.append(priced)
    return sorted(found, key=lambda priced: priced.at_ms)


def read_alerts(settings: Settings) -> list[Alert]:
    """Return the alerts that the job has written."""
    return sorted(map(_alert, read_records(settings, ALERTS)), key=lambda alert: alert.from_s)


def in_time_order(prices: Iterable[Record]) -> dict[str, list[tuple[int, int]]]:
    """When each product's price changed since the beginning, and to what, in cents."""
    changes: dict[str, list[tuple[int, int]]] = {}
    for record in sorted(prices, key=lambda record: record.timestamp_ms):
        product = (record.key or b"").decode()
        if product != END:
            price_cents = json.loads(record.value or b"")["price_cents"]
            changes.setdefault(product, []).append((record.timestamp_ms - START_MS, price_cents))
    return changes


def _alert(record: Record) -> Alert:
    row = json.loads(record.value or b"")
    start_s, end_s = (
        (row[name] - START_MS) // 1_000 for name in ("window_start_ms", "window_end_ms")
    )
    return Alert(row["key"], start_s, end_s, row["count"], row["most"])
