"""Functions of a user's, as pipelines name them."""

from __future__ import annotations

from headrace import Record


def is_wanted(record: Record) -> bool:
    """Refuse to say where there is nothing to look at."""
    assert record.value is not None
    return record.value != b"unwanted"


class Longest:
    """The longest value of a key."""

    def initial(self) -> bytes | None:
        """No result yet."""
        return None

    def add(self, aggregate: bytes | None, record: Record) -> bytes | None:
        """Keep the longer one."""
        return max(aggregate or b"", record.value or b"", key=len)

    def merge(self, one: bytes | None, other: bytes | None) -> bytes | None:
        """Keep the longer one."""
        return max(one or b"", other or b"", key=len)


_ASKED: list[Record] = []


def is_first(record: Record) -> bool:
    """Hold twice and never again: it remembers, as no function may."""
    _ASKED.append(record)
    return len(_ASKED) <= 2
