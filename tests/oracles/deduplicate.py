"""KIP-655 by brute force: a list of saved records, purged and searched whole at every record.

The interval may change between two records. Under a longer one, a record that the shorter one had
over may be known or forgotten, and nobody says which. Such a decision is in doubt: `left` is asked
what came of it, and the oracle goes on from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headrace.contracts.record import NO_TIME_MS, Record
from tests.oracles.expected import Expected, of_each

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence


class _Saved(NamedTuple):
    identity: Hashable
    timestamp_ms: int
    offset: int | None


def deduplicate(
    records: Sequence[Record],
    interval: int | Sequence[int],
    identify: Callable[[Record], Hashable | None],
    *,
    forward_late: bool = True,
    left: Callable[[Record], bool] | None = None,
) -> Expected:
    """Forward the first record of an id, drop the others within the interval on both sides."""
    expected = Expected()
    saved: list[_Saved] = []
    over: list[_Saved] = []
    time_ms = NO_TIME_MS
    intervals_ms = of_each(interval, len(records))
    longest_ms = max(intervals_ms, default=0)
    for cause, record in enumerate(records):
        interval_ms = intervals_ms[cause]
        time_ms = max(time_ms, record.timestamp_ms)
        over += [entry for entry in saved if entry.timestamp_ms < time_ms - interval_ms]
        over = [entry for entry in over if entry.timestamp_ms >= time_ms - longest_ms]
        saved = [entry for entry in saved if entry.timestamp_ms >= time_ms - interval_ms]
        identity = identify(record)
        duplicates = _duplicates(saved, identity, record, interval_ms)
        old = [entry for entry in over if entry.timestamp_ms >= time_ms - interval_ms]
        in_doubt = _duplicates(old, identity, record, interval_ms)
        if identity is None:
            expected.leave(cause, record)
        elif duplicates:
            if record.offset is not None and any(e.offset == record.offset for e in duplicates):
                expected.leave(cause, record)
        elif in_doubt and left is not None and not left(record):
            pass
        elif record.timestamp_ms < time_ms - interval_ms:
            expected.late.append(cause)
            if forward_late:
                expected.leave(cause, record)
        else:
            saved.append(_Saved(identity, record.timestamp_ms, record.offset))
            expected.leave(cause, record)
        expected.held.append((len(saved), 0))
    return expected


def _duplicates(
    entries: Sequence[_Saved], identity: Hashable, record: Record, interval_ms: int
) -> list[_Saved]:
    return [
        entry
        for entry in entries
        if entry.identity == identity
        and abs(entry.timestamp_ms - record.timestamp_ms) <= interval_ms
    ]
