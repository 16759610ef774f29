"""Pack rows of progress for the tasks: one row for each partition and micro-batch.

A sidecar commits several times a second, each task needs the progress of every partition, and a
reader that is far behind finds weeks of rows. So the pass that reads them keeps, of each partition,
only as many rows as a task may hold waiting, evenly spaced, and packs them into one row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.spark_jobs.versioned.progress import ProgressRow, Waiting, pack_progress

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame

_SCHEMA = "topic string, partition int, offset bigint, packed binary"
_OWN = "arrival bigint"
"""With a given order of arrival, each row is packed alone."""


def collapsed(progress: DataFrame) -> DataFrame:
    """Pack progress into a column `packed`; `offset` is that of the last row in it."""
    names = progress.columns
    if "arrival" in names:
        return progress.mapInArrow(_each, f"{_SCHEMA}, {_OWN}")
    return progress.mapInArrow(_together, _SCHEMA)


def _each(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = [
            {**_place(row), "packed": pack_progress([_row_of(row)]), "arrival": row["arrival"]}
            for row in batch.to_pylist()
        ]
        yield pa.RecordBatch.from_pylist(rows, _arrow(("arrival", pa.int64())))


def _together(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    waiting: dict[tuple[str, int], Waiting] = {}
    last: dict[tuple[str, int], int] = {}
    for batch in batches:
        for row in batch.to_pylist():
            place = row["topic"], row["partition"]
            waiting.setdefault(place, Waiting()).add(_row_of(row))
            last[place] = row["offset"]
    rows = [
        {"topic": topic, "partition": partition, "offset": offset, "packed": pack_progress(some)}
        for (topic, partition), offset in last.items()
        for some in [waiting[topic, partition].rows()]
    ]
    yield pa.RecordBatch.from_pylist(rows, _arrow())


def _row_of(row: dict[str, Any]) -> ProgressRow:
    idle_ms = row.get("stream_time_ms") if row.get("is_idle") else None
    return ProgressRow(row["progress_ms"], row.get("cleaned_offset"), idle_ms)


def _place(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("topic", "partition", "offset")}


def _arrow(*own: tuple[str, pa.DataType]) -> pa.Schema:
    return pa.schema(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("packed", pa.binary()),
            *own,
        ]
    )
