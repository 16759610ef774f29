"""Spark's own processor over all keys in one task, and its state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

from headrace.spark_jobs.operators.bundles import ROWS_SCHEMA
from headrace.spark_jobs.operators.processor import TaskProcessor
from headrace.spark_jobs.operators.topology import Topology, verify
from headrace.spark_jobs.versioned.progress import Expected
from headrace.spark_jobs.versioned.state import MemoryRows

TASK = 0
_COLUMNS = [column.split()[0] for column in ROWS_SCHEMA.split(", ")]


class Stage:
    """A topology that takes micro-batches."""

    def __init__(self, topology: Topology, expected: Expected) -> None:
        verify(topology)
        self._processor = TaskProcessor(lambda _task: topology, expected, {}, {})
        self._rows = MemoryRows()

    def state(self) -> MemoryRows:
        """Return a copy of the state."""
        return MemoryRows(self._rows)

    def go_back(self, state: MemoryRows) -> None:
        """Go on from an earlier state."""
        self._rows = MemoryRows(state)

    def take(self, rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        """Take the rows of a micro-batch; yield results, in their order."""
        if not rows:
            return
        self._processor.rows = self._rows
        frame = pd.DataFrame({name: [row.get(name) for row in rows] for name in _COLUMNS})
        frame = frame.astype(dict.fromkeys(("key", "value", "headers", "aside"), object))
        for results in self._processor.handleInputRows((TASK,), iter([frame]), None):
            yield from pa.Table.from_pandas(results, preserve_index=False).to_pylist()
