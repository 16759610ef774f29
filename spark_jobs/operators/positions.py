"""Say how far each partition is read in a micro-batch, behind the last of its records.

A row of progress counts for a task once the partition is read up to the record that it names, but a
task gets only a part of the records. So the pass that reads them sends every task that needs it the
last offset of each partition, as a row without a record. The row also has the highest time, which
stands for the progress of an input without a pipeline.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.contracts.record import NO_TIME_MS
from headrace.spark_jobs.operators.columns import NO_INPUT, RECORD
from headrace.spark_jobs.shapes import POSITION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_PLACE = ["input", "topic", "partition"]
_Place = tuple[int, str, int]


class Positions:
    """How far the batches of one pass go, by partition."""

    def __init__(self) -> None:
        self._last: dict[_Place, tuple[int, int]] = {}

    def note(self, batch: pa.RecordBatch) -> None:
        """Note the records of a batch."""
        for place, (offset, time_ms) in _positions(batch).items():
            before = self._last.get(place, (offset, time_ms))
            self._last[place] = max(offset, before[0]), max(time_ms, before[1])

    def rows(self, tasks_waiting_for: Callable[[int], Iterable[int]]) -> list[dict[str, Any]]:
        """Return a row for each partition and each task that waits for it."""
        return [
            position_row(place, *position, task)
            for place, position in self._last.items()
            for task in tasks_waiting_for(place[2])
        ]


def _positions(batch: pa.RecordBatch) -> dict[_Place, tuple[int, int]]:
    """Return, by place, the last offset, and the highest time of records that are not dead."""
    alive = pc.if_else(pc.is_null(batch["aside"]), batch["timestamp_ms"], NO_TIME_MS)
    columns = batch.select([*_PLACE, "offset"]).append_column("time", alive)
    grouped = pa.Table.from_batches([columns]).group_by(_PLACE)
    found = grouped.aggregate([("offset", "max"), ("time", "max")]).to_pylist()
    return {
        (row["input"], row["topic"], row["partition"]): (row["offset_max"], row["time_max"])
        for row in found
    }


def position_row(place: _Place, offset: int, time_ms: int, task: int) -> dict[str, Any]:
    """Return the row that says how far a partition is read, and the highest time there."""
    number, topic, partition = place
    return {
        "task": task,
        "kind": RECORD,
        "input": NO_INPUT,
        "lane": partition,
        "place": offset,
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp_ms": time_ms,
        "aside": json.dumps({"verdict": POSITION, "task": task, "number": number}),
    }
