"""Whether the rows that somebody wrote are those that the rules ask for, record by record."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import NamedTuple
from zlib import crc32


class Priced(NamedTuple):
    """A row of the result, with its key and its time in Kafka."""

    key: str
    product: str
    order_id: str
    quantity: int
    price_cents: int
    total_cents: int
    timestamp_ms: int


class Agreement(NamedTuple):
    """How the rows of a contestant differ from the right ones."""

    rows: int
    missing: int
    """Right rows of whose order there is none."""
    other: int
    """Rows of an order that has another price, quantity or time."""
    doubled: int
    """Rows of an order that had one before."""
    surplus: int
    """Rows of an order that must have none."""

    @property
    def is_whole(self) -> bool:
        """Whether the rows are the right ones."""
        return not any(self[1:])


class Wanted:
    """The right rows, by the number in the order's id; only a checksum of each is kept."""

    def __init__(self, orders: int, rows: Iterable[Priced]) -> None:
        self._checksums = array("q", [_NONE]) * orders
        self.count = 0
        for row in rows:
            self._checksums[number_of(row.order_id)] = _checksum(row)
            self.count += 1

    def compare(self, rows: Iterable[Priced]) -> Agreement:
        """Compare what somebody wrote, in any order."""
        seen = bytearray(len(self._checksums))
        count = right = other = doubled = surplus = 0
        for row in rows:
            count += 1
            number = number_of(row.order_id)
            checksum = self._checksums[number] if number < len(seen) else _NONE
            if checksum == _NONE:
                surplus += 1
            elif seen[number]:
                doubled += 1
            else:
                seen[number] = 1
                right += 1
                other += checksum != _checksum(row)
        return Agreement(count, self.count - right, other, doubled, surplus)


_NONE = -1
"""No checksum is negative."""


def order_id(number: int) -> str:
    """Return the id of an order."""
    return f"o{number:09d}"


def number_of(order_id: str) -> int:
    """Return the number in an order's id."""
    return int(order_id[1:])


def _checksum(row: Priced) -> int:
    return crc32(repr(tuple(row)).encode())
