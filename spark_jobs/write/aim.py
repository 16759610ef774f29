"""Where each row of an operator goes: its verdict says so.

joined, changed     to the sink of the job
corrected           there as well, in Kafka with a header that says so
late                to the topic of late records, if there is one; the row was joined all the same
dead                to the dead-letter topic of the topic it stood in, where a sidecar would send it
anything else       to the driver, which counts it or says it
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

from headrace.contracts.correction import CORRECTED_HEADER
from headrace.contracts.topics import dead_topic_name
from headrace.spark_jobs.headers import text_of_headers, text_with
from headrace.spark_jobs.shapes import CHANGED, CORRECTED, DEAD, JOINED, LATE, ORIGIN

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from headrace.spark_jobs.write.avro import Encode

ROWS = (JOINED, CORRECTED, CHANGED)


@dataclass(frozen=True)
class Targets:
    """The topics of a job's rows, None for rows that do not go to Kafka."""

    rows: str | None
    late: str | None


def aimed(results: DataFrame, targets: Targets, encode: Encode | None = None) -> DataFrame:
    """Give results the columns of `KafkaSink`, with the topic of each row.

    `encode` encodes the fields of rows; other records stay as they are.
    """
    verdict, value = F.col("verdict"), F.col("value")
    if encode is not None:
        value = F.when(verdict.isin(*ROWS), encode(results)).otherwise(value)
    target = (
        F.when(verdict.isin(*ROWS), F.lit(targets.rows).cast("string"))
        .when(verdict == LATE, F.lit(targets.late).cast("string"))
        .when(verdict == DEAD, F.concat("topic", F.lit(dead_topic_name(""))))
    )
    return results.select(
        target.alias("target"),
        "key",
        value.alias("value"),
        "timestamp_ms",
        _marked_headers(results).alias("headers"),
        *ORIGIN,
        verdict.alias("note"),
        "reason",
        "task",
        "number",
        F.coalesce("added", F.lit(1)).alias("added"),
    )


def _marked_headers(results: DataFrame) -> Column:
    headers = text_of_headers(results)
    is_corrected = F.col("verdict") == CORRECTED
    return F.when(is_corrected, text_with(headers, CORRECTED_HEADER)).otherwise(headers)


def rows_of(results: DataFrame) -> DataFrame:
    """Return the rows that go to the job's sink."""
    return results.where(F.col("verdict").isin(*ROWS))
