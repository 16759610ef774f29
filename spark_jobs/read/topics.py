"""Cleaned topics as a frame of records, and how far they are as a frame of progress.

    records    input, topic, partition, offset, timestamp_ms, key, value, headers
    progress   topic, partition, offset, progress_ms, cleaned_offset

A sidecar writes progress in the transaction of the records it speaks of, and either may be seen
first. So a row of progress says which record is the last that belongs before it, and the operators
wait until the partition is read up to there: in whatever order brokers are asked, and however few
records a batch may take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

from contracts.errors import TopicRefused
from contracts.progress import LAYOUT, PIPELINE_KEY, CleanedBy, read_cleaned_by
from contracts.topics import progress_topic
from spark_jobs.versioned.heard import place_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamReader

_POLL_RECORDS = 5_000
_PROGRESS_SCHEMA = "progress_ms bigint, cleaned_offset bigint"


@dataclass(frozen=True)
class CleanedTopic:
    """One input of a job, and what the job relies on."""

    input: int
    """Its number; on ties the lowest goes first, so tables stand before streams."""
    topic: str
    pipeline: str | None = None
    """Which pipeline must have written it; None where no sidecar did, and it has no progress."""
    expected: Mapping[str, Any] = field(default_factory=dict)
    """What the pipeline's file must say, as far as the job relies on it."""


@dataclass(frozen=True)
class Cleaned:
    """What was read."""

    records: DataFrame
    progress: DataFrame | None
    partitions: Mapping[int, int]
    """By input, how many partitions say how far they are; zero where none does."""
    begins: Mapping[str, int]
    """The first offset of each partition that says how far it is, by `place_of`."""
    firsts: Mapping[str, Sequence[int]]
    """The first offset of each partition, by topic."""


@dataclass(frozen=True)
class Source:
    """Where topics are read, and how."""

    servers: str
    options: Mapping[str, str] = field(default_factory=dict)
    """Kafka's own settings, such as `kafka.security.protocol`."""
    batch_records: int | None = None
    """At most so many records a batch, all that there are without it."""

    def described(self) -> dict[str, str]:
        """As options of Spark's source."""
        return {
            "kafka.bootstrap.servers": self.servers,
            "kafka.isolation.level": "read_committed",
            "includeHeaders": "true",
            "failOnDataLoss": "true",
            # After each poll Spark asks the broker where the partition begins and ends.
            "kafka.max.poll.records": str(_POLL_RECORDS),
            **self.options,
        }


def read_cleaned(spark: SparkSession, source: Source, topics: Sequence[CleanedTopic]) -> Cleaned:
    """The topics as streaming frames, refused where they are not what the job expects."""
    firsts = _first_offsets(spark, source, topics)
    for topic in topics:
        if topic.pipeline is not None:
            _verify(topic, _cleaned_by(spark, source, topic))
    told = [topic for topic in topics if topic.pipeline is not None]
    records = [_records(_reader(spark, source), topic) for topic in topics]
    begins = {
        place_of(topic.topic, partition): first
        for topic in told
        for partition, first in enumerate(firsts[topic.topic])
    }
    return Cleaned(
        reduce(DataFrame.unionByName, records),
        _progress(spark, source, told) if told else None,
        {each.input: len(firsts[each.topic]) if each in told else 0 for each in topics},
        begins,
        firsts,
    )


def _reader(spark: SparkSession, source: Source) -> DataStreamReader:
    options = source.described()
    if source.batch_records is not None:
        options["maxOffsetsPerTrigger"] = str(source.batch_records)
    reader = spark.readStream.format("kafka").option("startingOffsets", "earliest")
    return reader.options(**options)


def _records(reader: DataStreamReader, topic: CleanedTopic) -> DataFrame:
    return (
        reader.option("subscribe", topic.topic)
        .load()
        .select(
            F.lit(topic.input).alias("input"),
            "topic",
            "partition",
            "offset",
            F.unix_millis("timestamp").alias("timestamp_ms"),
            "key",
            "value",
            "headers",
        )
    )


