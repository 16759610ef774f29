"""`revenue-by-segment`: an aggregation of a table, whose orders change and move."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from tests.bench.spark.cleaned import Filled, Records, records_of, times_of, write
from tests.bench.spark.jobs.rows import Row, digest_of, judge_last, latest_of
from tests.bench.spark.topics import Size

JOB = "revenue-by-segment"
_CHANGES_AN_ORDER = 1.25
_TOMBSTONES = 0.05
_WITHOUT_SEGMENT = 0.02
_SEGMENTS = 100


def fill(servers: str, orders: int) -> Filled:
    """Make the topic, and write everything as a sidecar does."""
    size = Size(orders, 0)
    table = orders_of(np.random.default_rng(1), orders)
    written = write(servers, JOB, size, {"orders": table})
    return Filled(JOB, size, *written, digest_of(folded(table)), judge_last)


def folded(orders: Records) -> Iterator[tuple[bytes, Row]]:
    """Yield orders and revenue of every segment that ever had an order."""
    ever = (json.loads(value)["segment"] for value in orders.values if value is not None)
    totals = {segment: [0, 0] for segment in ever if segment is not None}
    for order in latest_of(orders).values():
        if order["segment"] is not None:
            totals[order["segment"]][0] += 1
            totals[order["segment"]][1] += order["amount_cents"]
    for segment, (count, cents) in totals.items():
        yield segment.encode(), {"orders": count, "revenue_cents": cents}


def orders_of(random: np.random.Generator, count: int) -> Records:
    """Draw orders that change amount and segment; some have no segment, and some go."""
    gone = random.random(count) < _TOMBSTONES
    bare = random.random(count) < _WITHOUT_SEGMENT
    segments = random.integers(0, _SEGMENTS, count)
    drawn = zip(gone.tolist(), bare.tolist(), segments.tolist(), strict=True)
    values = [
        None
        if is_gone
        else b'{"segment":%s,"amount_cents":%d}'
        % (b"null" if is_bare else b'"s%02d"' % segment, number % 9_901)
        for number, (is_gone, is_bare, segment) in enumerate(drawn)
    ]
    of_keys = random.integers(0, int(count / _CHANGES_AN_ORDER), count).tolist()
    times_ms = times_of(random, count)
    return records_of([b"o%09d" % key for key in of_keys], values, times_ms)
