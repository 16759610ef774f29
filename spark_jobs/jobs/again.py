"""Start a query again when a Python process that it needs did not start.

Before the first micro-batch, Spark runs each step that keeps state once in a Python process on the
driver. It waits ten seconds until that process connects, whatever the settings say, and then the
query fails. On a busy machine that happens to a job that has nothing wrong. No row was written by
then, and the checkpoint has all that a new start needs.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol, TypeVar

from pyspark.errors import StreamingQueryException

from headrace.contracts.errors import WorkerStalled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql.streaming.query import StreamingQuery

ATTEMPTS = 5
_NOT_STARTED = "Python worker failed to connect back"
"""Spark says this of a process that it has started and that does not connect."""
_log = logging.getLogger(__name__)


class _Output(Protocol):
    def close(self) -> None:
        """Close what stays open between micro-batches."""


OutputT = TypeVar("OutputT", bound=_Output)


class Attempts:
    """Counts how often in a row the Python process of a query did not start."""

    def __init__(self, name: str, finished: Callable[[], int]) -> None:
        """Begin with the first attempt; `finished` returns the last micro-batch that is through."""
        self._name = name
        self._finished = finished
        self._last = finished()
        self._failed = 0

    def failed(self) -> None:
        """Note that one failed; raise an error if that was the last one."""
        last = self._finished()
        if last != self._last:
            self._last, self._failed = last, 0
        self._failed += 1
        if self._failed == ATTEMPTS:
            message = (
                f"the Python process of `{self._name}` did not connect to Spark, which waits 10 s"
                f" for it, {ATTEMPTS} times in a row. If that Python fails, Spark's log says how;"
                " if not, the machine is too busy: give the job more CPU, or start fewer jobs at a"
                " time. Then start it again, and it goes on where it ended"
            )
            raise WorkerStalled(message)
        _log.warning(
            "%s: its Python process did not connect to Spark, which waits 10 s for it (%d of %d"
            " times in a row); the query is started again from its checkpoint, and nothing is lost",
            *(self._name, self._failed, ATTEMPTS),
        )


def did_not_start(failure: BaseException | None) -> bool:
    """Return whether a query failed because its Python process did not start."""
    return _NOT_STARTED in str(failure)


def has_ended(query: StreamingQuery, within_s: int | None = None) -> bool:
    """Wait until a query has ended, and return whether it has.

    Its failure is raised, but not one upon which `running` starts it again.
    """
    try:
        return query.awaitTermination(within_s) is not False
    except StreamingQueryException:
        # It must be asked as `running` asks it: a failure that neither minds would be lost.
        if not did_not_start(query.exception()):
            raise
        return True


def running(
    attempts: Attempts, make: Callable[[], OutputT], start: Callable[[OutputT], StreamingQuery]
) -> Iterator[StreamingQuery]:
    """Start a query, and again as often as its Python process did not start.

    The caller waits for the end of each by `has_ended`. Then the output of that start is closed.
    """
    while True:
        output = make()
        query = start(output)
        try:
            yield query
        finally:
            if not query.isActive:
                output.close()
        if not did_not_start(query.exception()):
            return
        attempts.failed()