def _progress(spark: SparkSession, source: Source, topics: Sequence[CleanedTopic]) -> DataFrame:
    names = [progress_topic(topic.topic).name for topic in topics]
    suffix = len(progress_topic("").name)
    text = F.col("key").cast("string")
    said = F.from_json(F.col("value").cast("string"), _PROGRESS_SCHEMA)
    return (
        spark.readStream.format("kafka")
        .option("startingOffsets", "earliest")
        .options(**source.described())
        .option("subscribe", ",".join(names))
        .load()
        .where(F.col("value").isNotNull() & text.rlike("^[0-9]+$"))
        .select(
            F.expr(f"left(topic, length(topic) - {suffix})").alias("topic"),
            text.cast("int").alias("partition"),
            "offset",
            said["progress_ms"].alias("progress_ms"),
            said["cleaned_offset"].alias("cleaned_offset"),
        )
    )


def _cleaned_by(spark: SparkSession, source: Source, topic: CleanedTopic) -> CleanedBy | None:
    """Which pipeline the topic says it is written by; the last one that said so."""
    rows = (
        spark.read.format("kafka")
        .options(**source.described())
        .option("subscribe", progress_topic(topic.topic).name)
        .load()
        .where((F.col("partition") == 0) & (F.col("key") == F.lit(PIPELINE_KEY)))
        .orderBy(F.col("offset").desc())
        .limit(1)
        .collect()
    )
    return read_cleaned_by(bytes(rows[0].key), bytes(rows[0].value)) if rows else None


def _verify(topic: CleanedTopic, found: CleanedBy | None) -> None:
    if found is None:
        raise _refusal(topic, "does not say which pipeline writes it", "start its sidecar first")
    if found.layout > LAYOUT:
        raise _refusal(
            topic, f"is written by a newer headrace (layout {found.layout})", "upgrade this"
        )
    if found.pipeline != topic.pipeline:
        what = f"is written by the pipeline `{found.pipeline}`, not by `{topic.pipeline}`"
        raise _refusal(topic, what, "name the right one in the job")
    for path, wanted, said in _differences(topic.expected, found.spec, ""):
        what = f"is written with `{path}: {said}`, and this job relies on `{wanted}`"
        raise _refusal(topic, what, "change the pipeline or the job")


def _differences(wanted: Any, said: Any, path: str) -> list[tuple[str, Any, Any]]:
    """Where what is said differs from what is wanted, as far as that goes."""
    if isinstance(wanted, Mapping) and isinstance(said, Mapping):
        return [
            each
            for name, inner in wanted.items()
            for each in _differences(inner, said.get(name), f"{path}.{name}".lstrip("."))
        ]
    if isinstance(wanted, list) and isinstance(said, list) and len(wanted) == len(said):
        return [
            each
            for number, (inner, other) in enumerate(zip(wanted, said, strict=True))
            for each in _differences(inner, other, f"{path}.{number}")
        ]
    return [] if wanted == said else [(path, wanted, said)]


def _first_offsets(
    spark: SparkSession, source: Source, topics: Sequence[CleanedTopic]
) -> dict[str, list[int]]:
    """The first offset of each topic's partitions, by the client that Spark reads with."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 (Spark's own way to the classes it loaded)
    settings = jvm.java.util.HashMap()
    for name, value in source.described().items():
        if name.startswith("kafka."):
            settings[name.removeprefix("kafka.")] = value
    wanted = jvm.java.util.ArrayList()
    for topic in topics:
        wanted.add(topic.topic)
        if topic.pipeline is not None:
            wanted.add(progress_topic(topic.topic).name)
    admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)
    try:
        present = admin.listTopics().names().get()
        for name in wanted:
            if not present.contains(name):
                message = f"the topic `{name}` is missing; start its sidecar, or name another topic"
                raise TopicRefused(message)
        described = admin.describeTopics(wanted).allTopicNames().get()
        sizes = {each.topic: int(described[each.topic].partitions().size()) for each in topics}
        places = {
            (name, number): jvm.org.apache.kafka.common.TopicPartition(name, number)
            for name, size in sizes.items()
            for number in range(size)
        }
        asked = jvm.java.util.HashMap()
        for place in places.values():
            asked.put(place, jvm.org.apache.kafka.clients.admin.OffsetSpec.earliest())
        found = admin.listOffsets(asked).all().get()
        firsts = {each: int(found[place].offset()) for each, place in places.items()}
        return {
            name: [firsts[name, number] for number in range(size)] for name, size in sizes.items()
        }
    finally:
        admin.close()


def _refusal(topic: CleanedTopic, what: str, advice: str) -> TopicRefused:
    return TopicRefused(f"the topic `{topic.topic}` {what}; {advice}")
