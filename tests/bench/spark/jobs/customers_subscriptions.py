"""`customers-subscriptions`: a table-table join by the same key, left."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.bench.spark.cleaned import Filled, Records, records_of, times_of, write
from tests.bench.spark.jobs.rows import Row, digest_of, judge_last, latest_of
from tests.bench.spark.topics import Size

JOB = "customers-subscriptions"
_CHANGES_A_KEY = 4
_TOMBSTONES = 0.05
_UNKNOWN_KEYS = 0.02


def fill(servers: str, changes: int) -> Filled:
    """Make the topics, and write everything as sidecars do."""
    size = Size(changes, changes // 2)
    keys = size.facts // _CHANGES_A_KEY
    random = np.random.default_rng(1)
    subscribers = int(keys * (1 + _UNKNOWN_KEYS))
    subscriptions = _changes(random, size.versions, subscribers, b'{"plan":"plan %d"}')
    customers = _changes(random, size.facts, keys, b'{"name":"name %d"}', odd=True)
    inputs = {"subscriptions": subscriptions, "customers": customers}
    written = write(servers, JOB, size, inputs)
    return Filled(JOB, size, *written, digest_of(joined(customers, subscriptions)), judge_last)


def joined(customers: Records, subscriptions: Records) -> Iterator[tuple[bytes, Row]]:
    """Yield each customer at the end with its plan at the end, or with none."""
    plans = latest_of(subscriptions)
    for key, customer in latest_of(customers).items():
        yield key, {"name": customer["name"], "plan": plans.get(key, {}).get("plan")}


def _changes(
    random: np.random.Generator, count: int, keys: int, value: bytes, *, odd: bool = False
) -> Records:
    gone = (random.random(count) < _TOMBSTONES).tolist()
    values = [None if is_gone else value % number for number, is_gone in enumerate(gone)]
    of_keys = [b"c%07d" % key for key in random.integers(0, keys, count).tolist()]
    return records_of(of_keys, values, times_of(random, count, odd=odd))
