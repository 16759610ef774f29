"""What the file of any job says."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from headrace.contracts.pipeline import TopicName
from headrace.contracts.policies import Name, Policy
from headrace.contracts.servers import Servers
from headrace.contracts.time import DurationMs, SizeBytes

Positive = Annotated[int, Field(strict=True, gt=0, le=100_000)]
Many = Annotated[int, Field(strict=True, gt=0, le=(1 << 63) - 1)]
Folder = Annotated[str, Field(min_length=1)]
RECORDS_A_BATCH = 1_000_000
BYTES_A_BATCH = 256 << 20
JoinKind = Literal["inner", "left"]


class KafkaTopic(Policy):
    """A topic, made where it is missing."""

    topic: TopicName
    partitions: Positive = 4


class TableFolder(Policy):
    """A folder with a table in it, on any file system that Spark knows."""

    folder: Folder


class DeltaTable(TableFolder):
    """A Delta table."""

    mode: Literal["append", "upsert"] = "append"
    """Whether a row of a key stands beside the earlier ones, or takes their place; by `upsert` a
    deleted key has none. A merge looks through the whole table, a micro-batch."""


class Console(Policy):
    """The terminal."""


class SinkConfig(Policy):
    """Where rows go: one of these."""

    kafka: KafkaTopic | None = None
    delta: DeltaTable | None = None
    parquet: TableFolder | None = None
    console: Console | None = None

    @model_validator(mode="after")
    def _one(self) -> SinkConfig:
        chosen = [self.kafka, self.delta, self.parquet, self.console]
        if sum(sink is not None for sink in chosen) != 1:
            message = (
                "a sink is one of kafka, delta, parquet and console; write one of them,"
                " such as `console: {}`"
            )
            raise ValueError(message)
        return self


class Input(Policy):
    """A cleaned topic, and the pipeline that writes it; without one it has no progress."""

    topic: TopicName
    pipeline: Name | None = None


class InputTopics(Policy):
    """The topics that a job reads, an `Input` each; each job names its own, tables first.

    On equal times the first goes first, so a stream stands behind the table it looks up in.
    """


class JobConfig(Policy):
    """What every job must know."""

    job: str
    """Which job: one of headrace's by name, or a module of your own."""
    name: Name
    """Names the query, its transactions and its markers for as long as its checkpoint lives."""
    servers: Servers
    """Where Kafka is: host:port, several with commas."""
    checkpoint: Folder
    """Where Spark keeps the state and how far the query is; the job's memory."""
    sink: SinkConfig
    late: KafkaTopic | None = None
    """Where a copy of each late record goes; without it they are counted alone."""
    on_failure: Literal["dead", "stop"] = "dead"
    """What becomes of a record on which a step fails, or a function of the job's in it."""
    accept_retention: bool = False
    """Write to topics that delete by the brokers' default, too; it is said at every start."""
    dead_partitions: Positive = 4
    """How many partitions a topic of dead records gets where no sidecar has made it."""
    tasks: Positive = 16
    """Into how many tasks the keys are spread; fixed for the life of the checkpoint."""
    shuffle_partitions: Positive = 4
    """How many of them run at a time, and write; fixed for the life of the checkpoint."""
    every_ms: Annotated[DurationMs, Field(le=365 * 86_400_000)] = 1_000
    """How long from the start of a micro-batch to that of the next; zero is at once.

    Sidecars commit several times a second, and a micro-batch costs a second of CPU time whatever
    is in it.
    """
    records_per_batch: Many | None = None
    """How many records of a topic a micro-batch takes at most.

    A task holds in memory what it brings. A job that releases by progress, of whose inputs each has
    a pipeline, takes a million if this is not said: what it reads waits for what it has not read.
    Any other takes all that there is, since topics that are read in pieces are not read in step: a
    record would be joined before a version that it should have met, and a table far ahead of its
    stream has forgotten what is older than its retention. What sidecars wrote before their rows of
    progress named a record does not wait either.
    """
    bytes_per_batch: Annotated[SizeBytes, Field(gt=0)] | None = None
    """The same in bytes, by what the last records of a topic weigh when the job starts; 256MiB
    where `records-per-batch` would be a million."""
    reader: dict[str, str] = Field(default_factory=dict)
    """Options of Spark's Kafka source, such as `kafka.security.protocol`."""
    writer: dict[str, str] = Field(default_factory=dict)
    """Options of librdkafka, such as `security.protocol`."""
    spark: dict[str, str] = Field(default_factory=dict)
    """Settings of Spark, such as `spark.driver.memory`, where they differ from ours."""


def is_bounded(config: JobConfig) -> bool:
    """Whether a job takes pieces of its topics though its file does not say so."""
    by_progress = getattr(config, "release", None) == "progress"
    return by_progress and all(one.pipeline is not None for one in inputs_of(config).values())


def batch_of(config: JobConfig) -> tuple[int | None, int | None]:
    """How many records, and how many bytes, of a topic a micro-batch takes at most."""
    records, size_bytes = config.records_per_batch, config.bytes_per_batch
    if records is None and size_bytes is None and is_bounded(config):
        return RECORDS_A_BATCH, BYTES_A_BATCH
    return records, size_bytes


def inputs_of(config: JobConfig) -> dict[str, Input]:
    """The topics that a job reads, by name, in the order of their numbers."""
    inputs = config.inputs  # type: ignore[attr-defined]
    return {name: getattr(inputs, name) for name in type(inputs).model_fields}
