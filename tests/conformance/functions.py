"""The selectors, the filter and the aggregate that vectors name, as a user would write them."""

from __future__ import annotations

from headrace.contracts.record import Record

THIS = "tests.conformance.functions"


def value(record: Record) -> bytes | None:
    """The whole value."""
    return record.value


def value_before_colon(record: Record) -> bytes | None:
    """The value up to its first colon; null where there is none."""
    head, colon, _ = (record.value or b"").partition(b":")
    return head if colon else None


def constant(_record: Record) -> bytes:
    """The same for every record."""
    return b"constant"


def is_whole(record: Record) -> bool:
    """Whether a stream-table join could let it wait: it has a key and a value."""
    return record.key is not None and record.value is not None


class Concatenate:
    """Values one after the other, a null value as the word."""

    def initial(self) -> bytes:
        """No result yet."""
        return b""

    def add(self, aggregate: bytes | None, record: Record) -> bytes:
        """One more value."""
        return (aggregate or b"") + (b"null" if record.value is None else record.value)

    def merge(self, one: bytes | None, other: bytes | None) -> bytes:
        """One after the other."""
        return (one or b"") + (other or b"")
