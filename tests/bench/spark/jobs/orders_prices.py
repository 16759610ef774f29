"""`orders-prices`: each order with the newest price that is not newer than it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from zlib import crc32

import numpy as np

from tests.bench.spark.cleaned import (
    LAST_MS,
    Filled,
    Made,
    Records,
    last_keys,
    records_of,
    times_of,
    write,
)
from tests.bench.spark.jobs.rows import Row, met_by
from tests.bench.spark.topics import Digest, Read, Size

JOB = "orders-prices"
_VERSIONS_A_KEY = 5
_TOMBSTONES = 0.05
_UNKNOWN_KEYS = 0.02


def fill(servers: str, orders: int) -> Filled:
    """Make the topics, and write everything as sidecars do."""
    size, inputs = drawn(orders)
    written = write(servers, JOB, size, inputs)
    wanted = digest_of(joined(inputs["prices"], inputs["orders"]))
    return Filled(JOB, size, *written, wanted, judge)


def drawn(orders: int) -> tuple[Size, dict[str, Records]]:
    """Draw so many orders and half as many prices, always the same."""
    size = Size(orders, orders // 2)
    keys = size.versions // _VERSIONS_A_KEY
    random = np.random.default_rng(1)
    prices = prices_of(random, size.versions, keys)
    return size, {"prices": prices, "orders": orders_of(random, size.facts, keys)}


def judge(read: Iterable[Read], row_of: Callable[[bytes], Row] = json.loads) -> Made:
    """Digest a topic of priced orders."""
    made = digest_of(_rows(read, row_of))
    return Made(made, made.rows)


def digest_of(rows: Iterable[tuple[bytes, str, int, int]]) -> Digest:
    """Of rows of key, order, quantity and price."""
    count = checksum = 0
    for key, order, quantity, price in rows:
        count += 1
        checksum += crc32(b"%s %s %d %d" % (key, order.encode(), quantity, price))
    return Digest(count, checksum)


def _rows(
    read: Iterable[Read], row_of: Callable[[bytes], Row]
) -> Iterator[tuple[bytes, str, int, int]]:
    for key, value, _ in read:
        row = row_of(value)
        yield key, row["order_id"], row["quantity"], row["price_cents"]


def joined(
    prices: Records, orders: Records, before: Callable[[bytes], bytes | None] = lambda _key: None
) -> Iterator[tuple[bytes, str, int, int]]:
    """Join both in the simplest way; `before` knows the prices that held before these."""
    for at, key, paid in met_by(orders, prices, before=before):
        order = json.loads(orders.values[at] or b"")
        yield key, order["order_id"], order["quantity"], json.loads(paid)["price_cents"]


def prices_of(random: np.random.Generator, count: int, keys: int) -> Records:
    """Draw prices that change; some products go."""
    of_keys = random.integers(0, keys, count)
    times_ms = times_of(random, count)
    gone = random.random(count) < _TOMBSTONES
    values = [None if is_gone else price(number) for number, is_gone in enumerate(gone.tolist())]
    return records_of(_products(of_keys), values, times_ms)


def orders_of(random: np.random.Generator, count: int, keys: int) -> Records:
    """Draw orders, some of products without a price."""
    of_keys = random.integers(0, int(keys * (1 + _UNKNOWN_KEYS)), count)
    values = [
        b'{"order_id":"o%09d","quantity":%d,"customer":"c%04d"}' % (n, 1 + n % 7, n % 1_000)
        for n in range(count)
    ]
    times_ms = times_of(random, count, odd=True)
    # Where a grace goes by the orders alone, these let the others leave; nothing has their price.
    last = last_keys()
    return records_of(
        [*_products(of_keys), *last],
        [*values, *[b'{"order_id":"last","quantity":1}'] * len(last)],
        [*times_ms, *[LAST_MS] * len(last)],
    )


def product(number: int) -> bytes:
    """Return a product's key."""
    return b"k%07d" % number


def price(number: int) -> bytes:
    """Return a price."""
    return b'{"price_cents":%d}' % (100 + number % 9_901)


def _products(numbers: np.ndarray) -> list[bytes]:
    return [*map(product, numbers.tolist())]
