"""Names in Spark's SQL."""

from __future__ import annotations


def quoted(name: str) -> str:
    """Return a name as SQL takes it, whatever characters it has."""
    return f"`{name.replace('`', '``')}`"
