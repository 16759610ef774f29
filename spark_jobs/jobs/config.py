"""The options that every job's file may have."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from headrace.contracts.pipeline import TopicName
from headrace.contracts.policies import Name, Policy
from headrace.contracts.problem_text import show
from headrace.contracts.servers import Servers
from headrace.contracts.time import DurationMs, SizeBytes
from headrace.spark_jobs.jobs.access import KafkaAccess
from headrace.spark_jobs.read.registry import RegistryAccess
from headrace.spark_jobs.versioned.changes import Updates

TASKS_MAX = 100_000
Positive = Annotated[int, Field(strict=True, gt=0, le=TASKS_MAX)]
Many = Annotated[int, Field(strict=True, gt=0, le=(1 << 63) - 1)]
Folder = Annotated[str, Field(min_length=1)]
_IN_A_DATABASE = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){1,2}")
_IN_A_CATALOG = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){2,}")
RECORDS_A_BATCH = 1_000_000
BYTES_A_BATCH = 256 << 20
JoinKind = Literal["inner", "left"]


class KafkaTopic(Policy):
    """A topic; the job creates it if it is missing."""

    topic: TopicName
    partitions: Positive = 4


class RowsTopic(KafkaTopic):
    """A topic of rows."""

    value: Literal["json", "avro"] = "json"
    """How a row is written: as JSON, or as Avro whose schema has a number in `registry`."""
    registry: RegistryAccess | None = None
    """The registry that gets the schema of rows in Avro, under the subject `TOPIC-value`."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.value == "avro" and self.registry is None:
            message = (
                "`registry` is missing; rows in Avro name their schema in one, such as `registry:"
                " {url: http://127.0.0.1:8081}`"
            )
            raise ValueError(message)
        if self.value == "json" and self.registry is not None:
            message = "`registry` does nothing for rows in JSON; add `value: avro`"
            raise ValueError(message)
        return self

    @model_serializer(mode="wrap")
    def _noted(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what decides no row, and what checkpoints of earlier versions do not note."""
        said: dict[str, Any] = dump(self)
        return {
            name: one
            for name, one in said.items()
            if name != "registry" and (name, one) != ("value", "json")
        }


class TableFolder(Policy):
    """A folder with a table in it, on any file system that Spark knows."""

    folder: Folder


Mode = Literal["append", "upsert", "scd2"]


class CatalogTable(Policy):
    """A table, by its name in a catalog or by its folder."""

    _example: ClassVar[str]

    table: str | None = None
    folder: Folder | None = None
    """Its folder, on any file system that Spark knows; such a table needs no catalog."""
    mode: Mode = "append"
    """Whether a row stands beside the earlier rows of its key, or replaces them; by `upsert` a
    deleted key has no row. A merge reads the whole table in each micro-batch. By `scd2` a row has
    the times from when and until when it is valid, `valid_from` and `valid_to`: a later row of its
    key ends it, and so does a deletion."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.table is None) == (self.folder is None):
            message = (
                "a table has either a name or a folder; write one of them, such as"
                f" `{{table: {self._example}}}` or `{{folder: tables/orders}}`"
            )
            raise ValueError(message)
        return self


def _whole(pattern: re.Pattern[str], parts: str, examples: str, name: str) -> str:
    """Refuse a name that would be looked up in whichever catalog or database is current."""
    if not pattern.fullmatch(name):
        message = (
            f"{show(name)} does not name {parts}; write such as {examples}, with letters, digits,"
            " `_` and `-` in each"
        )
        raise ValueError(message)
    return name


_in_a_database = partial(
    _whole,
    _IN_A_DATABASE,
    "a database and a table",
    "`sales.orders`, or `lake.sales.orders` for one in a catalog of yours",
)
_in_a_catalog = partial(
    _whole, _IN_A_CATALOG, "a catalog, a database and a table", "`lake.sales.orders`"
)


class DeltaTable(CatalogTable):
    """A Delta table, by its name in a catalog or by its folder."""

    _example = "sales.orders"

    table: Annotated[str, AfterValidator(_in_a_database)] | None = None
    """Its name, `database.table` in Spark's own catalog, or `catalog.database.table`."""

    @model_serializer(mode="wrap")
    def _noted(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what checkpoints of earlier versions do not note."""
        said: dict[str, Any] = dump(self)
        return {name: one for name, one in said.items() if (name, one) != ("table", None)}


class IcebergTable(CatalogTable):
    """An Iceberg table, by its name in a catalog or by its folder."""

    _example = "lake.sales.orders"

    table: Annotated[str, AfterValidator(_in_a_catalog)] | None = None
    """Its name, `catalog.database.table`, in a catalog that `spark` or the cluster sets up."""


class Console(Policy):
    """The terminal."""


class SinkConfig(Policy):
    """Where rows go: one of these."""

    kafka: RowsTopic | None = None
    delta: DeltaTable | None = None
    iceberg: IcebergTable | None = None
    parquet: TableFolder | None = None
    console: Console | None = None

    @property
    def mode(self) -> Mode:
        """How a table keeps the rows of a key."""
        table = self.delta or self.iceberg
        return "append" if table is None else table.mode

    @model_validator(mode="after")
    def _one(self) -> SinkConfig:
        chosen = [self.kafka, self.delta, self.iceberg, self.parquet, self.console]
        if sum(sink is not None for sink in chosen) != 1:
            message = (
                "a sink is one of kafka, delta, iceberg, parquet and console; write one of them,"
                " such as `console: {}`"
            )
            raise ValueError(message)
        return self

    @model_serializer(mode="wrap")
    def _noted(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what checkpoints of earlier versions do not note."""
        said: dict[str, Any] = dump(self)
        return {name: one for name, one in said.items() if (name, one) != ("iceberg", None)}


class Input(Policy):
    """A cleaned topic, and the pipeline that writes it; without a pipeline it has no progress."""

    topic: TopicName
    pipeline: Name | None = None


class InputTopics(Policy):
    """The topics that a job reads, an `Input` each; each job names its own, tables first.

    At equal times the first goes first, so a stream stands behind the table it looks up in.
    """


class JobConfig(Policy):
    """The options that every job has."""

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
    """Where a copy of each late record goes; without it, late records are only counted."""
    on_failure: Literal["dead", "stop"] = "dead"
    """Whether a record on which a step or a function of the job fails is dead, or stops the job."""
    accept_retention: bool = False
    """Write to topics that delete by the brokers' default, too; each start logs a warning."""
    dead_partitions: Positive = 4
    """How many partitions a dead-letter topic gets if the job creates it."""
    shuffle_partitions: Positive = 4
    """How many tasks run, and write, at a time; fixed for the life of the checkpoint. If it is not
    said, a checkpoint that begins on a machine with fewer cores has one for each of them."""
    tasks: Positive = Field(default_factory=lambda said: 2 * said["shuffle_partitions"])
    """Into how many tasks the keys are spread: two for each that runs at a time, or as many as the
    checkpoint has, if it is not said. `headrace spark move` moves a checkpoint's state into another
    number of tasks and a new checkpoint."""
    hot_keys: list[str] = Field(default_factory=list)
    """Keys of which one task has too much, for a stream that looks up in a table by its key and
    releases by progress: each task has a part of their records, and the table's rows of them.

    Their results leave in no order. Fixed for the life of the checkpoint.
    """
    every_ms: Annotated[DurationMs, Field(le=365 * 86_400_000)] = 1_000
    """How long from the start of a micro-batch to the start of the next; zero is at once.

    Sidecars commit several times a second, and a micro-batch costs a second of CPU time however few
    records it has.
    """
    records_per_batch: Many | None = None
    """How many records of a topic a micro-batch takes at most.

    A task holds its part of a micro-batch in memory. The default is a million for a job that
    releases by progress and whose inputs all have a pipeline: the records that it has read wait for
    those that it has not read. Any other job takes all records that there are, because topics that
    are read in pieces are not read in step. There, a record could be joined before the version that
    it should meet, and a table far ahead of its stream has forgotten versions older than its
    retention. Records that a sidecar wrote before its progress named a record do not wait either.
    """
    bytes_per_batch: Annotated[SizeBytes, Field(gt=0)] | None = None
    """The same in bytes, by what the last records of a topic weigh when the job starts; 256MiB
    where the default of `records-per-batch` is a million."""
    kafka: KafkaAccess | None = None
    """How the job logs in to Kafka, for reading and writing."""
    reader: dict[str, str] = Field(default_factory=dict)
    """More options of Spark's Kafka source, such as `kafka.request.timeout.ms`."""
    writer: dict[str, str] = Field(default_factory=dict)
    """More options of librdkafka, such as `compression.type`."""
    spark: dict[str, str] = Field(default_factory=dict)
    """Settings of Spark, such as `spark.driver.memory`, that differ from ours."""


def _updates_into(said: dict[str, Any]) -> Updates:
    return "each" if said["sink"].mode == "scd2" else "last"


class TablesConfig(JobConfig):
    """The options of a job that writes the changes of a table."""

    updates: Updates = Field(default_factory=_updates_into)
    """Which updates of a key leave a micro-batch: `last`, the last one alone, or `each`.

    By `each`, a row that changes thrice in a micro-batch is written three times. That is the
    default, and the only choice, for a table with a history (`mode: scd2`), and `last` for any
    other sink. Around a record that fails, `last` may leave a few more.
    """

    @field_validator("updates")
    @classmethod
    def _fits_the_sink(cls, updates: Updates, info: ValidationInfo) -> Updates:
        sink = info.data.get("sink")
        if sink is not None and sink.mode == "scd2" and updates == "last":
            message = (
                "`mode: scd2` keeps a row for each update, and `last` leaves some out; remove"
                " `updates`, or write `updates: each`"
            )
            raise ValueError(message)
        return updates


def updates_of(config: JobConfig) -> Updates:
    """Return which updates of a key a job writes; all rows of a stream."""
    return config.updates if isinstance(config, TablesConfig) else "each"


def reader_of(config: JobConfig) -> dict[str, str]:
    """Return the options of Spark's Kafka source."""
    return {**({} if config.kafka is None else config.kafka.for_reader()), **config.reader}


def writer_of(config: JobConfig) -> dict[str, str]:
    """Return the options of librdkafka."""
    return {**({} if config.kafka is None else config.kafka.for_writer()), **config.writer}


def is_bounded(config: JobConfig) -> bool:
    """Return whether a job takes its topics in pieces by default."""
    by_progress = getattr(config, "release", None) == "progress"
    return by_progress and all(one.pipeline is not None for one in inputs_of(config).values())


def batch_of(config: JobConfig) -> tuple[int | None, int | None]:
    """Return how many records and how many bytes of a topic a micro-batch takes at most."""
    records, size_bytes = config.records_per_batch, config.bytes_per_batch
    if records is None and size_bytes is None and is_bounded(config):
        return RECORDS_A_BATCH, BYTES_A_BATCH
    return records, size_bytes


def inputs_of(config: JobConfig) -> dict[str, Input]:
    """Return the topics that a job reads, by name, in the order of their numbers."""
    inputs = config.inputs  # type: ignore[attr-defined]
    return {name: getattr(inputs, name) for name in type(inputs).model_fields}
