"""Cleaned topics as a frame of records, and their progress as another frame.

    records    input, topic, partition, offset, timestamp_ms, key, value, headers
    progress   topic, partition, offset, progress_ms, cleaned_offset, stream_time_ms, is_idle

A sidecar writes progress in the transaction of the records that it is about, but a reader may see
either first. So a row of progress names the last record that belongs before it, and the operators
wait until the partition is read up to that record. They do so in whatever order Spark asks brokers,
and however few records a micro-batch takes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

from headrace.contracts.errors import TopicRefused
from headrace.contracts.topics import progress_topic
from headrace.spark_jobs.read.bounds import bounds_of, sizes_of
from headrace.spark_jobs.read.source import Brokers, Source, asking
from headrace.spark_jobs.read.written_by import CleanedTopic, find_pipeline, verify
from headrace.spark_jobs.versioned.progress import place_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamReader

    _Begin = Callable[[DataStreamReader, Sequence[str]], DataStreamReader]

_EARLIEST = -2
"""The offset by which Spark's source calls the first one that is there."""
_PROGRESS_SCHEMA = (
    "progress_ms bigint, cleaned_offset bigint, stream_time_ms bigint, is_idle boolean"
)


@dataclass(frozen=True)
class Cleaned:
    """The frames of cleaned topics, and the first offsets of their partitions."""

    frames: Sequence[DataFrame]
    """The records of each topic."""
    progress: DataFrame | None
    partitions: Mapping[int, int]
    """By input, how many partitions have progress; zero for an input without a pipeline."""
    begins: Mapping[str, int]
    """The first offset of each partition that has progress, or the one at which a new checkpoint
    begins with it, by `place_of`."""
    firsts: Mapping[str, Sequence[int]]
    """The first offset of each partition, by topic."""

    @property
    def records(self) -> DataFrame:
        """The records of all topics in one frame."""
        return reduce(DataFrame.unionByName, self.frames)


def read_cleaned(spark: SparkSession, source: Source, topics: Sequence[CleanedTopic]) -> Cleaned:
    """Read the topics as streaming frames; refuse topics that the job does not expect."""
    with_progress = _with_pipeline(topics)
    with asking(spark, source) as brokers:
        for name in brokers.missing(_names(topics)):
            message = f"the topic `{name}` is missing; start its sidecar, or name another topic"
            raise TopicRefused(message)
        for topic in with_progress:
            verify(topic, find_pipeline(spark, source, brokers, topic))
        firsts = _first_offsets(brokers, topics)
        bounds = _bounds(spark, source, brokers, firsts)
        begins_at = _beginning(source, brokers.partitions(_names(topics)))
    frames = [
        _records(begins_at(_reader(spark, source, bounds.get(topic.topic)), [topic.topic]), topic)
        for topic in topics
    ]
    begins = {
        place_of(topic.topic, partition): max(first, _start_of(source, topic.topic, partition))
        for topic in with_progress
        for partition, first in enumerate(firsts[topic.topic])
    }
    return Cleaned(
        frames,
        _progress(spark, source, begins_at, with_progress) if with_progress else None,
        {each.input: len(firsts[each.topic]) if each in with_progress else 0 for each in topics},
        begins,
        firsts,
    )


def awaited(spark: SparkSession, source: Source, topics: Sequence[CleanedTopic]) -> str | None:
    """Name the topic that its sidecar has not begun to write, in a sentence; None if all have."""
    with_progress = _with_pipeline(topics)
    with asking(spark, source) as brokers:
        for name in brokers.missing(_names(with_progress)):
            return f"the topic `{name}` is missing; waiting for its sidecar to make it"
        for topic in with_progress:
            if find_pipeline(spark, source, brokers, topic) is None:
                return (
                    f"the topic `{topic.topic}` does not say which pipeline writes it; waiting for"
                    f" the first commit of the sidecar of `{topic.pipeline}`"
                )
    return None


def topic_ids(
    spark: SparkSession, source: Source, topics: Sequence[CleanedTopic]
) -> dict[str, str]:
    """Return the ids of the topics, and of their progress topics, as far as there are any."""
    with asking(spark, source) as brokers:
        missing = {*brokers.missing(_names(topics))}
        return brokers.ids(name for name in _names(topics) if name not in missing)


