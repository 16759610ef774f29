"""Run one task's part of one batch: put its rows in order, apply its topology, and yield frames.

It first takes all records at once. If that fails, it takes them again in pieces, from the state
before, until each record that fails is alone. Those records are dead; the others go on.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.contracts.decision import Reason
from headrace.contracts.errors import RecordFailed
from headrace.contracts.record import NO_TIME_MS, offset_of
from headrace.spark_jobs.operators.columns import (
    NO_INPUT,
    frame_of,
    frame_of_asides,
    frame_of_counts,
    frame_of_lowest,
    frames_of_bundles,
    take,
)
from headrace.spark_jobs.operators.failures import Failure, as_dead, failure_of, kinds_of
from headrace.spark_jobs.operators.messages import received
from headrace.spark_jobs.operators.pieces import BLAMELESS, in_pieces
from headrace.spark_jobs.operators.results import slices
from headrace.spark_jobs.shapes import COUNT, DEAD, FAILED, LOWEST, POSITION, SAID
from headrace.spark_jobs.versioned.arrival import COPIED
from headrace.spark_jobs.versioned.progress import (
    STORED_KINDS,
    place_of,
    silent_place,
    unpack_progress,
)
from headrace.spark_jobs.versioned.window_fold import is_of_one_window

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd
    import pyarrow as pa

    from headrace.contracts.record import Record
    from headrace.spark_jobs.operators.processor import TaskProcessor
    from headrace.spark_jobs.operators.results import Results
    from headrace.spark_jobs.operators.running import Running
    from headrace.spark_jobs.versioned.arrival import Arrival, Arrivals
    from headrace.spark_jobs.versioned.progress import TaskProgress

_ARRIVALS = "task:arrivals"
_SEQUENCE = "task:sequence"
_QUIET = ("step:", "option:", "buckets", *(f"{kind}:" for kind in STORED_KINDS))


class TaskBatch:
    """Takes the rows of a batch for a task."""

    def __init__(self, processor: TaskProcessor, task: int, rows: Iterator[pd.DataFrame]) -> None:
        """Open the task, and put its rows in order; Spark iterates over them only once."""
        self._processor = processor
        self._task = task
        self._now = first = processor.open(task, processor.rows)
        self._before, self._said = first.before, first.said
        self._taken = taken = take(rows)
        self._asides, self._positions = taken.asides, []
        self._lowest_before: list[dict[str, Any]] = []
        """Of a topology behind another one, what the task before it waits for."""
        if first.progress is not None:
            self._positions = self._aside(POSITION)
        if first.running.is_behind:
            self._lowest_before = [said for said, _ in self._aside(LOWEST)]
        size = len(taken.arrivals)
        # Rows that are handed on count as the first ones, as if they had been opened.
        handed_on = taken.unopened.rows
        began = self._before.get(_ARRIVALS, 0) + handed_on
        self._arrivals = began + size
        self._sequence = self._before.get(_SEQUENCE, 0) + handed_on
        running = np.arange(began, self._arrivals)
        self._causes = running if taken.causes is None else taken.causes
        self._inputs = taken.arrivals.inputs
        self._failures: list[Failure] = []
        if not size:
            # Progress of other inputs may release records here; their cause is the last arrival.
            self._causes, self._inputs = np.array([began - 1]), np.array([NO_INPUT])

    def handed_on(self) -> Iterator[pd.DataFrame]:
        """Yield the bundles that this stage does not open."""
        return frames_of_bundles(self._task, self._taken.unopened.bundles)

    def frames(self, fields: pa.StructType | None = None) -> Iterator[pd.DataFrame]:
        """Yield the results; write the state before the last of them.

        Rows leave with `fields` in the place of their JSON where a step makes just these.
        """
        yield from self._frames_of(self._asides)
        for start, results in self._results():
            if len(results.causes):
                for piece in results.in_pieces():
                    yield self._frame(start, piece, fields)
        if self._failures:
            said = {"verdict": DEAD, "reason": Reason.FAILED.value}
            yield from self._frames_of([(said, as_dead(one)) for one in self._failures])
            kinds = kinds_of(self._failures).items()
            yield frame_of_counts(FAILED, self._task, {kind: (n, n) for kind, n in kinds})
        self._save()
        if self._said:
            yield frame_of_counts(SAID, self._task, dict.fromkeys(self._said, (0, 0)))
        if self._now.progress is not None:
            yield self._frame_of_lowest(self._now.progress)
        yield frame_of_counts(COUNT, self._task, self._counts())

    def _aside(self, verdict: str) -> list[tuple[dict[str, Any], Record]]:
        """Take the rows of a verdict out of those that pass through."""
        taken = [each for each in self._asides if each[0]["verdict"] == verdict]
        self._asides = [each for each in self._asides if each[0]["verdict"] != verdict]
        return taken

    def _frame_of_lowest(self, progress: TaskProgress) -> pd.DataFrame:
        """Say who is waited for: nobody but the partitions that the first topology reads."""
        held = self._now.running.held()
        if not self._now.running.is_behind:
            return frame_of_lowest(self._task, progress.lowest(), held)
        lowest = None
        for said in self._lowest_before:
            held += said["added"]
            if said.get("reason") is not None:
                lowest = said["reason"], said.get("number")
        return frame_of_lowest(self._task, lowest, held)

    def _frames_of(self, asides: Sequence[tuple[dict[str, Any], Record]]) -> Iterator[pd.DataFrame]:
        if asides:
            sizes = (len(one.key or b"") + len(one.value or b"") for _, one in asides)
            for rows in slices(sizes):
                yield frame_of_asides(self._task, asides[rows])

    def _results(self) -> Iterator[tuple[int, Results]]:
        arrivals = self._taken.arrivals
        start, last = 0, None
        for place in [*self._taken.progress, len(arrivals)]:
            if place > start:
                if last is not None:
                    yield from self._advanced(last)
                yield from self._process(start, arrivals[start:place])
            # All records of a batch come before its progress.
            self._read_up_to()
            if place < len(arrivals):
                last = place
                self._take_progress(arrivals[place].record)
            start = place + 1
        yield from self._advanced(len(arrivals) - 1)

    def _process(self, start: int, arrivals: Arrivals) -> Iterator[tuple[int, Results]]:
        """Take arrivals; `start` is the first one's place in the batch."""
        if start:
            # Save the arrivals before, whatever happens to these.
            self._now.state.save()
        failed = None
        try:
            all_results = self._now.running.process(arrivals)
        except BLAMELESS:
            raise
        except Exception as error:  # noqa: BLE001 - who is to blame is found in smaller pieces
            failed = error
        if failed is not None:
            yield from self._process_in_pieces(start, arrivals, failed)
            return
        self._note_failed(self._now.running)
        for results in all_results:
            yield start, results

    def _process_in_pieces(
        self, start: int, arrivals: Arrivals, error: Exception
    ) -> Iterator[tuple[int, Results]]:
        rows, notes = self._processor.rows, self._now.state.notes
        open_over = partial(self._processor.open, self._task)
        for piece in in_pieces(arrivals, error, rows, open_over, notes):
            notes = piece.notes
            if piece.failed is not None and arrivals[piece.start].input != COPIED:
                # The task of its key fails on the record of which it is a copy, and says so.
                self._fail(_origin_of(arrivals[piece.start]), piece.failed)
            self._note_failed(piece.running)
            for results in piece.results:
                yield start + piece.start, results
        self._now = open_over(rows, notes)

    def _note_failed(self, running: Running) -> None:
        for record, failed in running.failed():
            self._fail(record, failed)

    def _fail(self, record: Record, failed: Exception) -> None:
        failure = failure_of(record, failed, self._now.name)
        if self._processor.stops:
            raise RecordFailed(failure.sentence) from failure.error
        self._failures.append(failure)

    def _advanced(self, place: int) -> Iterator[tuple[int, Results]]:
        """Release the records that all inputs have passed; their cause is the arrival `place`."""
        progress = self._now.progress
        progress_ms = None if progress is None else progress.progress_ms()
        if progress_ms is not None:
            all_results = self._now.running.advance(progress_ms)
            self._note_failed(self._now.running)
            for results in all_results:
                yield place, results

    def _take_progress(self, row: Record) -> None:
        """Note the progress of a partition."""
        progress = self._now.progress
        if progress is not None and row.value is not None:
            for one in unpack_progress(row.value):
                progress.add(place_of(row.topic, row.partition), one)

    def _read_up_to(self) -> None:
        """Note how far this batch reads, once its records are taken."""
        progress = self._now.progress
        while progress is not None and self._positions:
            said, record = self._positions.pop()
            progress.read_up_to(place_of(record.topic, record.partition), offset_of(record))
            if said["number"] in self._processor.silent and record.timestamp_ms > NO_TIME_MS:
                progress.count(silent_place(said["number"]), record.timestamp_ms)

    def _frame(self, start: int, results: Results, fields: pa.StructType | None) -> pd.DataFrame:
        sequence = self._sequence
        self._sequence += len(results.causes)
        causes, inputs = self._causes[start:], self._inputs[start:]
        return frame_of(results, self._task, sequence, causes, inputs, fields)

    def _save(self) -> None:
        state = self._now.state
        state.numbers[_ARRIVALS] = self._arrivals
        state.numbers[_SEQUENCE] = self._sequence
        passing = Counter(said["verdict"] for said, _ in self._asides)[DEAD]
        state.count("task:dead", passing + len(self._failures))
        state.save()

    def _counts(self) -> dict[str, tuple[int, int]]:
        numbers = self._now.state.numbers
        for name, balance in self._now.running.balances().items():
            numbers[f"{name}:balance"] = balance
        return {
            name: (number, number - self._before.get(name, 0))
            for name, number in numbers.items()
            if number != self._before.get(name) and not _is_quiet(name)
        }


def _is_quiet(name: str) -> bool:
    """Return whether a number is none of those that a task counts by."""
    # A window's own number would be a name more in the metrics for each window that ever was.
    return name.startswith(_QUIET) or is_of_one_window(name)


def _origin_of(arrival: Arrival) -> Record:
    """Return the record of a topic: for a message from another stage, the one that caused it."""
    return arrival.record if arrival.input >= 0 else received(arrival.record).origin
