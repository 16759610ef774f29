"""A filter by brute force."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.oracles.expected import Expected

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.contracts.record import Record

    Predicate = Callable[[Record], bool]


def filter_events(records: Sequence[Record], holds: Predicate) -> Expected:
    """Events that hold."""
    expected = Expected()
    for cause, record in enumerate(records):
        if holds(record):
            expected.leave(cause, record)
    return expected


def filter_updates(
    records: Sequence[Record], olds: Sequence[bytes | None], holds: Predicate
) -> Expected:
    """Updates of a table: a row that no longer holds becomes a tombstone, once."""
    expected = Expected()
    for cause, (record, old) in enumerate(zip(records, olds, strict=True)):
        new = record if record.value is not None and holds(record) else record._replace(value=None)
        kept_old = old if old is not None and holds(record._replace(value=old)) else None
        if new.value is not None or kept_old is not None:
            expected.leave(cause, new, kept_old)
    return expected
