"""KIP-923's buffer, freed from the join, by brute force: sorted and scanned whole at every record.

Grace of zero waits for nothing, so nothing is ever late. The grace may change between two records:
what is due by a shorter one leaves because of the next record, and before it; what has left by a
shorter one has left, so under a longer one a record of such a time leaves at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.contracts.record import NO_TIME_MS, Record
from tests.oracles.expected import Expected, of_each

if TYPE_CHECKING:
    from collections.abc import Sequence


def reorder(
    records: Sequence[Record],
    grace: int | Sequence[int],
    *,
    forward_late: bool = True,
    max_records: int | None = None,
    max_bytes: int | None = None,
    emit_early: bool = False,
) -> Expected:
    """Hold records until no earlier one can come in time; a full buffer emits early or fails."""
    expected = Expected()
    held: list[tuple[int, Record]] = []
    arrivals = 0
    time_ms = NO_TIME_MS
    through_ms: int | None = None
    graces_ms = of_each(grace, len(records))
    for cause, record in enumerate(records):
        grace_ms = graces_ms[cause]
        passed_ms = time_ms - grace_ms
        through_ms = passed_ms if through_ms is None else max(through_ms, passed_ms)
        while held and held[0][1].timestamp_ms <= through_ms:
            expected.leave(cause, held.pop(0)[1])
        if grace_ms == 0:
            expected.leave(cause, record)
        elif record.timestamp_ms < time_ms - grace_ms:
            expected.late.append(cause)
            if forward_late:
                expected.leave(cause, record)
        else:
            time_ms = max(time_ms, record.timestamp_ms)
            held.append((arrivals, record))
            arrivals += 1
            held.sort(key=lambda entry: _place(*entry))
            through_ms = max(through_ms, time_ms - grace_ms)
            while held and held[0][1].timestamp_ms <= through_ms:
                expected.leave(cause, held.pop(0)[1])
            while _is_over(held, max_records, max_bytes) and emit_early:
                expected.leave(cause, held.pop(0)[1])
        arrivals = arrivals if held else 0
        expected.held.append((len(held), sum(weight_bytes(record) for _, record in held)))
        if _is_over(held, max_records, max_bytes):
            expected.failure = cause
            break
    return expected


def weight_bytes(record: Record) -> int:
    """Return the bytes that Kafka Streams' join buffer counts for a record (D7)."""
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    key_and_value = len(record.key or b"") + len(record.value or b"")
    return 13 + key_and_value + 8 + 8 + len(record.topic) + 4 + headers


def _is_over(
    held: list[tuple[int, Record]], max_records: int | None, max_bytes: int | None
) -> bool:
    over_records = max_records is not None and len(held) > max_records
    if over_records or max_bytes is None:
        return over_records
    return sum(weight_bytes(record) for _, record in held) > max_bytes


def _place(arrival: int, record: Record) -> tuple[int, bool, bytes]:
    """By time; null keys first; then key bytes with the arrival behind them, compared as one.

    Arrivals are counted anew whenever nothing is held. It shows only where a key ends in zeros.
    """
    counter = arrival.to_bytes(4, "big")
    return record.timestamp_ms, record.key is not None, (record.key or b"") + counter
