"""`orders-customers`: a table-table join by foreign key, both sides changing.

Kafka Streams drops the answer that deletes a row if the order has changed since it asked
(`ResponseJoinProcessorSupplier`). That change gets no answer of its own if there is no customer. So
a row of an order without a customer may stay that should have gone. It depends on how long answers
are on their way: of a million orders 200 rows stayed in one run and none in another. The job
deletes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from tests.bench.spark.cleaned import Filled, Records, records_of, times_of, write
from tests.bench.spark.jobs.rows import Row, digest_of, judge_last, latest_of
from tests.bench.spark.topics import Size

JOB = "orders-customers"
_CHANGES_A_CUSTOMER = 2
_CHANGES_AN_ORDER = 1.25
_TOMBSTONES = 0.05
_UNKNOWN_KEYS = 0.02
_SEGMENTS = 100


def fill(servers: str, orders: int) -> Filled:
    """Make the topics, and write everything as sidecars do."""
    size = Size(orders, orders // 10)
    keys = size.versions // _CHANGES_A_CUSTOMER
    random = np.random.default_rng(1)
    left, right = orders_of(random, size.facts, keys), customers_of(random, size.versions, keys)
    written = write(servers, JOB, size, {"customers": right, "orders": left})
    wanted = digest_of(joined(left, right))
    judge_streams = partial(judge_last, may_stay=alone(left, right))
    return Filled(JOB, size, *written, wanted, judge_last, judge_streams)


def joined(orders: Records, customers: Records) -> Iterator[tuple[bytes, Row]]:
    """Yield each order at the end with its customer at the end, if there is one."""
    known = latest_of(customers)
    for key, order in latest_of(orders).items():
        who = known.get(order["customer"].encode())
        if who is not None:
            yield key, {**order, **who}


def alone(orders: Records, customers: Records) -> frozenset[bytes]:
    """Return the orders that have no customer at the end."""
    known = latest_of(customers)
    return frozenset(
        key for key, order in latest_of(orders).items() if order["customer"].encode() not in known
    )


def customers_of(random: np.random.Generator, count: int, keys: int) -> Records:
    """Draw customers who change their segment, and some who go."""
    gone = random.random(count) < _TOMBSTONES
    segments = random.integers(0, _SEGMENTS, count)
    values = [
        None if is_gone else b'{"name":"name %d","segment":"s%02d"}' % (number, segment)
        for number, (is_gone, segment) in enumerate(
            zip(gone.tolist(), segments.tolist(), strict=True)
        )
    ]
    of_keys = [b"c%07d" % key for key in random.integers(0, keys, count).tolist()]
    return records_of(of_keys, values, times_of(random, count))


def orders_of(random: np.random.Generator, count: int, customers: int) -> Records:
    """Draw orders of which some change their amount and their customer, and some go."""
    gone = random.random(count) < _TOMBSTONES
    who = random.integers(0, int(customers * (1 + _UNKNOWN_KEYS)), count)
    values = [
        None if is_gone else b'{"customer":"c%07d","amount_cents":%d}' % (customer, number % 9_901)
        for number, (is_gone, customer) in enumerate(zip(gone.tolist(), who.tolist(), strict=True))
    ]
    of_keys = random.integers(0, int(count / _CHANGES_AN_ORDER), count).tolist()
    times_ms = times_of(random, count, odd=True)
    return records_of([b"o%09d" % key for key in of_keys], values, times_ms)
