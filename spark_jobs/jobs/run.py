"""Run a job as a query: read its inputs, write its results, keep its checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, Protocol, cast

from pydantic import BaseModel
from pyspark.sql.types import StructType

from headrace.contracts.errors import JobInvalid
from headrace.contracts.modules import import_own
from headrace.contracts.problem_text import show
from headrace.contracts.topics import (
    TopicSpec,
    cleaned_topic,
    dead_topic,
    dead_topic_name,
    late_topic,
)
from headrace.spark_jobs.jobs import (
    count_alerts,
    customers_subscriptions,
    orders_customers,
    orders_prices,
    revenue_by_segment,
)
from headrace.spark_jobs.jobs.again import Attempts, running
from headrace.spark_jobs.jobs.cold import ColdHistory, FallsBack
from headrace.spark_jobs.jobs.config import (
    InputTopics,
    JobConfig,
    KafkaTopic,
    batch_of,
    inputs_of,
    reader_of,
    writer_of,
)
from headrace.spark_jobs.jobs.done_again import reportable
from headrace.spark_jobs.jobs.fits import own_column_among
from headrace.spark_jobs.jobs.inputs import Inputs
from headrace.spark_jobs.jobs.kinds import Bundling, Dated, Prepared, Spreading
from headrace.spark_jobs.jobs.moved import Moves
from headrace.spark_jobs.jobs.registered import encode_of
from headrace.spark_jobs.jobs.stamp import Stamp, changes, digest_of, options_of, with_options
from headrace.spark_jobs.jobs.tasks import TasksNote
from headrace.spark_jobs.operators.frames import ON_FAILURE, InputProgress
from headrace.spark_jobs.operators.leaving import Leaving
from headrace.spark_jobs.operators.tabled import Tabled
from headrace.spark_jobs.read.decode import Format, JsonValue, RegisteredValue
from headrace.spark_jobs.read.schema import schema_of
from headrace.spark_jobs.read.source import Source
from headrace.spark_jobs.read.topics import awaited, read_cleaned, topic_ids
from headrace.spark_jobs.read.written_by import CleanedTopic
from headrace.spark_jobs.write.aim import Targets
from headrace.spark_jobs.write.claims import APPEND, SCD2
from headrace.spark_jobs.write.console import ConsoleSink
from headrace.spark_jobs.write.delta import DeltaSink
from headrace.spark_jobs.write.delta_place import DeltaPlace
from headrace.spark_jobs.write.iceberg import IcebergSink
from headrace.spark_jobs.write.iceberg_place import IcebergPlace
from headrace.spark_jobs.write.kafka import KafkaSink, Written
from headrace.spark_jobs.write.output import KafkaOutput, Sink, TableOutput
from headrace.spark_jobs.write.parquet import ParquetSink

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
"""librdkafka does not log anything less serious."""
_log = logging.getLogger(__name__)
Note = Callable[[int, Written], None]
Write = Callable[["DataFrame", int], None]


class Job(Protocol):
    """The parts of a job's module."""

    Config: type[JobConfig]
    Row: Any
    """The JSON of a row: a model of pydantic's, or columns."""
    VALUES: Mapping[str, type[BaseModel] | Format]
    """By input, the fields of its JSON, or the format of its values; others are not decoded."""

    def transform(self, inputs: Inputs, config: Any) -> DataFrame:
        """Turn the records of the inputs into results."""


def find_job(name: str) -> Job:
    """Find the module of a job: one of headrace's, or of the user's own."""
    try:
        module = JOBS.get(name) or import_own(name)
    except ImportError as error:
        near = get_close_matches(name, JOBS, n=1)
        guess = f"; did you mean `{near[0]}`?" if near else ""
        message = f"{show(name)} is none of {', '.join(JOBS)}, and {error}{guess}"
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
    """Describe the first of a job's four parts that is not as it must be, None if all are."""
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


def prepare(spark: SparkSession, job: Job, config: JobConfig) -> None:
    """Check that a job can be computed and its rows written, before anything is read."""
    if isinstance(job, Prepared):
        job.prepare(spark)
    problem = own_column_among(_row_of(job).names, config)
    if problem is not None:
        raise JobInvalid(problem)


