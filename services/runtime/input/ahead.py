"""A task's knowledge of records to come, from having failed on them.

A task that fails is opened again from what is committed, and meets the same records. It knows by
then where it must stop, and which of them it takes one by one: a batch failed with them, and the
one to blame is not known yet.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from headrace.contracts.decision import Reason
from headrace.contracts.errors import HeadraceError, RecordFailed
from headrace.contracts.record import Record, offset_of
from headrace.services.operators.careful import is_of_a_record
from headrace.services.operators.operator import Aside

_TO_BLAME = {Reason.FAILED, Reason.TOO_LARGE}
WARY_BATCHES = 2_000
"""To be wary so often costs two CPU-s where batches are full, and less where they are not."""


class StopAtError(Exception):
    """An operator cannot go on; the task is opened again, runs up to this offset and ends."""

    def __init__(self, offset: int, error: HeadraceError) -> None:
        """End with this error."""
        super().__init__(str(error))
        self.offset = offset
        self.error = error


class BatchFailedError(Exception):
    """Something raised over these source offsets, and one of their records may be to blame."""

    def __init__(self, offsets: range) -> None:
        """All that was processed and not committed, where nobody knows better."""
        super().__init__(f"offsets {offsets.start} to {offsets.stop - 1}")
        self.offsets = offsets


@contextmanager
def blaming(offsets: range) -> Iterator[None]:
    """Records of these offsets are processed; one of them may be to blame for what is raised."""
    try:
        yield
    except Exception as problem:  # a function of a user raises what it likes
        if not is_of_a_record(problem):
            raise
        raise BatchFailedError(offsets) from problem


class Part(NamedTuple):
    """Records that are processed at once."""

    records: list[Record]
    carefully: bool


class Ahead:
    """Kept while a task is opened again and again."""

    def __init__(self) -> None:
        """Begin without a failure."""
        self.stop: StopAtError | None = None
        self.silent_until = 0
        """Before this source offset all was emitted once, and only the state is to be made."""
        self.is_careful_when_idle = False
        self._careful = range(0)
        self._wary_batches = 0
        """So many batches are still taken warily."""

    @property
    def is_wary(self) -> bool:
        """Whether a record was to blame lately: for the next one nobody else is to begin again."""
        return self._wary_batches > 0

    def decided(self, dead: Iterable[Aside]) -> bool:
        """A batch was taken warily; return whether a record of it was to blame for a failure."""
        has_failed = any(aside.reason in _TO_BLAME for aside in dead)
        self._wary_batches = WARY_BATCHES if has_failed else self._wary_batches - 1
        return has_failed

    def take_care(self, failed: BatchFailedError) -> bool:
        """Process what failed one by one from now on; False where that was done, and failed too."""
        offsets = failed.offsets
        if not offsets:
            was_careful, self.is_careful_when_idle = self.is_careful_when_idle, True
            return not was_careful
        if offsets.start in self._careful:
            return False
        self._careful = offsets
        self._wary_batches = WARY_BATCHES
        return True

    def parts(self, records: list[Record], at_once: Callable[[], int]) -> Iterator[Part]:
        """Records in parts that are processed alike, each as large as it may be by then."""
        begins, ends = (_place(records, edge) for edge in (self._careful.start, self._careful.stop))
        speaks = _place(records, self.silent_until)
        start = 0
        while start < len(records):
            carefully = begins <= start < ends
            edge = min(edge for edge in (begins, ends, speaks, len(records)) if edge > start)
            end = min(edge, start + at_once())
            yield Part(records[start:end], carefully)
            start = end

    def before_stop(self, records: list[Record]) -> list[Record]:
        """Those that come before the offset at which to stop."""
        if self.stop is None:
            return records
        return records[: _place(records, self.stop.offset)]


def _place(records: list[Record], offset: int) -> int:
    """The index of the first record from an offset on."""
    return bisect_left(records, offset, key=offset_of)


def failed(aside: Aside, records: list[Record]) -> StopAtError | RecordFailed:
    """A pipeline that does not go on behind a record that failed, here or where it was held."""
    record = aside.record
    place = f"{record.topic}/{record.partition} at offset {record.offset}"
    error = RecordFailed(
        f"`{aside.operator}` failed on the record of {place} ({aside.detail}); mend what failed, or"
        " remove `on-failure: stop`, so that such records go to the dead-letter topic"
    )
    if aside.cause < 0:
        return error
    return StopAtError(offset_of(records[aside.cause]), error)
