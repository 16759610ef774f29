"""KIP-655 by brute force: a list of saved records, purged and searched whole at every record."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headrace.contracts.record import NO_TIME_MS, Record
from tests.oracles.expected import Expected

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence


class _Saved(NamedTuple):
    identity: Hashable
    timestamp_ms: int
    offset: int | None


def deduplicate(
    records: Sequence[Record],
    interval_ms: int,
    identify: Callable[[Record], Hashable | None],
    *,
    forward_late: bool = True,
) -> Expected:
    """Forward the first record of an id, drop the others within the interval on both sides."""
    expected = Expected()
    saved: list[_Saved] = []
    time_ms = NO_TIME_MS
    for cause, record in enumerate(records):
        time_ms = max(time_ms, record.timestamp_ms)
        saved = [entry for entry in saved if entry.timestamp_ms >= time_ms - interval_ms]
        identity = identify(record)
        duplicates = [
            entry
            for entry in saved
            if entry.identity == identity
            and abs(entry.timestamp_ms - record.timestamp_ms) <= interval_ms
        ]
        if identity is None:
            expected.leave(cause, record)
        elif duplicates:
            if record.offset is not None and any(e.offset == record.offset for e in duplicates):
                expected.leave(cause, record)
        elif record.timestamp_ms < time_ms - interval_ms:
            expected.late.append(cause)
            if forward_late:
                expected.leave(cause, record)
        else:
            saved.append(_Saved(identity, record.timestamp_ms, record.offset))
            expected.leave(cause, record)
        expected.held.append((len(saved), 0))
    return expected