def queries(
    spark: SparkSession, job: Job, config: JobConfig, *, once: bool, note: Note
) -> Iterator[StreamingQuery]:
    """Start the queries of a job one by one; the caller waits for each by `has_ended`.

    A query's output is closed once the caller has waited for its end.
    """
    moves = Moves(spark, config.checkpoint)
    moves.stay()
    first = moves.origin().batch
    config = TasksNote(spark, config.checkpoint).settled(config)
    stamp, options = Stamp(spark, config.checkpoint), options_of(config)
    stamp.know(topic_ids(spark, *read_from(config)))
    often = {"processingTime": f"{config.every_ms} milliseconds"}

    def started(config: JobConfig, trigger: Mapping[str, Any]) -> Iterator[StreamingQuery]:
        return running(
            Attempts(config.name, stamp.finished),
            lambda: make_output(job, config, note),
            lambda output: _start(spark, job, config, trigger, output),
        )

    while (before := _to_finish_as(spark, job, config, stamp, first)) is not None:
        yield from started(before, {"once": True})
    stamp.put(options)
    yield from started(config, {"availableNow": True} if once else often)


def _to_finish_as(
    spark: SparkSession, job: Job, config: JobConfig, stamp: Stamp, first: int
) -> JobConfig | None:
    """Return the job with the options of its unfinished micro-batch, None if they are the same."""
    begun, noted, now = stamp.begun(), stamp.options(), options_of(config)
    if begun is None or noted is None or noted == now:
        return None
    before = with_options(job, config, noted, begun)
    output = make_output(job, before, lambda _batch, _written: None)
    if not output.wrote_otherwise(spark, begun.query_id, begun.batch + first, digest_of(now)):
        return None
    _log.warning(
        "%s: micro-batch %d was written in part before %s changed; it is finished as it was begun,"
        " and what is said now holds behind it",
        *(config.name, begun.batch, changes(noted, now)),
    )
    return before


def _start(
    spark: SparkSession,
    job: Job,
    config: JobConfig,
    trigger: Mapping[str, Any],
    output: KafkaOutput | TableOutput,
) -> StreamingQuery:
    moves = Moves(spark, config.checkpoint)
    origin = moves.origin()
    inputs = read_inputs(spark, job, config, origin.starts)
    spark.conf.set(ON_FAILURE, config.on_failure)
    fall_back = job.fall_back(config) if isinstance(job, FallsBack) else None
    write: Write = output.write
    if fall_back is not None:
        topic = inputs_of(config)[fall_back.table].topic
        source = Source(config.servers, reader_of(config))
        as_format = format_of(job, fall_back.table)
        firsts = inputs.firsts[topic]
        write = ColdHistory(fall_back, source, topic, firsts, as_format).before(write)
    write = reportable(spark, moves.guarded(write, origin))
    leaving = None
    if leaves_bundled(job, config):
        leaving = Leaving(output.writer_where_made(spark))
    tasks = TasksNote(spark, config.checkpoint)
    origin.begin(spark)
    tasks.begin()
    try:
        results = job.transform(replace(inputs, leaving=leaving), config)
        origin.refuse_rows_left(spark)
        writer = results.writeStream.queryName(config.name).outputMode("append")
        writer = writer.option("checkpointLocation", config.checkpoint).foreachBatch(write)
        return writer.trigger(**trigger).start()
    finally:
        # A job that fails here must not leave its rows to the next query of this session.
        origin.go_on(spark)
        tasks.go_on()


def leaves_bundled(job: Job, config: JobConfig) -> bool:
    """Return whether results leave in bundles; a job that calls one of ours may look at rows."""
    kafka = config.sink.kafka
    falls_back = isinstance(job, FallsBack) and job.fall_back(config) is not None
    is_known = job.leaves_bundled if isinstance(job, Bundling) else job in JOBS.values()
    # A cold history needs rows, and so does a registry's encoder, but for the rows of a query.
    if not is_known or falls_back:
        return False
    if kafka is not None:
        return kafka.registry is None or isinstance(job, Bundling)
    # A merge reads its rows several times, and Python would make them anew each time.
    appends = config.sink.console is None and config.sink.mode == APPEND
    return appends and Tabled.is_for(_row_of(job))


def read_inputs(
    spark: SparkSession,
    job: Job,
    config: JobConfig,
    starts: Mapping[str, Mapping[str, int]] = MappingProxyType({}),
) -> Inputs:
    """Read the inputs of a job as frames; its VALUES say which records are readable.

    `starts` are the offsets at which a new checkpoint begins, by topic and partition.
    """
    names = list(inputs_of(config))
    source, topics = read_from(config)
    source = replace(source, starts=starts)
    cleaned = read_cleaned(spark, source, topics)
    formats = {names.index(name): format_of(job, name) for name in job.VALUES}
    by_number = {each.input: each.topic for each in topics}
    progress = InputProgress(cleaned.progress, cleaned.partitions, by_number, cleaned.begins)
    return Inputs(names, cleaned.frames, formats, progress, cleaned.firsts)


def awaited_by(spark: SparkSession, config: JobConfig) -> str | None:
    """Say which sidecar a job must wait for before it can start, None if it need not wait."""
    return awaited(spark, *read_from(config))


