"""Tables that cannot be where a job has them (rule F7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.contracts.errors import TopologyRefused
from headrace.spark_jobs.versioned.tables import Versioned

if TYPE_CHECKING:
    from headrace.spark_jobs.versioned.tables import Storage, Table


def refuse_suppress(table: Table, step: str) -> None:
    """Refuse to suppress a versioned table, also where it is so by its parents (rule F7)."""
    if table.versioned:
        message = (
            f"`{step}` cannot suppress the versioned table `{table.name}`, for it would lose"
            " versions; give the step before it a plain store, or suppress a stream of its updates"
        )
        raise TopologyRefused(message)


def refuse_global(storage: Storage | None, step: str) -> None:
    """Refuse a versioned global table, which no join could look up by time (rule F7)."""
    if isinstance(storage, Versioned):
        message = (
            f"`{step}` cannot be a versioned global table; make it a plain one, or a versioned"
            " table that is partitioned like the stream it joins"
        )
        raise TopologyRefused(message)
