"""Join the past of a stream at once, and leave a checkpoint from which the job goes on.

    orders    . . . . . . . | o o o o o o o o o o | . . . . . .
                          begins                 ends      the job goes on from here
    prices    p p p p p p p p p p p p p p p p p p p . . . . . .
                                                 to        the job reads them from their beginning

Offsets cut the stream, so each record of it is joined once: by the backfill, or by the job. A
record needs the versions before its own time, wherever these stand. They are all there, since both
topics have passed `to`. The job reads the whole table anew for its state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

from headrace.contracts.errors import JobInvalid, SettingsInvalid, StateOfOtherOptions
from headrace.spark_jobs.jobs.bulk import read_range
from headrace.spark_jobs.jobs.config import JobConfig
from headrace.spark_jobs.jobs.filled import BATCH, Filled, Offsets, Period, Plan
from headrace.spark_jobs.jobs.hot_keys import LooksUp, spread_of
from headrace.spark_jobs.jobs.kinds import AtOnce
from headrace.spark_jobs.jobs.run import Job, make_output, read_from, read_inputs
from headrace.spark_jobs.jobs.stamp import Stamp
from headrace.spark_jobs.observe.waits import Lowest, time_text
from headrace.spark_jobs.read.decode import dead_alone, readable_alone
from headrace.spark_jobs.read.source import asking
from headrace.spark_jobs.read.topics import progress_now, topic_ids
from headrace.spark_jobs.shapes import DEAD, ORIGIN
from headrace.spark_jobs.versioned.progress import (
    Expected,
    ProgressRow,
    TaskProgress,
    place_of,
    silent_place,
)
from headrace.spark_jobs.versioned.state import MemoryRows, TaskState
from headrace.spark_jobs.write.batch import as_query
from headrace.spark_jobs.write.output import TableOutput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.spark_jobs.read.source import Source
    from headrace.spark_jobs.read.written_by import CleanedTopic

_ADAPTIVE = "spark.sql.adaptive.enabled"


def backfill(spark: SparkSession, job: Job, config: JobConfig, period: Period) -> Plan:
    """Join the records of a period, and note where the job goes on; finish what was begun."""
    at_once = at_once_of(job, config)
    filled = Filled(spark, config.checkpoint)
    plan = filled.plan()
    source, topics = read_from(config)
    inputs = read_inputs(spark, job, config)
    Stamp(spark, config.checkpoint).know(topic_ids(spark, source, topics))
    if plan is None:
        expected = inputs.progress.expected(spread_of(config))
        plan = _planned(spark, source, topics, expected, period)
        filled.begin(plan)
    else:
        _refuse_another(config, period, plan)
    records = [_records(spark, source, one, plan) for one in topics]
    formats = [inputs.formats[one.input] for one in topics]
    readable = [readable_alone(*each) for each in zip(records, count(), formats, strict=False)]
    dead = dead_alone(records[-1], topics[-1].input, formats[-1])
    output = make_output(job, config, lambda _batch, _written: None, repeats=False)
    assert isinstance(output, TableOutput)
    try:
        with as_query(spark, filled.query_id()), _in_given_parts(spark):
            rows = _placed(at_once.rows_at_once(readable, config), config)
            output.write_apart(rows, _as_results(dead), BATCH)
    finally:
        output.close()
    filled.end()
    return plan


def at_once_of(job: Job, config: JobConfig) -> AtOnce:
    """Return what computes a job's rows over the past at once; refuse a job that has none."""
    joins = isinstance(job, LooksUp) and job.LOOKS_UP_BY is not None and not job.FOLDS_ROWS
    problem = None
    if not joins or not isinstance(job, AtOnce):
        named = "this query" if config.job == "query" else f"`{config.job}`"
        problem = (
            f"{named} does not join a stream as of a table, so its past cannot be computed apart"
            " from what follows; start the job, which reads its topics from their beginning"
        )
    elif config.sink.kafka is not None or config.sink.console is not None:
        problem = (
            "a backfill writes rows in the order of their keys, which suits a table alone; write to"
            " `delta`, `iceberg` or `parquet`, or start the job, which reads its topics from their"
            " beginning"
        )
    elif config.sink.mode != "append":
        problem = (
            f"a backfill appends rows, and `mode: {config.sink.mode}` replaces earlier ones; write"
            " `mode: append`, or start the job, which reads its topics from their beginning"
        )
    elif getattr(config, "release", None) != "progress":
        problem = (
            "by `release: stream-time` the rows depend on the order in which records came, which a"
            " backfill does not follow; write `release: progress`"
        )
    elif getattr(config, "corrections", False):
        problem = (
            "`corrections` needs the records of the last `retention`, which a backfill does not"
            " leave to the job; remove it, or start the job without a backfill"
        )
    if problem is not None:
        raise JobInvalid(problem)
    assert isinstance(job, AtOnce)
    return job


