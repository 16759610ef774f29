"""The stateful processor: a task's rows in, its topology over its state, results out."""

from __future__ import annotations

import gc
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from contracts.record import offset_of
from spark_jobs.operators.columns import NO_INPUT, frame_of, frame_of_asides, frame_of_counts, take
from spark_jobs.operators.opened import open_topology
from spark_jobs.operators.rows import NAME_SCHEMA, ROW_SCHEMA, StoredRows
from spark_jobs.operators.stamp import keep_options
from spark_jobs.operators.topology import options_of
from spark_jobs.shapes import COUNT, DEAD, REACHED, SAID
from spark_jobs.versioned.heard import Heard, place_of
from spark_jobs.versioned.state import BUCKETS_DEFAULT, TaskState
from spark_jobs.worker import settle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

    from spark_jobs.operators.results import Results
    from spark_jobs.operators.topology import Topology

ROWS = "rows"
"""The map of a task's rows by name, as a checkpoint calls it."""
_ARRIVALS = "task:arrivals"
_SEQUENCE = "task:sequence"
_QUIET = ("step:", "option:", "progress:", "reached:", "waiting:", "buckets")


class TaskProcessor(StatefulProcessor):
    """One topology, a task at a time."""

    def __init__(
        self,
        topology_of: Callable[[int], Topology],
        heard: dict[int, int],
        begins: Mapping[str, int],
        options: dict[str, int],
        buckets: int = BUCKETS_DEFAULT,
    ) -> None:
        """`heard` says of how many partitions of each input a task hears progress.

        Zero is an input of which nobody says it: it is as far as its own records. `begins` are the
        first offsets that are still there, `options` what a checkpoint remembers beside the
        topology's.
        """
        self._topology_of = topology_of
        self._heard = heard
        self._begins = begins
        self._options = options
        self._buckets = buckets

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the rows; called on the driver too, where there is no task."""
        settle()
        self._rows = StoredRows(handle.getMapState(ROWS, NAME_SCHEMA, ROW_SCHEMA))

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: ARG002, N803
    ) -> Iterator[pd.DataFrame]:
        """Take the rows of a task; Spark calls by these names."""
        (task,) = key
        # A batch is hundreds of thousands of tuples in no cycle; looking for some doubles the cost.
        collects = gc.isenabled()
        gc.disable()
        try:
            yield from _Turn(self, int(task), rows).frames()
        finally:
            if collects:
                gc.enable()

    def close(self) -> None:
        """Nothing is open."""

    def open_state(self) -> TaskState:
        """The state of the task whose turn it is."""
        return TaskState(self._rows, self._buckets)

    def topology_of(self, task: int) -> Topology:
        """What a task computes."""
        return self._topology_of(task)

    def options_of(self, topology: Topology) -> dict[str, int]:
        """What a checkpoint remembers of a topology, and of how its state is spread."""
        return self._options | options_of(topology)

    @property
    def silent(self) -> list[int]:
        """The inputs of which nobody says how far they are."""
        return [number for number, partitions in self._heard.items() if not partitions]

    def heard_by(self, state: TaskState) -> Heard | None:
        """What a task was told of progress, None where it need not know."""
        if not self._heard:
            return None
        expected = sum(max(partitions, 1) for partitions in self._heard.values())
        return Heard(state, expected, self._begins)


class _Turn:
    """One task's turn in one batch."""

    def __init__(self, processor: TaskProcessor, task: int, rows: Iterator[pd.DataFrame]) -> None:
        self._task = task
        self._silent = processor.silent
        self._state = state = processor.open_state()
        self._before = dict(state.numbers)
        topology = processor.topology_of(task)
        self._said = keep_options(state.numbers, processor.options_of(topology))
        self._opened = open_topology(topology, state)
        self._heard = processor.heard_by(state)
        self._taken = taken = take(rows)
        self._asides, self._reached = taken.asides, []
        if self._heard is not None:
            self._asides = [each for each in taken.asides if each[0]["verdict"] != REACHED]
            self._reached = [one for said, one in taken.asides if said["verdict"] == REACHED]
        first = state.numbers.get(_ARRIVALS, 0)
        size = len(taken.arrivals)
        state.numbers[_ARRIVALS] = first + size
        running = np.arange(first, first + size)
        self._causes = running if taken.causes is None else taken.causes
        self._inputs = taken.arrivals.inputs
        if not size:
            # What others read may let something go here; the last arrival is its cause.
            self._causes, self._inputs = np.array([first - 1]), np.array([NO_INPUT])

    def frames(self) -> Iterator[pd.DataFrame]:
        """What leaves; the state is written before the last of it."""
        asides = self._asides
        if asides:
            verdicts = Counter(said["verdict"] for said, _ in asides)
            self._state.count("task:dead", verdicts[DEAD])
            yield frame_of_asides(self._task, asides)
        for start, results in self._results():
            if len(results.causes):
                yield self._frame(start, results)
        self._state.save()
        if self._said:
            yield frame_of_counts(SAID, self._task, dict.fromkeys(self._said, (0, 0)))
        yield frame_of_counts(COUNT, self._task, self._counts())

    def _results(self) -> Iterator[tuple[int, Results]]:
        arrivals = self._taken.arrivals
        start = 0
        for place in [*self._taken.progress, len(arrivals)]:
            if place > start:
                for results in self._opened.process(arrivals[start:place]):
                    yield start, results
            # All records of a batch stand before its progress.
            self._read_up_to()
            if place < len(arrivals) and self._heard is not None:
                record = arrivals[place].record
                told_of = place_of(record.topic, record.partition)
                self._heard.tell(told_of, record.timestamp_ms, record.offset)
                for results in self._advanced(self._heard):
                    yield place, results
            start = place + 1
        if self._heard is not None:
            self._hear_silent(self._heard)
            for results in self._advanced(self._heard):
                yield len(arrivals) - 1, results

    def _advanced(self, heard: Heard) -> list[Results]:
        progress_ms = heard.progress_ms()
        return [] if progress_ms is None else self._opened.advance(progress_ms)

    def _read_up_to(self) -> None:
        """Hear how far this batch reads, once its records are taken."""
        while self._heard is not None and self._reached:
            record = self._reached.pop()
            self._heard.read_up_to(place_of(record.topic, record.partition), offset_of(record))

    def _hear_silent(self, heard: Heard) -> None:
        """Take the time of inputs of which nobody says how far they are."""
        for number in self._silent:
            arrivals = self._taken.arrivals
            times = arrivals.records.take(arrivals.inputs == number).times_ms
            if len(times):
                heard.count(f"input {number}", int(times.max()))

    def _frame(self, start: int, results: Results) -> pd.DataFrame:
        numbers = self._state.numbers
        sequence = numbers.get(_SEQUENCE, 0)
        numbers[_SEQUENCE] = sequence + len(results.causes)
        causes, inputs = self._causes[start:], self._inputs[start:]
        return frame_of(results, self._task, sequence, causes, inputs)

    def _counts(self) -> dict[str, tuple[int, int]]:
        for name, balance in self._opened.balances().items():
            self._state.numbers[f"{name}:balance"] = balance
        return {
            name: (number, number - self._before.get(name, 0))
            for name, number in self._state.numbers.items()
            if not name.startswith(_QUIET) and number != self._before.get(name)
        }
