"""Where each row of an operator goes: its verdict says so.

joined, changed     to the sink of the job
late                to the topic of late records, if there is one; the row was joined all the same
dead                to the dead-letter topic of the topic it stood in, where a sidecar would send it
anything else       to the driver, which counts it or says it
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

from contracts.topics import dead_topic_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS = ("joined", "changed")
LATE = "late"
DEAD = "dead"


@dataclass(frozen=True)
class Targets:
    """The topics of a job's rows, None where they do not go to Kafka."""

    rows: str | None
    late: str | None


def aimed(results: DataFrame, targets: Targets) -> DataFrame:
    """Results as `KafkaSink` takes them."""
    verdict = F.col("verdict")
    target = (
        F.when(verdict.isin(*ROWS), F.lit(targets.rows).cast("string"))
        .when(verdict == LATE, F.lit(targets.late).cast("string"))
        .when(verdict == DEAD, F.concat("topic", F.lit(dead_topic_name(""))))
    )
    return results.select(
        target.alias("target"),
        "key",
        "value",
        "timestamp_ms",
        "headers",
        verdict.alias("note"),
        "reason",
        "task",
        "number",
        F.coalesce("added", F.lit(1)).alias("added"),
    )


def rows_of(results: DataFrame) -> DataFrame:
    """The rows that go to the job's sink."""
    return results.where(F.col("verdict").isin(*ROWS))