def _planned(
    spark: SparkSession,
    source: Source,
    topics: list[CleanedTopic],
    expected: Expected,
    period: Period,
) -> Plan:
    """Choose the records of a period; refuse one whose end a topic has not passed yet."""
    stream = topics[-1].topic
    # A row of progress tells of records that are committed by then, so the ends come later.
    passed_ms, last = _passed(spark, source, topics, expected)
    to_ms = passed_ms if period.to_ms is None else period.to_ms
    if to_ms is None or passed_ms is None or to_ms > passed_ms:
        until = "has not begun" if passed_ms is None else f"ends before {time_text(passed_ms)}"
        message = (
            f"the past that both topics have passed {until}; {last}: choose an earlier `--to`,"
            " or wait for the sidecar"
        )
        raise SettingsInvalid(message)
    if period.from_ms is not None and period.from_ms >= to_ms:
        message = (
            f"`--from` is {time_text(period.from_ms)}, and the period ends before"
            f" {time_text(to_ms)}; choose an earlier one"
        )
        raise SettingsInvalid(message)
    with asking(spark, source) as brokers:
        sizes = brokers.partitions(one.topic for one in topics)
        places = {name: [(name, number) for number in range(size)] for name, size in sizes.items()}
        ends = _by_topic(brokers.ends(place for each in places.values() for place in each))
        firsts = _by_topic(brokers.offsets(places[stream], "earliest"))
        not_before = {
            time_ms: _by_topic(brokers.not_before(places[stream], time_ms))
            for time_ms in (period.from_ms, to_ms)
            if time_ms is not None
        }
    found = {
        time_ms: _first_at(spark, source, topics[-1], time_ms, begins, ends)
        for time_ms, begins in not_before.items()
    }
    begins = firsts if period.from_ms is None else found[period.from_ms]
    return Plan(period.from_ms, to_ms, stream, begins, {**ends, **found[to_ms]})


def _first_at(
    spark: SparkSession,
    source: Source,
    topic: CleanedTopic,
    time_ms: int,
    begins: Offsets,
    ends: Offsets,
) -> dict[str, dict[str, int]]:
    """Find the first record of each partition that is not before a time, or its end.

    A broker finds the mark of a transaction too, which has the time of the commit. So its answer
    may be too early, and the records from there on are looked at.
    """
    name = topic.topic
    own = {name: ends[name]}
    there = read_range(spark, source, [topic], begins=begins, ends=own)
    at_time = there.where(F.col("timestamp_ms") >= time_ms).groupBy("partition")
    firsts = at_time.agg(F.min("offset")).collect()
    found = {str(partition): first for partition, first in firsts}
    return {name: {partition: found.get(partition, end) for partition, end in own[name].items()}}


