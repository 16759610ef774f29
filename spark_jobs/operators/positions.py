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
from pyspark.sql.types import StructField, StructType

from headrace.contracts.record import NO_TIME_MS
from headrace.spark_jobs.operators.columns import NO_INPUT, RECORD
from headrace.spark_jobs.shapes import POSITION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame

_PLACE = ["input", "topic", "partition"]
_Place = tuple[int, str, int]


def with_positions(rows: DataFrame, tasks_waiting_for: Callable[[int], Iterable[int]]) -> DataFrame:
    """Append rows that say how far rows of records go, to the tasks that wait for a partition."""

    def say(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        last: dict[_Place, tuple[int, int]] = {}
        schema = None
        for batch in batches:
            schema = batch.schema
            for place, (offset, time_ms) in _positions(batch).items():
                before = last.get(place, (offset, time_ms))
                last[place] = max(offset, before[0]), max(time_ms, before[1])
            yield batch
        found_rows = [
            position_row(place, *position, task)
            for place, position in last.items()
            for task in tasks_waiting_for(place[2])
        ]
        if found_rows:
            yield pa.RecordBatch.from_pylist(found_rows, schema)

    # The records may all have a key and a value; these rows have neither.
    nullable = StructType([StructField(each.name, each.dataType) for each in rows.schema])
    return rows.mapInArrow(say, nullable)


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
