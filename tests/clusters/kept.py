"""Sources as somebody keeps them: what was written, and what brokers do to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from headrace.contracts.record import Record
from tests.runtime.sidecar import record

BEGUN_MS = 1_700_000_000_000
QUICK = {
    "log.initial.task.delay.ms": "100",
    "log.cleaner.backoff.ms": "100",
    "log.retention.check.interval.ms": "100",
}
"""A broker looks for what can be deleted and compacted every few minutes."""


class Kept(NamedTuple):
    """A source as somebody keeps it."""

    settings: dict[str, str]
    written: list[list[Record]]
    """One batch after the other."""
    is_ready: Callable[[list[Record]], bool] = bool
    """Whether the broker has done to it what it is about to do."""
    times_are_brokers: bool = False


def _rounds(count: int) -> list[list[Record]]:
    """The same keys with new values again and again; every tenth is deleted in the end.

    A segment is closed by the time of records; only what is closed is compacted.
    """
    rounds = [
        [record(b"%d" % key, b"%d" % turn, BEGUN_MS + turn * 1_000) for key in range(100)]
        for turn in range(count)
    ]
    gone = [record(b"%d" % key, None, BEGUN_MS + count * 1_000) for key in range(0, 100, 10)]
    return [*rounds, gone]


def _large(count: int) -> list[list[Record]]:
    return [[record(b"%d" % n, bytes(100_000), BEGUN_MS + n)] for n in range(count)]


COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
}
KEPT = {
    "times of the broker": Kept(
        {"message.timestamp.type": "LogAppendTime"}, _rounds(1), times_are_brokers=True
    ),
    "compacted, with holes": Kept(COMPACTED, _rounds(5), lambda left: len(left) < 300),
    "compacted and packed": Kept(
        COMPACTED | {"compression.type": "zstd"}, _rounds(5), lambda left: len(left) < 300
    ),
    "the oldest deleted by size": Kept(
        {"segment.bytes": str(1 << 20), "retention.bytes": str(2 << 20)},
        _large(60),
        lambda left: len(left) < 40,
    ),
}