def _with_pipeline(topics: Sequence[CleanedTopic]) -> list[CleanedTopic]:
    """Return the topics that have progress."""
    return [topic for topic in topics if topic.pipeline is not None]


def _names(topics: Sequence[CleanedTopic]) -> list[str]:
    """Return the names of the topics, and of their progress topics."""
    progress = [progress_topic(topic.topic).name for topic in _with_pipeline(topics)]
    return [*(topic.topic for topic in topics), *progress]


def _bounds(
    spark: SparkSession, source: Source, brokers: Brokers, firsts: Mapping[str, Sequence[int]]
) -> dict[str, int]:
    """Return how many records of each topic a micro-batch takes."""
    if source.batch_records is None and source.batch_bytes is None:
        return {}
    begins = {(topic, at): first for topic, each in firsts.items() for at, first in enumerate(each)}
    sizes = sizes_of(spark, source, begins, brokers.offsets(begins, "latest"))
    return bounds_of(sizes, source.batch_records, source.batch_bytes)


def _reader(spark: SparkSession, source: Source, batch_records: int | None) -> DataStreamReader:
    options = source.described()
    if batch_records is not None:
        options["maxOffsetsPerTrigger"] = str(batch_records)
    return spark.readStream.format("kafka").options(**options)


def _beginning(source: Source, sizes: Mapping[str, int]) -> _Begin:
    """Return the function that subscribes topics, from where a new checkpoint begins with them."""

    def begin(reader: DataStreamReader, names: Sequence[str]) -> DataStreamReader:
        offsets = {
            name: {
                str(partition): _start_of(source, name, partition)
                for partition in range(sizes[name])
            }
            for name in names
        }
        begins = json.dumps(offsets) if source.starts else "earliest"
        return reader.option("startingOffsets", begins).option("subscribe", ",".join(names))

    return begin


def _start_of(source: Source, topic: str, partition: int) -> int:
    return source.starts.get(topic, {}).get(str(partition), _EARLIEST)


def _records(reader: DataStreamReader, topic: CleanedTopic) -> DataFrame:
    return reader.load().select(
        F.lit(topic.input).alias("input"),
        "topic",
        "partition",
        "offset",
        F.unix_millis("timestamp").alias("timestamp_ms"),
        "key",
        "value",
        "headers",
    )


def _progress(
    spark: SparkSession, source: Source, begin: _Begin, topics: Sequence[CleanedTopic]
) -> DataFrame:
    names = [progress_topic(topic.topic).name for topic in topics]
    return _said(begin(_reader(spark, source, None), names).load())


def progress_now(spark: SparkSession, source: Source, topic: str) -> DataFrame:
    """Read the last row of progress of each partition of a topic, and those before it if any."""
    name = progress_topic(topic).name
    reader = spark.read.format("kafka").options(**source.described())
    return _said(reader.option("subscribe", name).load())


def _said(rows: DataFrame) -> DataFrame:
    """Read the rows of progress topics."""
    suffix = len(progress_topic("").name)
    text = F.col("key").cast("string")
    said = F.from_json(F.col("value").cast("string"), _PROGRESS_SCHEMA)
    return (
        rows.where(F.col("value").isNotNull() & text.rlike("^[0-9]+(@[0-9]+)?$"))
        .withColumn("said", said)
        .select(
            F.expr(f"left(topic, length(topic) - {suffix})").alias("topic"),
            F.substring_index(text, "@", 1).cast("int").alias("partition"),
            "offset",
            "said.*",
        )
    )


def _first_offsets(brokers: Brokers, topics: Sequence[CleanedTopic]) -> dict[str, list[int]]:
    """Return the first offsets of each topic's partitions."""
    sizes = brokers.partitions(topic.topic for topic in topics)
    places = [(name, number) for name, size in sizes.items() for number in range(size)]
    firsts = brokers.offsets(places, "earliest")
    return {name: [firsts[name, number] for number in range(size)] for name, size in sizes.items()}
