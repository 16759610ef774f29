"""Take a batch one by one, as the reference for tables that take it at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.spark_jobs.versioned.arrival import Arrival
    from headrace.spark_jobs.versioned.changes import Change, OneByOne


def run(table: OneByOne, arrivals: Iterable[Arrival]) -> list[Change]:
    """Return all changes of a table by a batch, taken one by one."""
    return [
        change for cause, arrival in enumerate(arrivals) for change in table.take(cause, arrival)
    ]
