"""Ids over many partitions by brute force: whoever went out is compared with whoever comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.oracles.expected import Expected

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from headrace.contracts.record import Record


def deduplicate_across(records: Sequence[Record], interval_ms: int) -> Expected:
    """Records by key, in the order in which they were read; each partition is in order itself."""
    expected = Expected()
    out: list[tuple[Hashable, int]] = []
    for cause, record in enumerate(records):
        twins = [
            time_ms
            for key, time_ms in out
            if key == record.key and abs(time_ms - record.timestamp_ms) <= interval_ms
        ]
        if record.key is None or not twins:
            expected.leave(cause, record)
        if record.key is not None and not twins:
            out.append((record.key, record.timestamp_ms))
    return expected