def _by_topic(offsets: Mapping[tuple[str, int], int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in offsets.items():
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def _passed(
    spark: SparkSession, source: Source, topics: list[CleanedTopic], expected: Expected
) -> tuple[int | None, str]:
    """Return the time that all topics have passed, and the partition that passes last."""
    said = [one for one in topics if one.pipeline is not None]
    progress = TaskProgress(TaskState(MemoryRows()), expected.places(0), {})
    for one in said:
        for row in _last_rows(progress_now(spark, source, one.topic)).collect():
            idle_ms = row.stream_time_ms if row.is_idle else None
            place = place_of(one.topic, row.partition)
            if row.cleaned_offset is not None:
                progress.read_up_to(place, row.cleaned_offset)
            progress.add(place, ProgressRow(row.progress_ms, row.cleaned_offset, idle_ms))
    for one in topics:
        if one not in said:
            newest = read_range(spark, source, [one]).agg(F.max("timestamp_ms")).collect()[0][0]
            if newest is not None:
                progress.count(silent_place(one.input), newest)
    lowest = progress.lowest()
    if lowest is None:
        return progress.progress_ms(), "all their partitions are idle"
    silent = {silent_place(one.input): f"`{one.topic}`" for one in topics}
    last = silent.get(lowest[0]) or str(Lowest.of(*lowest))
    return progress.progress_ms(), f"the last to pass is {last}"


def _last_rows(rows: DataFrame) -> DataFrame:
    """Return the last row of progress of each partition."""
    columns = ("progress_ms", "cleaned_offset", "stream_time_ms", "is_idle")
    last = F.max_by(F.struct(*columns), "offset").alias("last")
    return rows.groupBy("partition").agg(last).select("partition", "last.*")


def _refuse_another(config: JobConfig, period: Period, plan: Plan) -> None:
    """Refuse another period than that which was begun; what is not said may be anything."""
    for name, asked_ms, begun_ms in (
        ("--from", period.from_ms, plan.from_ms),
        ("--to", period.to_ms, plan.to_ms),
    ):
        if asked_ms is not None and asked_ms != begun_ms:
            begun = "without one" if begun_ms is None else f"with {time_text(begun_ms)}"
            message = (
                f"a backfill into `{config.checkpoint}` was begun {begun} as its `{name}`; finish"
                " it without saying another time"
            )
            raise StateOfOtherOptions(message)


def _records(spark: SparkSession, source: Source, topic: CleanedTopic, plan: Plan) -> DataFrame:
    """Read the records of a topic that the plan names."""
    ends = {topic.topic: plan.ends[topic.topic]}
    if topic.topic == plan.stream:
        return read_range(spark, source, [topic], begins=plan.begins, ends=ends)
    versions = read_range(spark, source, [topic], ends=ends)
    return versions.where(F.col("timestamp_ms") < plan.to_ms)


def _placed(rows: DataFrame, config: JobConfig) -> DataFrame:
    """Give rows the places that a table's rows have; later rows of a key have higher ones."""
    places = {"task": spread_of(config).task(), "sequence": F.monotonically_increasing_id()}
    return rows.withColumns(places)


def _as_results(dead: DataFrame) -> DataFrame:
    """Return unreadable records as results."""
    nothing = F.lit(None)
    return dead.select(
        F.lit(DEAD).alias("verdict"),
        F.get_json_object("aside", "$.reason").alias("reason"),
        F.lit(0).alias("task"),
        *ORIGIN,
        *("timestamp_ms", "key", "value", "headers"),
        nothing.cast("bigint").alias("number"),
        nothing.cast("bigint").alias("added"),
    )


@contextmanager
def _in_given_parts(spark: SparkSession) -> Iterator[None]:
    """Have Spark cut rows into the parts that it was told, and not as their sizes suggest.

    Else a second attempt could cut them otherwise, and number them otherwise.
    """
    before = str(spark.conf.get(_ADAPTIVE))
    spark.conf.set(_ADAPTIVE, "false")
    try:
        yield
    finally:
        spark.conf.set(_ADAPTIVE, before)