def read_from(config: JobConfig) -> tuple[Source, list[CleanedTopic]]:
    """Return the brokers of a job, and the topics that it reads there."""
    inputs = enumerate(inputs_of(config).values())
    topics = [CleanedTopic(number, one.topic, one.pipeline) for number, one in inputs]
    return Source(config.servers, reader_of(config), *batch_of(config)), topics


def format_of(job: Job, name: str) -> Format:
    """Return the format of an input's values."""
    value = job.VALUES[name]
    return JsonValue(schema_of(value)) if isinstance(value, type) else value


def make_output(
    job: Job, config: JobConfig, note: Note, *, repeats: bool | None = None
) -> KafkaOutput | TableOutput:
    """Make the sink of a job's results.

    `repeats` is whether a repeated micro-batch surely has the same rows, if it is not the job that
    decides.
    """
    repeats = _repeats(job, config) if repeats is None else repeats
    topics = topics_of(config)
    client = {"bootstrap.servers": config.servers, "log_level": _WARNINGS, **writer_of(config)}
    kafka = KafkaSink(
        config.name,
        client,
        topics,
        accepts_retention=config.accept_retention,
        options=digest_of(options_of(config)),
        repeats=repeats,
    )
    targets = Targets(_topic(config.sink.kafka), _topic(config.late))
    if config.sink.kafka is not None and config.sink.kafka.registry is not None:
        encode = encode_of(config.sink.kafka.topic, config.sink.kafka.registry, _row_of(job))
        return KafkaOutput(kafka, targets, note, encode)
    output = KafkaOutput(kafka, targets, note)
    table = _table_sink(job, config, repeats=repeats)
    if table is None:
        return output
    row, corrects = _row_of(job), bool(getattr(config, "corrections", False))
    tabled = Tabled(row, corrects=corrects) if Tabled.is_for(row) else None
    return TableOutput(table, row, output, corrects=corrects, table=tabled)


def _row_of(job: Job) -> StructType:
    """Return the columns of a job's rows."""
    return job.Row if isinstance(job.Row, StructType) else schema_of(job.Row)


def _repeats(job: Job, config: JobConfig) -> bool:
    """Return whether a repeated micro-batch has the same rows.

    A cold history may have grown, and a registry may have learned a schema.
    """
    if any(isinstance(format_of(job, name), RegisteredValue) for name in job.VALUES):
        return False
    fall_back = job.fall_back(config) if isinstance(job, FallsBack) else None
    return fall_back is None or fall_back.join == "left"


def topics_of(config: JobConfig) -> dict[TopicSpec, int]:
    """Return the topics that a job writes, each with the partitions it gets if it is missing."""
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


def _table_sink(job: Job, config: JobConfig, *, repeats: bool) -> Sink | None:
    query, sink, mode = config.name, config.sink, config.sink.mode
    in_order = mode == SCD2 and _is_in_order(job, config)
    of_one_task = is_of_one_task(job)
    place = place_of(config)
    if place is not None:
        how = {"in_order": in_order, "of_one_task": of_one_task, "repeats": repeats}
        if isinstance(place, DeltaPlace):
            return DeltaSink(query, place, mode=mode, **how)
        return IcebergSink(query, place, mode=mode, **how)
    if sink.parquet is not None:
        return ParquetSink(query, sink.parquet.folder)
    if sink.console is not None:
        return ConsoleSink()
    return None


def _is_in_order(job: Job, config: JobConfig) -> bool:
    """Return whether later rows hold later; refuse a job that does not say so."""
    if not isinstance(job, Dated):
        raise JobInvalid(no_history(job, config))
    return job.in_order


def is_of_one_task(job: Job) -> bool:
    """Return whether all rows of a key are of one task; jobs of the user's do not say so."""
    return job.of_one_task if isinstance(job, Spreading) else job in JOBS.values()


def no_history(job: Job, config: JobConfig) -> str | None:
    """Describe why a table cannot keep the history of a job's rows, None if it need not or can."""
    if config.sink.mode != SCD2 or isinstance(job, Dated):
        return None
    return (
        f"`mode: {SCD2}` takes a query, of which it knows how rows follow each other in time,"
        f" and `{config.job}` is none; write the job as a query, or use `mode: append`"
    )


def place_of(config: JobConfig) -> DeltaPlace | IcebergPlace | None:
    """Return the place of a job's table, None if it writes elsewhere."""
    delta, iceberg = config.sink.delta, config.sink.iceberg
    if delta is not None:
        return DeltaPlace(delta.table, delta.folder)
    return None if iceberg is None else IcebergPlace(iceberg.table, iceberg.folder)
