"""What the file of any job says."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from contracts.pipeline import TopicName
from contracts.policies import Name, Policy
from contracts.servers import Servers
from contracts.time import DurationMs

Positive = Annotated[int, Field(strict=True, gt=0, le=100_000)]
Many = Annotated[int, Field(strict=True, gt=0, le=(1 << 63) - 1)]
Folder = Annotated[str, Field(min_length=1)]
JoinKind = Literal["inner", "left"]


class KafkaTopic(Policy):
    """A topic, made where it is missing."""

    topic: TopicName
    partitions: Positive = 4


class TableFolder(Policy):
    """A folder with a table in it, on any file system that Spark knows."""

    folder: Folder


class Console(Policy):
    """The terminal."""


class SinkConfig(Policy):
    """Where rows go: one of these."""

    kafka: KafkaTopic | None = None
    delta: TableFolder | None = None
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
    every_ms: Annotated[DurationMs, Field(le=365 * 86_400_000)] = 0
    """How long from the start of a micro-batch to that of the next."""
    records_per_batch: Many | None = None
    """How many records of a topic a micro-batch takes at most; all that there are without it.

    A task holds in memory what it brings, so a job that is far behind may need a bound, or more
    tasks. With a bound, topics are not read in step: a table far ahead of its stream has forgotten
    what is older than its retention. Progress is read at once and waits for the records it names;
    what sidecars wrote before they named one does not, so what is behind it would be late.
    """
    reader: dict[str, str] = Field(default_factory=dict)
    """Options of Spark's Kafka source, such as `kafka.security.protocol`."""
    writer: dict[str, str] = Field(default_factory=dict)
    """Options of librdkafka, such as `security.protocol`."""
    spark: dict[str, str] = Field(default_factory=dict)
    """Settings of Spark, such as `spark.driver.memory`, where they differ from ours."""


def inputs_of(config: JobConfig) -> dict[str, Input]:
    """The topics that a job reads, by name, in the order of their numbers."""
    inputs = config.inputs  # type: ignore[attr-defined]
    return {name: getattr(inputs, name) for name in type(inputs).model_fields}
