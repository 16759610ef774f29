"""The stateful processor: a task's rows in, its topology over its state, results out."""

from __future__ import annotations

import gc
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from spark_jobs.operators.columns import frame_of, frame_of_asides, frame_of_counts, take
from spark_jobs.operators.opened import open_topology
from spark_jobs.operators.rows import NAME_SCHEMA, ROW_SCHEMA, StoredRows
from spark_jobs.operators.stamp import keep_options
from spark_jobs.operators.topology import options_of
from spark_jobs.versioned.state import BUCKETS_DEFAULT, TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

    from spark_jobs.operators.opened import Results
    from spark_jobs.operators.topology import Topology

ROWS = "rows"
"""The map of a task's rows by name, as a checkpoint calls it."""
COUNT = "count"
"""A verdict: how a number of the task stands; `reason` is its name."""
DEAD = "dead"
"""A verdict: a record that cannot be read; its headers say why."""
SAID = "said"
"""A verdict: a sentence for people, in `reason`."""
_ARRIVALS = "task:arrivals"
_SEQUENCE = "task:sequence"
_QUIET = ("step:", "option:", "progress:", "buckets")


class TaskProcessor(StatefulProcessor):
    """One topology, a task at a time."""

    def __init__(
        self,
        topology_of: Callable[[int], Topology],
        heard: dict[int, int],
        options: dict[str, int],
        buckets: int = BUCKETS_DEFAULT,
    ) -> None:
        """`heard` says of how many partitions of each input a task hears progress.

        Zero is an input of which nobody says it: it is as far as its own records. `options` are
        those that a checkpoint remembers beside the topology's.
        """
        self._topology_of = topology_of
        self._heard = heard
        self._options = options
        self._buckets = buckets

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the rows; called on the driver too, where there is no task."""
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
    def heard(self) -> dict[int, int]:
        """Of how many partitions of each input a task hears progress."""
        return self._heard


class _Turn:
    """One task's turn in one batch."""

    def __init__(self, processor: TaskProcessor, task: int, rows: Iterator[pd.DataFrame]) -> None:
        self._task = task
        self._heard = processor.heard
        self._state = state = processor.open_state()
        self._before = dict(state.numbers)
        topology = processor.topology_of(task)
        self._said = keep_options(state.numbers, processor.options_of(topology))
        self._opened = open_topology(topology, state)
        self._taken = taken = take(rows)
        first = state.numbers.get(_ARRIVALS, 0)
        size = len(taken.arrivals)
        state.numbers[_ARRIVALS] = first + size
        running = np.arange(first, first + size)
        self._causes = running if taken.causes is None else taken.causes
        self._inputs = taken.inputs

    def frames(self) -> Iterator[pd.DataFrame]:
        """What leaves; the state is written before the last of it."""
        asides = self._taken.asides
        if asides:
            verdicts = Counter(said["verdict"] for said, _ in asides)
            self._state.count("task:dead", verdicts[DEAD])
            yield frame_of_asides(self._task, asides)
        for start, results in self._results():
            if results.causes:
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
            if place < len(arrivals):
                record = arrivals[place].record
                self._hear(f"progress:{record.topic}:{record.partition}", record.timestamp_ms)
                for results in self._advanced():
                    yield place, results
            start = place + 1
        if self._hear_silent():
            for results in self._advanced():
                yield len(arrivals) - 1, results

    def _advanced(self) -> list[Results]:
        progress_ms = self._progress_ms()
        return [] if progress_ms is None else self._opened.advance(progress_ms)

    def _hear(self, name: str, time_ms: int) -> None:
        numbers = self._state.numbers
        numbers[name] = max(time_ms, numbers.get(name, time_ms))

    def _hear_silent(self) -> bool:
        """Take the time of inputs of which nobody says how far they are; whether there are any."""
        silent = [number for number, partitions in self._heard.items() if not partitions]
        for number in silent:
            times = self._taken.times_ms[self._inputs == number]
            if len(times):
                self._hear(f"progress:input {number}", int(times.max()))
        return bool(silent)

    def _progress_ms(self) -> int | None:
        """The time that all partitions of all inputs have passed, None while one is silent."""
        heard = [n for name, n in self._state.numbers.items() if name.startswith("progress:")]
        expected = sum(max(partitions, 1) for partitions in self._heard.values())
        return min(heard) if heard and len(heard) >= expected else None

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
