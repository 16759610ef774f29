"""A batch that failed, taken in pieces until each record that fails stands alone.

Each piece begins with the state that the pieces before it left, and what a piece that fails has
changed is thrown away. Where a batch is cut shows in no output, so what a record meets does not
depend on which others came with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headrace.contracts.errors import StateCorrupt, StateRefused
from headrace.spark_jobs.versioned.functions import StepFailed
from headrace.spark_jobs.versioned.state import Changes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.spark_jobs.operators.opened import Opened, OpenTask
    from headrace.spark_jobs.operators.results import Results
    from headrace.spark_jobs.versioned.arrival import Arrivals
    from headrace.spark_jobs.versioned.state import Rows

_SIZE_MIN = 64
BLAMELESS = (StateRefused, StateCorrupt, OSError, MemoryError)
"""What fails without any one record being to blame."""


class Taken(NamedTuple):
    """What became of a piece."""

    start: int
    """The index of its first arrival."""
    opened: Opened
    results: list[Results]
    failed: Exception | None = None
    """Why its one arrival was left out."""


def in_pieces(
    arrivals: Arrivals,
    failed: Exception,
    rows: Rows,
    open_over: Callable[[Rows], OpenTask],
) -> Iterator[Taken]:
    """Take arrivals of which the whole has failed, and write what they change into the rows."""
    kept = Changes(rows)
    start, failed_last = 0, -1
    size, suspect = _smaller(failed, len(arrivals))
    while start < len(arrivals):
        end = start + 1 if start == suspect else min(start + size, len(arrivals))
        changes = Changes(kept)
        task = open_over(changes)
        try:
            taken = Taken(start, task.opened, task.opened.process(arrivals[start:end]))
            size *= 2
        except BLAMELESS:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the record is to blame
            if end - start > 1:
                size, at = _smaller(error, end - start)
                suspect = None if at is None else start + at
                continue
            changes = Changes(kept)
            task = open_over(changes)
            task.state.forgo(arrivals[start])
            taken = Taken(start, task.opened, [], error)
            # As far as it was to this one; where all fail, a large piece costs what it holds.
            size, failed_last = max(_SIZE_MIN, start - failed_last), start
        task.state.save()
        changes.hand_over()
        yield taken
        start = end
    kept.hand_over()


def _smaller(error: Exception, size: int) -> tuple[int, int | None]:
    """How much of a piece that failed to take next, and which arrival then to take alone."""
    if isinstance(error, StepFailed) and error.place is not None:
        return max(error.place, 1), error.place
    return max(size // 2, 1), None
