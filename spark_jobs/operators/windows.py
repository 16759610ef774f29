"""Join two streams within a window (KIP-328's JoinWindows), by Spark's own join.

Two records of one key are joined if the right one's time is from `before_ms` before the left one's
to `after_ms` after it, ends included. A record is late, and dropped, once the watermark has passed
it: `grace_ms` behind the end of the window of the highest time so far, over both streams. Spark
counts late records in a query's progress as `numRowsDroppedByWatermark` of the join's operator. An
outer row leaves when no partner can come any more, which takes later records on both sides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

from headrace.contracts.errors import TopologyRefused
from headrace.spark_jobs.shapes import JOINED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_HOW = {"inner": "inner", "left": "left_outer", "outer": "full_outer"}


@dataclass(frozen=True)
class JoinWindow:
    """How far apart two records may be, and how long the join waits for a late one."""

    before_ms: int
    after_ms: int
    grace_ms: int

    def delay_ms(self) -> int:
        """Return how far the watermark stays behind the highest time: as Kafka closes windows."""
        return max(self.before_ms, self.after_ms) + self.grace_ms


def join_streams(
    records: DataFrame,
    left: int,
    right: int,
    window: JoinWindow,
    join: Literal["inner", "left", "outer"] = "inner",
) -> DataFrame:
    """Join the records of two inputs: the left value, and the right one as `table_value`.

    Time, headers and origin are the left record's, except that the time is the later one of both; a
    right record alone has its own. Records without key or value are never joined.
    """
    _refuse_backwards(window)
    sides = [_side(records, number, name, window) for number, name in ((left, "l"), (right, "r"))]
    near = F.expr(
        f"l_key = r_key AND r_time >= l_time - INTERVAL {window.before_ms} MILLISECONDS"
        f" AND r_time <= l_time + INTERVAL {window.after_ms} MILLISECONDS"
    )
    return sides[0].join(sides[1], near, _HOW[join]).select(*_columns())


def late_rows(progress: dict[str, list[dict[str, int]]]) -> int:
    """Count the late rows in a query's progress, over all its operators."""
    operators = progress.get("stateOperators", [])
    return sum(each.get("numRowsDroppedByWatermark", 0) for each in operators)


def _side(records: DataFrame, number: int, name: str, window: JoinWindow) -> DataFrame:
    whole = F.col("key").isNotNull() & F.col("value").isNotNull()
    own = records.where((F.col("input") == number) & whole)
    columns = [F.col(each).alias(f"{name}_{each}") for each in own.columns]
    timed = own.select(*columns, F.timestamp_millis("timestamp_ms").alias(f"{name}_time"))
    return timed.withWatermark(f"{name}_time", f"{window.delay_ms()} milliseconds")


def _columns() -> list[Column]:
    def either(name: str) -> Column:
        return F.coalesce(F.col(f"l_{name}"), F.col(f"r_{name}")).alias(name)

    return [
        F.lit(JOINED).alias("verdict"),
        *(either(name) for name in ("input", "topic", "partition", "offset")),
        F.greatest("l_timestamp_ms", "r_timestamp_ms").alias("timestamp_ms"),
        either("key"),
        F.col("l_value").alias("value"),
        F.col("r_value").alias("table_value"),
        F.when(F.col("l_key").isNotNull(), F.col("l_headers"))
        .otherwise(F.col("r_headers"))
        .alias("headers"),
    ]


def _refuse_backwards(window: JoinWindow) -> None:
    if window.before_ms + window.after_ms < 0 or window.grace_ms < 0:
        message = (
            f"a window from {window.before_ms} ms before to {window.after_ms} ms after, with a"
            f" grace of {window.grace_ms} ms, ends before it begins; give it a length of zero or"
            " more, and a grace of zero or more"
        )
        raise TopologyRefused(message)
