"""Which row of a key a table keeps that has one of each: the last, and none if it deletes the key.

Rows of one key are of one task, unless a stream looks up or meets by a column; then the latest time
is last.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

from headrace.spark_jobs.write.quoted import quoted

_REPLACES = "(kept.task IS NULL OR kept.task = new.task OR kept.timestamp <= new.timestamp)"
"""Whether a row of a later micro-batch comes behind one that is there: only its own task is sure of
the order, and between two tasks the times tell."""
_ALWAYS = "TRUE"
_NTH = "_headrace_nth"
"""A column for the while; no row has such a name."""
_MERGE = """
    MERGE INTO {table} AS kept USING {new} AS new ON kept.key = new.key
    WHEN MATCHED AND new.deleted AND {replaces} THEN DELETE
    WHEN MATCHED AND {replaces} THEN UPDATE SET {sets}
    WHEN NOT MATCHED AND NOT new.deleted THEN INSERT ({names}) VALUES ({values})
"""


def merge_lasts(frame: DataFrame, table: str, *, of_one_task: bool) -> None:
    """Merge the last row of each key into a table of SQL, in one commit; all rows without a key.

    With `of_one_task`, all rows of a key are of one task. It has another number once its state was
    moved.
    """
    merge = merge_of(frame.columns, table, of_one_task=of_one_task)
    frame.sparkSession.sql(merge, new=_last_of_keys(frame))


def merge_of(columns: Sequence[str], table: str, *, of_one_task: bool) -> str:
    """Return the text of the merge, in which Spark puts its name for the new rows at `{new}`.

    Every column is named, since Delta does not quote those that it puts in the place of a star.
    """
    names = [quoted(name) for name in columns]
    return _MERGE.format(
        table=_unformatted(table),
        replaces=_ALWAYS if of_one_task else _REPLACES,
        new="{new}",
        # Delta adds a column to the table if it is not said whose it is.
        sets=_unformatted(", ".join(f"{name} = new.{name}" for name in names)),
        names=_unformatted(", ".join(names)),
        values=_unformatted(", ".join(f"new.{name}" for name in names)),
    )


def _unformatted(text: str) -> str:
    """Return text that Spark's formatting of the merge leaves as it is: names may have braces."""
    return text.replace("{", "{{").replace("}", "}}")


def _last_of_keys(frame: DataFrame) -> DataFrame:
    """Return the last row of each key, and every row without one."""
    of_task = Window.partitionBy("key", "task").orderBy(F.col("sequence").desc())
    of_key = Window.partitionBy("key").orderBy(F.col("timestamp").desc(), "task")
    # Rows that lie together by key do so by key and task.
    together = frame.repartition("key").withColumn(_NTH, F.row_number().over(of_task))
    lasts = together.where((F.col(_NTH) == 1) | F.col("key").isNull())
    numbered = lasts.withColumn(_NTH, F.row_number().over(of_key))
    return numbered.where((F.col(_NTH) == 1) | F.col("key").isNull()).drop(_NTH)
