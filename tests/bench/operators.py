"""The input of each operator: a policy and an endless stream, for a number of ids.

Values have 100 bytes, time moves one millisecond a record, and a tenth of the records come up to
100 ms late. A workload with `ids` ids keeps about that many rows of state alive, however long it
runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

from headrace.contracts.policies import (
    AggregatePolicy,
    AnyOperator,
    BufferPolicy,
    DeduplicatePolicy,
    DistinctPolicy,
    FilterPolicy,
    ReorderPolicy,
    SamplePolicy,
    SuppressPolicy,
    TablePolicy,
    Tumbling,
)
from headrace.contracts.record import Record

_START_MS = 1_700_000_000_000
_VALUE_BYTES = 100
_VALUES = 1_000
_LATE_SHARE = 0.1
_LATE_MS_MAX = 100
_DUPLICATES_SHARE = 0.25
_DUPLICATES_WITHIN = 50_000
_IN_MEMORY_MAX = 200_000


class Workload(NamedTuple):
    """A policy and a stream, both for a number of ids."""

    policy: Callable[[int], AnyOperator]
    keys: Callable[[int, Random], Iterator[bytes]]


def records(workload: Workload, ids: int) -> Iterator[Record]:
    """The endless stream of a workload."""
    random = Random(ids)
    values = [_value(random) for _ in range(_VALUES)]
    for offset, key in enumerate(workload.keys(ids, random)):
        timestamp_ms = _START_MS + offset
        if random.random() < _LATE_SHARE:
            timestamp_ms -= random.randrange(_LATE_MS_MAX)
        yield Record(key, values[offset % _VALUES], timestamp_ms, (), "clicks.raw", 0, offset)


def _value(random: Random) -> bytes:
    """A small JSON object, most of which no compression can guess."""
    head = b'{"amount":%.2f,"text":"' % (random.random() * 100)
    text = random.randbytes(_VALUE_BYTES).hex().encode()
    return (head + text)[: _VALUE_BYTES - 2] + b'"}'


def _new_keys(_ids: int, random: Random) -> Iterator[bytes]:
    """A new key each time, but for duplicates of recent ones."""
    issued = 0
    while True:
        if issued and random.random() < _DUPLICATES_SHARE:
            yield _key(issued - 1 - random.randrange(min(issued, _DUPLICATES_WITHIN)))
        else:
            yield _key(issued)
            issued += 1


def _few_keys(ids: int, random: Random) -> Iterator[bytes]:
    """Any of the keys, again and again."""
    while True:
        yield _key(random.randrange(ids))


def _key(number: int) -> bytes:
    """Keys without any order, as ids have none."""
    return b"%016x" % (number * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF)


def _spilling() -> BufferPolicy:
    return BufferPolicy(records=_IN_MEMORY_MAX, when_full="spill")


BENCHES: dict[str, Workload] = {
    "reorder": Workload(
        lambda ids: ReorderPolicy(grace_ms=ids, buffer=_spilling()),
        _few_keys,
    ),
    "deduplicate": Workload(lambda ids: DeduplicatePolicy(interval_ms=ids * 4 // 3), _new_keys),
    "distinct": Workload(
        lambda ids: DistinctPolicy(window=Tumbling(size_ms=ids, grace_ms=_LATE_MS_MAX)),
        _few_keys,
    ),
    "table": Workload(lambda _: TablePolicy(), _few_keys),
    "filter": Workload(lambda _: FilterPolicy(where="value.amount >= 3"), _few_keys),
    "sample": Workload(lambda _: SamplePolicy(every=10), _few_keys),
    "aggregate": Workload(
        lambda ids: AggregatePolicy(
            function="count", window=Tumbling(size_ms=ids, grace_ms=_LATE_MS_MAX)
        ),
        _few_keys,
    ),
    "suppress": Workload(
        lambda ids: SuppressPolicy(until="time-limit", limit_ms=ids, buffer=_spilling()),
        _few_keys,
    ),
}
