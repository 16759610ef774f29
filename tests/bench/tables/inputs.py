"""Orders, and prices of so many products, as two sidecars leave them: first a table, then changes.

The table has a price of each product. It is written before the rest, and deleted from its topic
once the job has read it. So the rest is read in micro-batches alike, however large the table is:
Spark takes from each topic by how much it holds.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.bench.spark.cleaned import (
    LAST_MS,
    Cleaned,
    Filled,
    Records,
    Sidecar,
    records_of,
    write_records,
)
from tests.bench.spark.jobs.orders_prices import (
    JOB,
    digest_of,
    joined,
    judge,
    orders_of,
    price,
    prices_of,
    product,
)
from tests.bench.spark.topics import SPAN_MS, START_MS, Digest, Size

ORDERS_A_PRICE = 4
_PRODUCTS_AT_ONCE = 100_000
_RECORDS_A_COMMIT = 50_000


class Inputs:
    """Writes both topics, phase by phase."""

    def __init__(self, servers: str, keys: int, orders: int) -> None:
        """Make the topics for a table of so many keys, and so many orders behind it."""
        self._servers, self._keys = servers, keys
        self._size = Size(orders, orders // ORDERS_A_PRICE)
        names = {name: Cleaned(name, f"{name}-{keys}.cleaned") for name in ("prices", "orders")}
        self._sidecars = {name: Sidecar(servers, each) for name, each in names.items()}
        self.filled = Filled(JOB, self._size, names, {}, Digest(0, 0), judge)

    def write_table(self) -> None:
        """Write a price of each product."""
        for records in table_of(self._keys):
            for start in range(0, len(records.keys), _RECORDS_A_COMMIT):
                rows = zip(
                    *(column[start : start + _RECORDS_A_COMMIT] for column in records), strict=True
                )
                self._sidecars["prices"].commit(rows, records.times_ms[start])
        for sidecar in self._sidecars.values():
            sidecar.commit((), START_MS + SPAN_MS)

    def delete_table(self) -> None:
        """Delete it from its topic, as age would some day."""
        topic = self.filled.inputs["prices"].topic
        ends = [
            # As far as everything goes; the markers of transactions are behind the last record.
            TopicPartition(topic, partition, -1)
            for partition in self._sidecars["prices"].ends
        ]
        admin = AdminClient({"bootstrap.servers": self._servers})
        for deleted in admin.delete_records(ends).values():
            deleted.result()

    def write_changes(self) -> None:
        """Write orders and changes of prices, all behind the table."""
        random = np.random.default_rng(2)
        prices = _later(prices_of(random, self._size.versions, self._keys))
        orders = _later(orders_of(random, self._size.facts, self._keys))
        for name, records in {"prices": prices, "orders": orders}.items():
            write_records(self._sidecars[name], records)
            self._sidecars[name].commit((), LAST_MS + SPAN_MS + 1)
        wanted = digest_of(joined(prices, orders, self._price_of))
        self.filled = self.filled._replace(wanted=wanted)

    def _price_of(self, key: bytes) -> bytes | None:
        digits = key.removeprefix(b"k")
        is_known = digits.isdigit() and int(digits) < self._keys
        return price(int(digits)) if is_known else None


def table_of(keys: int) -> Iterator[Records]:
    """Yield a price of each product, in the order of their times, in pieces."""
    for start in range(0, keys, _PRODUCTS_AT_ONCE):
        numbers = range(start, min(start + _PRODUCTS_AT_ONCE, keys))
        times_ms = [START_MS + number * SPAN_MS // keys for number in numbers]
        yield records_of([*map(product, numbers)], [*map(price, numbers)], times_ms)


def _later(records: Records) -> Records:
    return records._replace(times_ms=[time_ms + SPAN_MS for time_ms in records.times_ms])
