"""A cold history: all versions of a table's topic in a Delta table, older than the state's too.

    key BINARY, value BINARY, timestamp_ms BIGINT, topic STRING, partition INT, offset BIGINT

A micro-batch first extends the history to the current end of the topic, which is behind every
record that the batch has read. Then it looks up the records that are older than the state
remembers. The history keeps tombstones, and versions that came too late for the state. Its own rows
tell up to which offset it goes, so it may outlive a checkpoint, and its owner may delete the oldest
rows. A driver that was given up and still writes can only write the same rows twice, which changes
no answer.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, runtime_checkable

from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

from headrace.contracts.errors import JobInvalid, SinkOfAnotherQuery
from headrace.spark_jobs.jobs.bulk import read_range
from headrace.spark_jobs.read.decode import readable
from headrace.spark_jobs.read.source import asking
from headrace.spark_jobs.read.written_by import CleanedTopic
from headrace.spark_jobs.shapes import COLD, JOINED
from headrace.spark_jobs.write.delta_place import DeltaPlace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from headrace.spark_jobs.read.decode import Format
    from headrace.spark_jobs.read.source import Source

SCHEMA = "key BINARY, value BINARY, timestamp_ms BIGINT, topic STRING, partition INT, offset BIGINT"
_ROW = ("task", "sequence")
"""The columns that identify a row among the results of a micro-batch."""
_log = logging.getLogger(__name__)


class FallBack(NamedTuple):
    """How a job uses a cold history."""

    folder: str
    table: str
    """The input whose versions it keeps."""
    join: Literal["inner", "left"]
    rows: Callable[[DataFrame, Column], DataFrame]
    """Sets the value of the job's rows for the joined results that the column selects."""
    as_kept: Callable[[DataFrame], DataFrame] | None = None
    """Turns versions as they stand in the topic into those that the job's state keeps; None where
    they are the same."""


@runtime_checkable
class FallsBack(Protocol):
    """A job whose look-ups may go to a cold history."""

    def fall_back(self, config: object) -> FallBack | None:
        """Return how the job uses one, None if its file has no such history."""


class ColdHistory:
    """Keeps the history of one topic, and answers from it."""

    def __init__(
        self,
        fall_back: FallBack,
        source: Source,
        topic: str,
        firsts: Sequence[int],
        as_format: Format,
    ) -> None:
        """Take the first offsets that the topic's partitions still have as `firsts`.

        The history keeps values that are not `as_format`, but they are no versions: the state never
        saw them either.
        """
        self._fall_back = fall_back
        self._source = source
        self._topic = topic
        self._firsts = firsts
        self._format = as_format
        self._ends: dict[int, int] | None = None
        """The end offset of the history by partition."""

    def before(self, write: Callable[[DataFrame, int], None]) -> Callable[[DataFrame, int], None]:
        """Wrap a writer of micro-batches so that cold records are joined first."""

        def write_answered(results: DataFrame, batch_id: int) -> None:
            # It is read twice, and computing it again would run the steps again.
            results.persist()
            try:
                self.keep(results.sparkSession)
                write(self.answered(results), batch_id)
            finally:
                results.unpersist()

        return write_answered

    def keep(self, spark: SparkSession) -> None:
        """Extend the history to the current end of the topic."""
        if self._ends is None:
            self._ends = self._kept(spark)
        starts = {
            str(partition): max(first, self._ends.get(partition, 0))
            for partition, first in enumerate(self._firsts)
        }
        topic = CleanedTopic(0, self._topic)
        fresh = (
            read_range(spark, self._source, [topic], begins={self._topic: starts})
            .select(*(column.split()[0] for column in SCHEMA.split(", ")))
            .persist()
        )
        try:
            ends = _ends_of(fresh)
            if ends:
                fresh.write.format("delta").mode("append").save(self._fall_back.folder)
                self._ends |= ends
        finally:
            fresh.unpersist()

    def answered(self, results: DataFrame) -> DataFrame:
        """Join the cold results; in an inner join, those without a match stay cold."""
        is_cold = F.col("verdict") == COLD
        cold = results.where(is_cold)
        if cold.isEmpty():
            return results
        thaws = is_cold if self._fall_back.join == "left" else is_cold & F.col("met").isNotNull()
        # Rows stay in their partitions, since each partition has its own writer, in any attempt.
        known = results.join(F.broadcast(self._met(cold)), [*_ROW], "left")
        thawed = (
            known.withColumn("thaws", thaws)
            .withColumn(
                "table_value", F.when(is_cold, F.col("met")).otherwise(F.col("table_value"))
            )
            .withColumn(
                "verdict", F.when(F.col("thaws"), F.lit(JOINED)).otherwise(F.col("verdict"))
            )
        )
        return self._fall_back.rows(thawed, F.col("thaws")).drop("met", "thaws")

    def _met(self, cold: DataFrame) -> DataFrame:
        """Return the value of the last version at or before the time of each row."""
        asked = cold.select(*_ROW, "key", F.col("timestamp_ms").alias("asked_ms"))
        kept = cold.sparkSession.read.format("delta").load(self._fall_back.folder)
        versions = readable(kept.where(F.col("topic") == self._topic), self._format)
        if self._fall_back.as_kept is not None:
            versions = self._fall_back.as_kept(versions)
        order = F.struct("timestamp_ms", "partition", "offset")
        return (
            asked.join(versions, "key")
            .where(F.col("timestamp_ms") <= F.col("asked_ms"))
            .groupBy(*_ROW)
            .agg(F.max_by("value", order).alias("met"))
        )

    def _kept(self, spark: SparkSession) -> dict[int, int]:
        folder = self._fall_back.folder
        schema = spark.createDataFrame([], SCHEMA).schema
        DeltaPlace(None, folder).make(spark, schema)
        versions = spark.read.format("delta").load(folder)
        if not set(schema.names) <= set(versions.columns):
            message = (
                f"{folder} is a table of something else than the versions of a topic; give the"
                " history a folder of its own"
            )
            raise JobInvalid(message)
        ends = _ends_of(versions.where(F.col("topic") == self._topic))
        with asking(spark, self._source) as brokers:
            places = [(self._topic, partition) for partition in range(len(self._firsts))]
            lasts = brokers.offsets(places, "latest")
        refuse_another_topic(folder, ends, {place[1]: last for place, last in lasts.items()})
        for partition, end in ends.items():
            if end < self._firsts[partition]:
                _log.error(
                    "%s/%d has lost the records from offset %d to %d before they were kept in %s;"
                    " raise the topic's retention",
                    *(self._topic, partition, end, self._firsts[partition] - 1, folder),
                )
        return ends


def refuse_another_topic(folder: str, kept: Mapping[int, int], ends: Mapping[int, int]) -> None:
    """Refuse a history that goes beyond the end of its topic, by partition."""
    for partition, end in kept.items():
        if end > ends.get(partition, 0):
            message = (
                f"{folder} has records of partition {partition} up to offset {end - 1}, and the"
                f" topic ends at {ends.get(partition, 0)}: the topic was made anew, and its first"
                " records would not be kept; give the job another folder"
            )
            raise SinkOfAnotherQuery(message)


def _ends_of(versions: DataFrame) -> dict[int, int]:
    rows = versions.groupBy("partition").agg(F.max("offset").alias("last")).collect()
    return {row["partition"]: row["last"] + 1 for row in rows}
