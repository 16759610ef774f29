"""Pack rows of progress for the tasks: one row for each partition and micro-batch.

A sidecar commits several times a second, each task needs the progress of every partition, and a
reader that is far behind finds weeks of rows. So the pass that reads them keeps, of each partition,
only as many rows as a task may hold waiting, evenly spaced, and packs them into one row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.spark_jobs.operators.bundles import BUNDLES_SCHEMA, bundles_of_rows
from headrace.spark_jobs.operators.columns import NO_INPUT, PROGRESS
from headrace.spark_jobs.versioned.progress import ProgressRow, Waiting, pack_progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame


def progress_bundles(
    progress: DataFrame, tasks_waiting_for: Callable[[int], Iterable[int]]
) -> DataFrame:
    """Bundle progress for the tasks that wait for its partitions.

    With a given order of arrival, each row is packed alone.
    """
    pack = _each if "arrival" in progress.columns else _together

    def bundle(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from bundles_of_rows(
            [
                _progress_row(packed, task)
                for packed in pack(batches)
                for task in tasks_waiting_for(packed["partition"])
            ]
        )

    return progress.mapInArrow(bundle, BUNDLES_SCHEMA)


def _progress_row(packed: dict[str, Any], task: int) -> dict[str, Any]:
    own = {"task": task, "kind": PROGRESS, "input": NO_INPUT, "lane": packed["partition"]}
    return {**packed, **own, "offset": None, "place": packed["offset"]}


def _each(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        for row in batch.to_pylist():
            named = {name: row[name] for name in ("topic", "partition", "offset", "arrival")}
            yield {**named, "value": pack_progress([_row_of(row)])}


def _together(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    """Yield the rows of each partition as one; its offset is that of the last."""
    waiting: dict[tuple[str, int], Waiting] = {}
    last: dict[tuple[str, int], int] = {}
    for batch in batches:
        for row in batch.to_pylist():
            place = row["topic"], row["partition"]
            waiting.setdefault(place, Waiting()).add(_row_of(row))
            last[place] = row["offset"]
    for (topic, partition), offset in last.items():
        value = pack_progress(waiting[topic, partition].rows())
        yield {"topic": topic, "partition": partition, "offset": offset, "value": value}


def _row_of(row: dict[str, Any]) -> ProgressRow:
    idle_ms = row.get("stream_time_ms") if row.get("is_idle") else None
    return ProgressRow(row["progress_ms"], row.get("cleaned_offset"), idle_ms)
