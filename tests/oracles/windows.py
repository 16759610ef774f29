"""Windows of a stream: every row that a set of records gives, whatever the order of reading."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple


class Payment(NamedTuple):
    """A record: who paid, how much, and when."""

    account: str
    cents: int | None
    time_ms: int


class Folded(NamedTuple):
    """The row of an account and a window."""

    end_ms: int
    account: str
    records: int
    total: int | None
    least: int | None
    greatest: int | None
    all: tuple[int, ...]


def folded(payments: Iterable[Payment], size_ms: int, until_ms: int) -> list[Folded]:
    """Return the rows of windows that have ended until a time, in the order in which they leave."""
    groups: dict[tuple[int, str], list[int | None]] = defaultdict(list)
    for one in payments:
        end_ms = one.time_ms - one.time_ms % size_ms + size_ms
        if end_ms <= until_ms:
            groups[end_ms, one.account].append(one.cents)
    rows = []
    for (end_ms, account), cents in groups.items():
        known = sorted(each for each in cents if each is not None)
        rows.append(
            Folded(
                end_ms,
                account,
                len(cents),
                sum(known) if known else None,
                known[0] if known else None,
                known[-1] if known else None,
                tuple(known),
            )
        )
    return sorted(rows, key=lambda row: (row.end_ms, row.account.encode()))
