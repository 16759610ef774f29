"""Put the versions of a micro-batch into a table that keeps the history of each key."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

from headrace.spark_jobs.write.quoted import quoted
from headrace.spark_jobs.write.scd2 import VALID_FROM, VALID_TO, changes_of, ends_since, merge_of

_NEW = "_hr_new"
"""The name of the versions in SQL."""
_KEPT = "(SELECT * FROM {table} WHERE {ends_since})"


def versions_of(rows: DataFrame) -> DataFrame:
    """Return rows as versions: the time of each is from when it is valid."""
    others = [name for name in rows.columns if name not in {"key", "timestamp"}]
    ends = F.lit(None).cast("timestamp").alias(VALID_TO)
    return rows.select("key", F.col("timestamp").alias(VALID_FROM), ends, *map(quoted, others))


def merge_versions(versions: DataFrame, table: str, batch_id: int, *, in_order: bool) -> None:
    """Merge versions into a table of SQL, in one commit; without versions there is none.

    Rows that ended before the first version are not read, as far as the files' statistics say so.
    """
    spark = versions.sparkSession
    (found,) = versions.agg(F.min(VALID_FROM).cast("string").alias("first")).collect()
    if found["first"] is None:
        return
    # Statistics of files are compared with literals alone.
    since = f"TIMESTAMP '{found['first']}'"
    kept = _KEPT.format(table=table, ends_since=ends_since(since))
    changes = changes_of(versions.columns, kept, _NEW, batch_id, in_order=in_order)
    # Rows of one key lie together once, for all that is looked at by key.
    versions.repartition("key").createOrReplaceTempView(_NEW)
    try:
        spark.sql(merge_of(versions.columns, table, changes, since))
    finally:
        spark.catalog.dropTempView(_NEW)
