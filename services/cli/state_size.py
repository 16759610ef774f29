"""How much an operator would keep, from how many records come; a bound, not a measurement."""

from __future__ import annotations

from typing import NamedTuple

from headrace.contracts.policies import (
    AggregatePolicy,
    AnyOperator,
    DeduplicatePolicy,
    DistinctPolicy,
    Hopping,
    ReorderPolicy,
    SuppressPolicy,
    Unlimited,
    Window,
    retention_needed_ms,
)

ROW_BYTES = 100
"""Roughly what a row takes beside the record that is in it: key, times, origin, index."""


class Traffic(NamedTuple):
    """The records that come in over all partitions."""

    records_per_second: int
    record_bytes: int


def state_bytes_max(policy: AnyOperator, traffic: Traffic) -> int | None:
    """The most an operator keeps, where no two records share a key; None if time is no bound."""
    match policy:
        case ReorderPolicy():
            return _records(policy.grace_ms, traffic) * (traffic.record_bytes + ROW_BYTES)
        case DeduplicatePolicy():
            return _records(policy.interval_ms, traffic) * ROW_BYTES
        case DistinctPolicy():
            return _records(retention_needed_ms(policy.window), traffic) * ROW_BYTES
        case AggregatePolicy():
            return _windowed(policy.window, policy.retention_ms, ROW_BYTES, traffic)
        case SuppressPolicy() if policy.limit_ms is not None:
            return _records(policy.limit_ms, traffic) * (traffic.record_bytes + ROW_BYTES)
        case SuppressPolicy():
            return _windowed(policy.window, None, traffic.record_bytes + ROW_BYTES, traffic)
        case _:
            return None


def format_bytes(size: int) -> str:
    """A size in the unit that people would use."""
    for shift, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << shift:
            return f"{size / (1 << shift):.1f} {unit}"
    return f"{size} bytes"


def _records(milliseconds: int, traffic: Traffic) -> int:
    return milliseconds * traffic.records_per_second // 1000


def _windowed(
    window: Window | None, retention_ms: int | None, row_bytes: int, traffic: Traffic
) -> int | None:
    if window is None or isinstance(window, Unlimited):
        return None
    kept_ms = retention_ms if retention_ms is not None else retention_needed_ms(window)
    # A record stands in that many hopping windows at once.
    windows = -(-window.size_ms // window.advance_ms) if isinstance(window, Hopping) else 1
    return _records(kept_ms, traffic) * windows * row_bytes
