"""The stateful processor: it applies a topology to a task's rows and state, and returns results."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from headrace.spark_jobs.operators.batch import TaskBatch
from headrace.spark_jobs.operators.leaving import Leaving
from headrace.spark_jobs.operators.options import options_of
from headrace.spark_jobs.operators.rows import NAME_SCHEMA, ROW_SCHEMA, StoredRows
from headrace.spark_jobs.operators.running import OpenTask, open_topology
from headrace.spark_jobs.operators.stamp import keep_options
from headrace.spark_jobs.versioned.progress import TaskProgress
from headrace.spark_jobs.versioned.state import BUCKETS_DEFAULT, TaskState
from headrace.spark_jobs.worker import settle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

    from headrace.spark_jobs.operators.sending import Sending
    from headrace.spark_jobs.operators.topology import Topology
    from headrace.spark_jobs.versioned.progress import Expected
    from headrace.spark_jobs.versioned.state import Notes, Rows

ROWS, RUNS = "rows", "runs"
"""The names, in a checkpoint, of the maps of a task's rows, and of its runs."""


class TaskProcessor(StatefulProcessor):
    """Applies one topology, a task at a time."""

    def __init__(
        self,
        topology_of: Callable[[int], Topology],
        expected: Expected,
        begins: Mapping[str, int],
        options: dict[str, int],
        buckets: int = BUCKETS_DEFAULT,
        *,
        stops: bool = False,
    ) -> None:
        """Take the partitions whose progress a task waits for as `expected`.

        `begins` are the first offsets that are still there; `options` are remembered in a
        checkpoint beside the topology's. With `stops`, the query ends at the first record on which
        a step fails.
        """
        self._topology_of = topology_of
        self._expected = expected
        self.silent = expected.silent()
        self._begins = begins
        self._options = options
        self._buckets = buckets
        self.stops = stops
        self.sending: Sending | Leaving | None = None
        """The way of its results to the next stage or to the sink, if they leave in bundles."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the rows; Spark calls this on the driver too, where there is no task."""
        settle()
        rows, runs = (handle.getMapState(one, NAME_SCHEMA, ROW_SCHEMA) for one in (ROWS, RUNS))
        self.rows: Rows = StoredRows(rows, runs)

    def handleInitialState(  # noqa: N802
        self,
        key: Any,  # noqa: ARG002
        initialState: pd.DataFrame,  # noqa: N803
        timerValues: Any,  # noqa: ARG002, N803
    ) -> None:
        """Take rows that were moved to a task; Spark calls it before the first micro-batch."""
        for name, row in zip(initialState["name"], initialState["row"], strict=True):
            self.rows.put(name, bytes(row))
        self.rows.settle()

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: ARG002, N803
    ) -> Iterator[pd.DataFrame]:
        """Take the rows of a task; Spark passes these arguments by name."""
        task, *_ = key
        with _uncollected():
            batch = TaskBatch(self, int(task), rows)
            yield from batch.handed_on()
            leaving = self.sending if isinstance(self.sending, Leaving) else None
            results = batch.frames(None if leaving is None else leaving.fields())
            yield from results if self.sending is None else self.sending.bundled(results)

    def close(self) -> None:
        """End a partition; Spark calls this on the driver too, where nothing has left."""
        if isinstance(self.sending, Leaving):
            with _uncollected():
                self.sending.end()

    def open(self, task: int, rows: Rows, notes: Notes | None = None) -> OpenTask:
        """Open a task over its rows, or over changes on top of them.

        `notes` are those of the batch, if a part of it was taken before.
        """
        state = TaskState(rows, self._buckets, notes)
        before = dict(state.numbers)
        topology = self._topology_of(task)
        said = keep_options(state.numbers, self._options | options_of(topology))
        running = open_topology(topology, state)
        return OpenTask(state, running, self._progress_of(task, state), topology.name, before, said)

    def _progress_of(self, task: int, state: TaskState) -> TaskProgress | None:
        """Return the progress that a task has read, None if it needs none."""
        if not self._expected.partitions:
            return None
        return TaskProgress(state, self._expected.places(task), self._begins)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Search for no cycles in here.

    A batch has hundreds of thousands of tuples without cycles; searching for some doubles the cost.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
