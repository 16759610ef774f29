"""An alert for each final count that is outside of the limits its key had at that time.

limits    key as counted, value {"least", "most"}, versioned
counts    windowed key, value a count (eight bytes, big-endian): an aggregate behind `suppress`
          until its window closes
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import BaseModel, Field
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

from headrace.contracts.time import DurationMs
from headrace.contracts.window import WINDOW_HEADER
from headrace.spark_jobs.jobs.config import Input, InputTopics, JobConfig
from headrace.spark_jobs.jobs.inputs import Inputs
from headrace.spark_jobs.jobs.rows import with_row
from headrace.spark_jobs.operators.frames import Spread
from headrace.spark_jobs.operators.operate import operate
from headrace.spark_jobs.operators.topology import LookUp, Topic
from headrace.spark_jobs.read.decode import CountValue
from headrace.spark_jobs.shapes import JOINED, LATE
from headrace.spark_jobs.versioned.tables import Versioned

_START_BYTES = 8
"""The size of the window's start, which stands behind the key."""


class Topics(InputTopics):
    """A table and a stream."""

    limits: Input
    counts: Input


class Config(JobConfig):
    """The topics, and how far back limits are known."""

    inputs: Topics
    release: ClassVar[str] = "progress"
    retention_ms: DurationMs = Field(gt=0)
    """How long before the newest record a limit is still known."""


class Limits(BaseModel):
    """The limits of a key; a missing number is no limit."""

    least: int | None
    most: int | None


class Row(BaseModel):
    """A window with too few or too many."""

    key: str
    window_start_ms: int
    window_end_ms: int
    count: int
    least: int | None
    most: int | None


VALUES: Mapping[str, type[BaseModel] | CountValue] = {"limits": Limits, "counts": CountValue()}


def transform(inputs: Inputs, config: Config) -> DataFrame:
    """Look up the limits as of the count's own time, and keep counts outside of them."""
    is_count = F.col("input") == inputs.number_of("counts")
    plain_key = F.substring("key", F.lit(1), F.length("key") - _START_BYTES)
    # A dead letter keeps the key that it had in its topic.
    is_read = is_count & F.col("aside").isNull()
    records = inputs.records.withColumn("key", F.when(is_read, plain_key).otherwise(F.col("key")))
    limits = Topic("limits", inputs.number_of("limits"), Versioned(config.retention_ms))
    met = LookUp(
        "counts-limits", limits, stream=inputs.number_of("counts"), join="inner", release="progress"
    )
    results = operate(met, records, Spread(tasks=config.tasks), inputs.progress)
    # These are columns of their own, or Spark would compute them anew wherever they are named.
    read = results.withColumns(
        {
            "_limit": F.from_json(F.col("table_value").cast("string"), "least BIGINT, most BIGINT"),
            "_count": F.when(F.col("verdict") == JOINED, CountValue().parse(F.col("value"))),
        }
    )
    limit, count = F.col("_limit"), F.col("_count")
    window = F.split(_header(WINDOW_HEADER), ":")
    row = F.struct(
        F.col("key").cast("string").alias("key"),
        F.get(window, 1).try_cast("bigint").alias("window_start_ms"),
        F.get(window, 2).try_cast("bigint").alias("window_end_ms"),
        count.alias("count"),
        limit["least"].alias("least"),
        limit["most"].alias("most"),
    )
    within = count.between(F.coalesce(limit["least"], count), F.coalesce(limit["most"], count))
    is_joined = F.col("verdict") == JOINED
    alerts = with_row(read.where(~(is_joined & within)), row).drop("_limit", "_count")
    is_late_count = (F.col("verdict") == LATE) & is_count
    return alerts.withColumn("key", F.when(is_late_count, _whole_key()).otherwise(F.col("key")))


def _whole_key() -> Column:
    """Restore the key that a count had in its topic, as far as a header tells its window."""
    start_ms = F.get(F.split(_header(WINDOW_HEADER), ":"), 1).try_cast("bigint")
    start = F.unhex(F.lpad(F.hex(start_ms), 2 * _START_BYTES, "0"))
    return F.concat(F.col("key"), F.coalesce(start, F.lit(b"")))


def _header(name: str) -> Column:
    """Return the last value of a header, as text."""
    named = F.filter("headers", lambda header: header["key"] == name)
    return F.try_element_at(named, F.lit(-1))["value"].cast("string")
