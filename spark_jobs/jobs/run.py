"""A job as a running query: its inputs read, its results written, its checkpoint kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, cast

from pydantic import BaseModel

from contracts.errors import JobInvalid
from contracts.modules import import_own
from contracts.problem_text import show
from contracts.topics import TopicSpec, cleaned_topic, dead_topic, dead_topic_name, late_topic
from spark_jobs.jobs import (
    count_alerts,
    customers_subscriptions,
    orders_customers,
    orders_prices,
    revenue_by_segment,
)
from spark_jobs.jobs.cold import ColdHistory, FallsBack
from spark_jobs.jobs.config import InputTopics, JobConfig, KafkaTopic, SinkConfig, inputs_of
from spark_jobs.jobs.inputs import Inputs
from spark_jobs.operators.frames import ON_FAILURE, Hearing
from spark_jobs.read.decode import Format, JsonValue, checked
from spark_jobs.read.schema import schema_of
from spark_jobs.read.topics import CleanedTopic, Source, read_cleaned
from spark_jobs.write.aim import Targets
from spark_jobs.write.console import ConsoleSink
from spark_jobs.write.delta import DeltaSink
from spark_jobs.write.kafka import KafkaSink, Written
from spark_jobs.write.output import KafkaOutput, Sink, TableOutput
from spark_jobs.write.parquet import ParquetSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

JOBS: Mapping[str, ModuleType] = {
    "count-alerts": count_alerts,
    "customers-subscriptions": customers_subscriptions,
    "orders-customers": orders_customers,
    "orders-prices": orders_prices,
    "revenue-by-segment": revenue_by_segment,
}
"""The jobs that come with headrace, by the name that a file gives them."""
_WARNINGS = "4"
"""What is less serious librdkafka keeps to itself."""
Tell = Callable[[int, Written], None]
Write = Callable[["DataFrame", int], None]


class Job(Protocol):
    """What a job's module has."""

    Config: type[JobConfig]
    Row: type[BaseModel]
    VALUES: Mapping[str, type[BaseModel] | Format]
    """By input, the fields of its JSON, or what else its values are; others are not looked into."""

    def transform(self, inputs: Inputs, config: Any) -> DataFrame:
        """Records of its inputs to results."""


def find_job(name: str) -> Job:
    """The module of a job: one of headrace's, or of the user's own."""
    try:
        module = JOBS.get(name) or import_own(name)
    except ImportError as error:
        message = f"{show(name)} is none of {', '.join(JOBS)}, and {error}"
        raise JobInvalid(message) from error
    missing = [
        part for part in ("Config", "Row", "VALUES", "transform") if not hasattr(module, part)
    ]
    if missing:
        message = f"`{name}` has no {' and no '.join(missing)}; a job needs all of these"
        raise JobInvalid(message)
    problem = _problem(module)
    if problem is not None:
        message = f"`{name}` is no job: {problem}"
        raise JobInvalid(message)
    return cast("Job", module)


def _problem(module: Any) -> str | None:
    """What of a job's four parts is not what it must be."""
    config, row, values = module.Config, module.Row, module.VALUES
    if not (isinstance(config, type) and issubclass(config, JobConfig)):
        return "its Config must be a class on top of JobConfig"
    inputs = config.model_fields.get("inputs")
    topics = None if inputs is None else inputs.annotation
    if not (isinstance(topics, type) and issubclass(topics, InputTopics)):
        return "its Config must have `inputs`, a class on top of InputTopics"
    if not (isinstance(row, type) and issubclass(row, BaseModel)):
        return "its Row must be a model of pydantic's"
    if not isinstance(values, Mapping) or not values.keys() <= topics.model_fields.keys():
        return "its VALUES must be a mapping by the names of its inputs"
    return None if callable(module.transform) else "its transform must be a function"


def start(
    spark: SparkSession, job: Job, config: JobConfig, *, once: bool, tell: Tell
) -> StreamingQuery:
    """Start the query; `once`, it ends when it has read what there is now."""
    inputs = read_inputs(spark, job, config)
    spark.conf.set(ON_FAILURE, config.on_failure)
    results = job.transform(inputs, config)
    write: Write = make_output(job, config, tell).write
    fall_back = job.fall_back(config) if isinstance(job, FallsBack) else None
    if fall_back is not None:
        topic = inputs_of(config)[fall_back.table].topic
        source = Source(config.servers, config.reader)
        as_format = format_of(job, fall_back.table)
        firsts = inputs.firsts[topic]
        write = ColdHistory(fall_back, source, topic, firsts, as_format).before(write)
    writer = results.writeStream.queryName(config.name).outputMode("append")
    writer = writer.option("checkpointLocation", config.checkpoint).foreachBatch(write)
    if once:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{config.every_ms} milliseconds")
    return writer.start()


def read_inputs(spark: SparkSession, job: Job, config: JobConfig) -> Inputs:
    """The inputs of a job, as frames; records that are not what they should be are dead there."""
    inputs = inputs_of(config)
    names = list(inputs)
    source = Source(config.servers, config.reader, config.records_per_batch)
    topics = [
        CleanedTopic(number, one.topic, one.pipeline) for number, one in enumerate(inputs.values())
    ]
    cleaned = read_cleaned(spark, source, topics)
    formats = {names.index(name): format_of(job, name) for name in job.VALUES}
    records = checked(cleaned.records, formats)
    hearing = Hearing(cleaned.progress, cleaned.partitions, cleaned.begins)
    return Inputs(names, records, hearing, cleaned.firsts)


def format_of(job: Job, name: str) -> Format:
    """How the values of an input are written."""
    value = job.VALUES[name]
    return JsonValue(schema_of(value)) if isinstance(value, type) else value


def make_output(job: Job, config: JobConfig, tell: Tell) -> KafkaOutput | TableOutput:
    """Where a job's results go."""
    topics = topics_of(config)
    client = {"bootstrap.servers": config.servers, "log_level": _WARNINGS, **config.writer}
    kafka = KafkaSink(config.name, client, topics, accepts_retention=config.accept_retention)
    targets = Targets(_topic(config.sink.kafka), _topic(config.late))
    output = KafkaOutput(kafka, targets, tell)
    table = _table_sink(config.name, config.sink)
    if table is None:
        return output
    corrects = bool(getattr(config, "corrections", False))
    return TableOutput(table, schema_of(job.Row), output, corrects=corrects)


def topics_of(config: JobConfig) -> dict[TopicSpec, int]:
    """The topics that a job writes, each with the partitions it gets if it is missing."""
    topics = {
        dead_topic(dead_topic_name(one.topic)): config.dead_partitions
        for one in inputs_of(config).values()
    }
    if config.sink.kafka is not None:
        topics[cleaned_topic(config.sink.kafka.topic)] = config.sink.kafka.partitions
    if config.late is not None:
        topics[late_topic(config.late.topic)] = config.late.partitions
    return topics


def _topic(chosen: KafkaTopic | None) -> str | None:
    return None if chosen is None else chosen.topic


def _table_sink(query: str, sink: SinkConfig) -> Sink | None:
    if sink.delta is not None:
        return DeltaSink(query, sink.delta.folder)
    if sink.parquet is not None:
        return ParquetSink(query, sink.parquet.folder)
    if sink.console is not None:
        return ConsoleSink()
    return None
