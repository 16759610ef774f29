"""How far each partition is read in a micro-batch, said behind the last of its records.

A row of progress counts for a task once the partition is read up to the record that it names, and
a task takes a part of the records alone. So the pass that reads them says for each partition which
offset was the last, to every task that hears progress: as a row that passes by, with no record.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from spark_jobs.operators.columns import NO_INPUT, RECORD
from spark_jobs.shapes import REACHED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame


def with_reached(rows: DataFrame, hearers_of: Callable[[int], Iterable[int]]) -> DataFrame:
    """Rows of records, and how far they go; `hearers_of` are the tasks to tell of a partition."""

    def say(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        last: dict[tuple[str, int], int] = {}
        schema = None
        for batch in batches:
            schema = batch.schema
            for (topic, partition), offset in _last_offsets(batch).items():
                last[topic, partition] = max(offset, last.get((topic, partition), offset))
            yield batch
        told = [
            _row(topic, partition, offset, task)
            for (topic, partition), offset in last.items()
            for task in hearers_of(partition)
        ]
        if told:
            yield pa.RecordBatch.from_pylist(told, schema)

    # Where every record has a key and a value, what is said has neither.
    nullable = StructType([StructField(each.name, each.dataType) for each in rows.schema])
    return rows.mapInArrow(say, nullable)


def _last_offsets(batch: pa.RecordBatch) -> dict[tuple[str, int], int]:
    columns = batch.select(["topic", "partition", "offset"])
    grouped = pa.Table.from_batches([columns]).group_by(["topic", "partition"])
    found = grouped.aggregate([("offset", "max")]).to_pylist()
    return {(row["topic"], row["partition"]): row["offset_max"] for row in found}


def _row(topic: str, partition: int, offset: int, task: int) -> dict[str, Any]:
    return {
        "task": task,
        "kind": RECORD,
        "input": NO_INPUT,
        "lane": partition,
        "place": offset,
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp_ms": 0,
        "aside": json.dumps({"verdict": REACHED, "task": task}),
    }
