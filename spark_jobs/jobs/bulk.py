"""Join topics that are complete, by Spark's own windows: for years of history at once.

These joins have no retention: every version counts, however old. A stream-table join has the same
results as the stateful one if the table's retention is long enough and no record is late.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

from headrace.spark_jobs.shapes import RECORD_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.window import WindowSpec

    from headrace.spark_jobs.jobs.filled import Offsets
    from headrace.spark_jobs.read.source import Source
    from headrace.spark_jobs.read.written_by import CleanedTopic

_TABLE, _STREAM = 0, 1
"""At equal times the table goes first."""


def join_as_of(
    stream: DataFrame,
    table: DataFrame,
    join: Literal["inner", "left"] = "inner",
    carries: Sequence[str] = RECORD_COLUMNS,
) -> DataFrame:
    """Join each record of a stream with the value that its key had in a table at its time.

    Both are frames of records, of which Spark shuffles the columns that the result `carries`; it
    adds `table_value`. It leaves out records without a value. An inner join also leaves out records
    without a key or without a match.
    """
    version = F.when(F.col("side") == _TABLE, F.struct("value"))
    before = (
        Window.partitionBy("key")
        .orderBy("timestamp_ms", "side", "partition", "offset")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    sides = _side(stream, _STREAM, carries), _side(table, _TABLE, carries)
    keyed = sides[0].unionByName(sides[1], allowMissingColumns=True).where("key IS NOT NULL")
    held = F.last(version, ignorenulls=True).over(before)
    joined = (
        keyed.withColumn("table_value", held["value"])
        .where((F.col("side") == _STREAM) & F.col("value").isNotNull())
        .drop("side")
    )
    if join == "inner":
        return joined.where(F.col("table_value").isNotNull())
    keyless = stream.where("key IS NULL AND value IS NOT NULL").select(*carries)
    return joined.unionByName(
        keyless.withColumn("table_value", F.lit(None).cast("binary")),
    )


def join_within(
    left: DataFrame, right: DataFrame, within_ms: int, join: Literal["inner", "left", "outer"]
) -> DataFrame:
    """Join records of one key whose times are at most `within_ms` apart.

    The result has the columns of a record: the left record's, or of a right one alone its own, with
    both values in one and the later time of both.
    """
    sides = [
        side.where("value IS NOT NULL").select(F.struct(*RECORD_COLUMNS).alias(name))
        for side, name in ((left, "l"), (right, "r"))
    ]
    apart_ms = F.abs(F.col("l.timestamp_ms") - F.col("r.timestamp_ms"))
    are_near = (F.col("l.key") == F.col("r.key")) & (apart_ms <= within_ms)
    rows = sides[0].join(sides[1], are_near, "full_outer" if join == "outer" else join)
    values = [F.coalesce(F.col(f"{name}.value"), F.lit(b"null")) for name in ("l", "r")]
    made = {
        "value": F.concat(F.lit(b'{"l":'), values[0], F.lit(b',"r":'), values[1], F.lit(b"}")),
        "timestamp_ms": F.greatest("l.timestamp_ms", "r.timestamp_ms"),
    }
    one = F.coalesce("l", "r")
    return rows.select(*(made.get(name, one[name]).alias(name) for name in RECORD_COLUMNS))


def latest(table: DataFrame, *, by_arrival: bool = False) -> DataFrame:
    """Return the newest version of each key, without deleted ones: the table as it is now.

    `by_arrival` is for a table without a past: there the last version of a partition is its newest,
    whatever its time.
    """
    newest = Window.partitionBy("key").orderBy(
        F.desc("timestamp_ms"), F.desc("partition"), F.desc("offset")
    )
    versions = table.where("key IS NOT NULL")
    if by_arrival:
        of_place = Window.partitionBy("key", "partition").orderBy(F.desc("offset"))
        versions = _first(versions, of_place)
    return _first(versions, newest).where("value IS NOT NULL")


def _first(rows: DataFrame, window: WindowSpec) -> DataFrame:
    """Return the first row of each partition of a window."""
    return rows.withColumn("place", F.row_number().over(window)).where("place = 1").drop("place")


def read_range(
    spark: SparkSession,
    source: Source,
    topics: Sequence[CleanedTopic],
    *,
    begins: Offsets | None = None,
    ends: Offsets | None = None,
) -> DataFrame:
    """Read the records of cleaned topics that are there now, or those between offsets."""
    offsets = {"startingOffsets": begins, "endingOffsets": ends}
    numbers = F.create_map(*(F.lit(each) for one in topics for each in (one.topic, one.input)))
    return (
        spark.read.format("kafka")
        .options(**source.described())
        .options(**{name: json.dumps(each) for name, each in offsets.items() if each is not None})
        .option("subscribe", ",".join(topic.topic for topic in topics))
        .load()
        .withColumn("timestamp_ms", F.unix_millis("timestamp"))
        .withColumn("input", numbers[F.col("topic")])
        .select(*RECORD_COLUMNS)
    )


def _side(records: DataFrame, side: int, carries: Sequence[str]) -> DataFrame:
    own = [name for name in carries if name in records.columns]
    return records.select(*own, F.lit(side).alias("side"))
