"""Fold the rows of a join into windows, in the tasks of their groups, within one micro-batch.

    LookUp or StreamJoin --rows, steps of the query--> WindowStep
                 `------- each task: how far it is -------^

Every task of the join says how far it is to every task of the windows, behind its rows. A window
leaves once all of them are past its end, so no row on time can come behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

from headrace.contracts.record import NO_TIME_MS
from headrace.spark_jobs.headers import packed_headers
from headrace.spark_jobs.operators.bundles import BUNDLES_SCHEMA, bundles_of, bundles_of_rows
from headrace.spark_jobs.operators.columns import RECORD, TASK_PROGRESS
from headrace.spark_jobs.operators.frames import (
    InputProgress,
    Spread,
    process,
    with_headers,
)
from headrace.spark_jobs.operators.positions import position_row
from headrace.spark_jobs.operators.topology import WindowStep, verify
from headrace.spark_jobs.shapes import CARRIED, JOINED, PASSED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame


def operate_behind(windows: WindowStep, results: DataFrame, spread: Spread) -> DataFrame:
    """Fold the joined rows among results; all other results pass through."""
    verify(windows)
    rows = _rows_of(results, spread).mapInArrow(_progress_to_all(spread.tasks), BUNDLES_SCHEMA)
    progress = InputProgress(partitions=dict.fromkeys(range(spread.tasks), 0))
    return with_headers(process([rows], lambda _task: windows, spread, progress))


def _rows_of(results: DataFrame, spread: Spread) -> DataFrame:
    """Make rows of results; each sender has one lane, or its rows could overtake one another.

    A row that passes through keeps its verdict aside.
    """
    is_row = F.col("verdict") == JOINED
    aside = F.to_json(F.struct("verdict", "reason", "number", "added", "task"))
    return results.select(
        F.when(is_row, spread.task()).otherwise(F.col("task")).alias("task"),
        F.when(F.col("verdict") == PASSED, TASK_PROGRESS).otherwise(RECORD).alias("kind"),
        F.lit(0).alias("input"),
        F.col("task").alias("lane"),
        F.col("sequence").alias("place"),
        *CARRIED,
        packed_headers().alias("headers"),
        F.when(~is_row, aside).alias("aside"),
    )


def _progress_to_all(tasks: int) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Bundle rows by task; the progress of a task of the join goes to every task of the windows."""

    def bundle(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        passed_ms: dict[int, int] = {}
        for batch in batches:
            says = pc.equal(batch["kind"], TASK_PROGRESS)
            said = batch.filter(says).select(["lane", "timestamp_ms"]).to_pylist()
            for lane, time_ms in (row.values() for row in said):
                passed_ms[lane] = max(time_ms, passed_ms.get(lane, NO_TIME_MS))
            yield from bundles_of(batch.filter(pc.invert(says)))
        yield from bundles_of_rows(
            [
                position_row((lane, "", 0), 0, time_ms, task)
                for lane, time_ms in passed_ms.items()
                for task in range(tasks)
            ]
        )

    return bundle
