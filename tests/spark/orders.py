"""Orders and prices as they come in the raw topics, and the join that must come of them.

Records are sent twice, out of order within grace, and now and then too late. The expected output is
computed from all of them at once, and from no output of a sidecar or Spark.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any, NamedTuple
from zlib import crc32

from headrace.contracts.record import Headers, Record
from tests.oracles.versioned import joined_on_time

GRACE_MS = 2_000
PARTITIONS = 2
PRODUCTS = 12
START_MS = 1_600_000_000_000
"""Long ago, so that a topic which deletes by age shows."""
_STEP_MS = 40
_FLUSH_AFTER_MS = 100 * GRACE_MS


class Priced(NamedTuple):
    """A row that must leave, as far as every sink says it."""

    product: str
    order_id: str
    quantity: int
    price_cents: int
    timestamp_ms: int
    headers: Headers


def rows_in_topic(records: Iterable[Record]) -> Counter[Priced]:
    """Read a topic of priced orders."""
    rows: Counter[Priced] = Counter()
    for one in records:
        row = json.loads(one.value or b"")
        assert row["total_cents"] == row["quantity"] * row["price_cents"]
        assert (one.key or b"").decode() == row["product"]
        rows[_row(row, one.timestamp_ms, one.headers)] += 1
    return rows


def rows_in_table(found: Iterable[Mapping[str, Any]]) -> Counter[Priced]:
    """Read a table of priced orders, which has no headers."""
    rows: Counter[Priced] = Counter()
    for row in found:
        at_ms = round(row["timestamp"].replace(tzinfo=UTC).timestamp() * 1_000)
        rows[_row(row, at_ms, ())] += 1
    return rows


def _row(row: Mapping[str, Any], at_ms: int, headers: Headers) -> Priced:
    fields = (row["product"], row["order_id"], row["quantity"], row["price_cents"])
    return Priced(*fields, at_ms, headers)


@dataclass
class Shop:
    """Makes both topics' records, chunk by chunk, and remembers all of them."""

    seed: int
    time_ms: int = START_MS
    number: int = 0
    orders: dict[str, Record] = field(default_factory=dict)
    """Those that came in time, by id."""
    prices: dict[str, Record] = field(default_factory=dict)
    late: int = 0
    _stream_ms: Counter[tuple[str, int]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)

    def chunk(self, records: int) -> tuple[list[Record], list[Record]]:
        """More orders and prices, in the order in which they are sent."""
        orders: list[Record] = []
        prices: list[Record] = []
        for _ in range(records):
            self.number += 1
            self.time_ms += _STEP_MS
            is_price = self._chance.random() < 0.3
            (prices if is_price else orders).extend(self._sent(is_price=is_price))
        return self._arrived("orders", orders), self._arrived("prices", prices)

    def flush(self) -> tuple[list[Record], list[Record]]:
        """A last record in each partition, so late that all before it are done with."""
        self.time_ms += _FLUSH_AFTER_MS
        last = [
            Record(b"flush", None, self.time_ms, (("id", b"flush"),), "", partition, None)
            for partition in range(PARTITIONS)
        ]
        return last, last

    def expected(self) -> Counter[Priced]:
        """Each order once, with the price that its product had at its time."""
        by_product: dict[bytes | None, list[Record]] = {}
        for price in self.prices.values():
            by_product.setdefault(price.key, []).append(price)
        rows = (_priced(by_product, order) for order in self.orders.values())
        return Counter(row for row in rows if row is not None)

    def _sent(self, *, is_price: bool) -> Iterable[Record]:
        """One record: once, twice, out of order or too late."""
        chance = self._chance
        product = f"p{chance.randrange(PRODUCTS)}"
        identity = f"{'price' if is_price else 'order'}-{self.number}"
        behind_ms = chance.randrange(GRACE_MS // 2)
        if chance.random() < 0.03:
            behind_ms += 4 * GRACE_MS
        value = (
            {"price_cents": chance.randrange(100, 10_000)}
            if is_price
            else {"order_id": identity, "quantity": chance.randrange(1, 9)}
        )
        deleted = is_price and chance.random() < 0.1
        headers: Headers = (("id", identity.encode()), ("trace", b"1"), ("trace", None))
        one = Record(
            key=product.encode(),
            value=None if deleted else json.dumps(value).encode(),
            timestamp_ms=self.time_ms - behind_ms,
            headers=headers,
            topic="",
            partition=crc32(product.encode()) % PARTITIONS,
            offset=None,
        )
        return [one] * (2 if chance.random() < 0.2 else 1)

    def _arrived(self, side: str, records: list[Record]) -> list[Record]:
        """Note what is in time when it comes, duplicates once."""
        in_time = self.orders if side == "orders" else self.prices
        for arrival, one in enumerate(records, start=self.number):
            place = side, one.partition
            if one.timestamp_ms < self._stream_ms[place] - GRACE_MS:
                self.late += 1
                continue
            self._stream_ms[place] = max(self._stream_ms[place], one.timestamp_ms)
            in_time[(one.headers[0][1] or b"").decode()] = one._replace(offset=arrival)
        return records


def _priced(by_product: dict[bytes | None, list[Record]], order: Record) -> Priced | None:
    found = joined_on_time(by_product.get(order.key, ()), order)
    if found is None:
        return None
    fields = json.loads(order.value or b"")
    return Priced(
        (order.key or b"").decode(),
        fields["order_id"],
        fields["quantity"],
        json.loads(found)["price_cents"],
        order.timestamp_ms,
        order.headers,
    )
