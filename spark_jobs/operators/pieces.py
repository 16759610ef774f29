"""Take a batch that failed in pieces, until each record that fails is alone.

Each piece begins with the state that the pieces before it left; the changes of a piece that fails
are thrown away. No output depends on where a batch is cut, so the outcome of a record does not
depend on the records that came with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headrace.contracts.errors import JobFailed, StateCorrupt, StateRefused
from headrace.spark_jobs.versioned.functions import StepFailed
from headrace.spark_jobs.versioned.state import Changes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.spark_jobs.operators.results import Results
    from headrace.spark_jobs.operators.running import OpenTask, Running
    from headrace.spark_jobs.versioned.arrival import Arrivals
    from headrace.spark_jobs.versioned.state import Notes, Rows

_SIZE_MIN = 64
BLAMELESS = (StateRefused, StateCorrupt, JobFailed, OSError, MemoryError)
"""Errors that are not the fault of any one record."""


class Taken(NamedTuple):
    """The outcome of a piece."""

    start: int
    """The index of its first arrival."""
    running: Running
    results: list[Results]
    notes: Notes
    """The notes of steps up to here in the batch."""
    failed: Exception | None = None
    """Why its one arrival was left out."""


def in_pieces(
    arrivals: Arrivals,
    failed: Exception,
    rows: Rows,
    open_over: Callable[[Rows, Notes], OpenTask],
    notes: Notes,
) -> Iterator[Taken]:
    """Take arrivals that failed as a whole, and write their changes into the rows.

    `notes` are those of the batch before them.
    """
    kept = Changes(rows)
    start, failed_last = 0, -1
    size, suspect = _smaller(failed, len(arrivals))
    while start < len(arrivals):
        end = start + 1 if start == suspect else min(start + size, len(arrivals))
        changes = Changes(kept)
        task = open_over(changes, notes)
        failure: Exception | None = None
        results: list[Results] = []
        try:
            results = task.running.process(arrivals[start:end])
            size *= 2
        except BLAMELESS:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the record is to blame
            if end - start > 1:
                size, at = _smaller(error, end - start)
                suspect = None if at is None else start + at
                continue
            changes, failure = Changes(kept), error
            task = open_over(changes, notes)
            task.state.forgo(arrivals[start])
            # The distance to the last failure; if all records fail, larger pieces would only be
            # repeated.
            size, failed_last = max(_SIZE_MIN, start - failed_last), start
        task.state.save()
        changes.hand_over()
        notes = task.state.notes
        yield Taken(start, task.running, results, notes, failure)
        start = end
    kept.hand_over()


def _smaller(error: Exception, size: int) -> tuple[int, int | None]:
    """Return the size of the next piece, and the index of an arrival to take alone after it."""
    if isinstance(error, StepFailed) and error.place is not None:
        return max(error.place, 1), error.place
    return max(size // 2, 1), None
