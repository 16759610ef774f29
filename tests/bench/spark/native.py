"""The same join by what Spark brings, as well as one can write it, and what other state costs.

applyInPandasWithState   the whole as-of join, by hand: a bucket of keys a group, and `merge_asof`
                         over a frame of versions, which is the state
stream-stream join       Spark's own: every fact with every version before it; there is no operator
                         that keeps only the newest one
dropDuplicates           no join at all: one look-up in Spark's state a fact
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)
from pyspark.sql.streaming.state import GroupStateTimeout

from tests.bench.spark.topics import RETENTION_MS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.state import GroupState

_BUCKETS = 64
_ROWS = "key binary, value binary, table_value binary, timestamp_ms bigint"


def apply_in_pandas_with_state(versions: DataFrame, facts: DataFrame) -> DataFrame:
    """Facts with the newest version before them."""
    bucket = F.pmod(F.xxhash64("key"), F.lit(_BUCKETS)).alias("bucket")
    both = versions.unionByName(facts)
    return (
        both.select(bucket, "input", "key", "value", "timestamp_ms")
        .groupBy("bucket")
        .applyInPandasWithState(
            _join_bucket,  # type: ignore[arg-type]
            _ROWS,
            "versions binary",
            "append",
            GroupStateTimeout.NoTimeout,
        )
    )


def _join_bucket(
    _key: Any, frames: Iterator[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    rows = pd.concat(list(frames))
    is_version = rows["input"] == 0
    known = _unpacked(state.get[0]) if state.exists else None
    if is_version.any():
        new = rows.loc[is_version, ["key", "timestamp_ms", "value"]]
        known = new if known is None else pd.concat([known, new], ignore_index=True)
        known = known.drop_duplicates(["key", "timestamp_ms"], keep="last")
        known = known.sort_values("timestamp_ms", kind="stable")
        state.update((_packed(known),))
    facts = rows.loc[~is_version, ["key", "timestamp_ms", "value"]]
    if known is not None and len(facts):
        facts = facts.sort_values("timestamp_ms", kind="stable")
        table = known.rename(columns={"value": "table_value"})
        met = pd.merge_asof(facts, table, on="timestamp_ms", by="key")
        yield met.dropna(subset="table_value")[["key", "value", "table_value", "timestamp_ms"]]


def _packed(versions: pd.DataFrame) -> bytes:
    out = pa.BufferOutputStream()
    table = pa.Table.from_pandas(versions, preserve_index=False)
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(out, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(out.getvalue())


def _unpacked(packed: bytes) -> pd.DataFrame:
    return pa.ipc.open_stream(packed).read_all().to_pandas()


def stream_stream_join(versions: DataFrame, facts: DataFrame) -> DataFrame:
    """Facts with every version before them, none of which is forgotten in the span."""
    delay = f"{RETENTION_MS} milliseconds"
    left = facts.select(
        F.col("key"), F.col("value"), F.timestamp_millis("timestamp_ms").alias("at")
    ).withWatermark("at", delay)
    right = versions.select(
        F.col("key").alias("table_key"),
        F.col("value").alias("table_value"),
        F.timestamp_millis("timestamp_ms").alias("since"),
    ).withWatermark("since", delay)
    span = f"INTERVAL {RETENTION_MS // 1_000} SECONDS"
    met = F.expr(f"key = table_key AND since <= at AND since >= at - {span}")
    return left.join(right, met).select(
        "key", "value", "table_value", F.unix_millis("at").alias("timestamp_ms")
    )


def drop_duplicates(facts: DataFrame) -> DataFrame:
    """Facts, each once."""
    timed = facts.withColumn("at", F.timestamp_millis("timestamp_ms"))
    return (
        timed.withWatermark("at", f"{RETENTION_MS} milliseconds")
        .dropDuplicatesWithinWatermark(["partition", "offset"])
        .select("key", "value", F.lit(None).cast("binary").alias("table_value"), "timestamp_ms")
    )
