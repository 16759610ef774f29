"""From frames of records to frames of results: spread over tasks, and handed to the processor.

records    input INT, topic STRING, partition INT, offset BIGINT, timestamp_ms BIGINT,
key BINARY, value BINARY, headers ARRAY<STRUCT<key STRING, value BINARY>>
progress   topic STRING, partition INT, offset BIGINT, progress_ms BIGINT, cleaned_offset BIGINT,
stream_time_ms BIGINT, is_idle BOOLEAN
results    as columns.RESULTS_SCHEMA says, with headers as in records
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

from headrace.contracts.errors import StateOfOtherOptions
from headrace.spark_jobs.folder import literal
from headrace.spark_jobs.headers import packed_headers, unpacked_headers
from headrace.spark_jobs.operators.arriving import marked
from headrace.spark_jobs.operators.bundles import BUNDLES_SCHEMA, bundles_of, bundles_of_rows
from headrace.spark_jobs.operators.columns import RECORD, RESULTS_SCHEMA
from headrace.spark_jobs.operators.hot_keys import HotKeys, listed
from headrace.spark_jobs.operators.options import options_of
from headrace.spark_jobs.operators.positions import Positions
from headrace.spark_jobs.operators.processor import TaskProcessor
from headrace.spark_jobs.operators.salts import salted
from headrace.spark_jobs.operators.stamp import STEP, input_option
from headrace.spark_jobs.operators.topology import Topology
from headrace.spark_jobs.shapes import CARRIED
from headrace.spark_jobs.versioned.progress import Expected
from headrace.spark_jobs.versioned.spread import TASKS_BY_KEY, tasks_of
from headrace.spark_jobs.versioned.state import BUCKETS_DEFAULT

if TYPE_CHECKING:
    from pyspark.sql import Column, GroupedData, SparkSession

    from headrace.spark_jobs.operators.arriving import Checks
    from headrace.spark_jobs.operators.leaving import Leaving
    from headrace.spark_jobs.operators.sending import Sending
    from headrace.spark_jobs.versioned.records import Integers

TASKS_DEFAULT = 16
ON_FAILURE, STOP = "spark.headrace.onFailure", "stop"
"""The setting of a session by which a query ends at the first record on which a step fails."""

MOVED_SCHEMA = "operator string, task int, name string, row binary"
"""The columns of state that was moved."""
MOVED = "spark.headrace.moved"
"""The setting of a session that names the folder with the state that new tasks begin with."""
TAKEN = "spark.headrace.moved.taken"
"""The setting that names the operators that have begun with their state, as a list in JSON."""

_STEPS = re.compile(rf"(?:^| ){STEP}(.+?):\w+(?= {STEP}|$)")
_AS_IT_WAS = (
    "run the job as it was, with the new checkpoint and number of tasks, or start it with another"
    " new checkpoint"
)


@dataclass(frozen=True)
class Spread:
    """Assigns rows to tasks; fixed for the life of a checkpoint.

    By partition, all inputs must be partitioned alike: stream time and retention are then those of
    a Kafka Streams task. By key, the buckets of hashed keys are the tasks.
    """

    by: Literal["key", "partition"] = "key"
    tasks: int = TASKS_DEFAULT
    """How many tasks there are, if they are spread by key."""
    buckets: int = BUCKETS_DEFAULT
    """Rows into which a task cuts each of its tables."""
    hot_keys: frozenset[bytes] = frozenset()
    """Keys whose stream's records are spread over all tasks, each of which has the table's rows."""

    def options(self) -> dict[str, int]:
        """Return the options that a checkpoint remembers, since they decide where its state is."""
        if self.by == "partition":
            return {"option:tasks:by-partition": 1}
        return {TASKS_BY_KEY: self.tasks, **listed(self.hot_keys)}

    @property
    def in_one_task(self) -> bool:
        """Whether all keys live in one task, so that no row ever goes to another."""
        return self.by == "key" and self.tasks == 1

    def task(self) -> Column:
        """Return the task of a row that has a key and a partition."""
        if self.by == "partition":
            return F.col("partition")
        # A record without a key meets nothing, so any task will do.
        hashed = F.pmod(F.xxhash64("key"), F.lit(self.tasks))
        loose = F.pmod(F.col("partition"), F.lit(self.tasks))
        return F.when(F.col("key").isNull(), loose).otherwise(hashed).cast("int")

    def tasks_of(self, keys: Sequence[bytes | None], partitions: Integers) -> Integers:
        """Return the task of each message between stages, as `task` says it of a row of Spark's."""
        present = [key for key in keys if key is not None]
        if len(present) == len(keys):
            return tasks_of(present, len(present), self.tasks)
        tasks = partitions % self.tasks
        has_key = np.fromiter((key is not None for key in keys), np.bool_, len(keys))
        tasks[has_key] = tasks_of(present, len(present), self.tasks)
        return tasks

    def tasks_waiting_for(self, partition: int) -> Sequence[int]:
        """Return the tasks that need the progress of this partition."""
        return (partition,) if self.by == "partition" else range(self.tasks)


@dataclass(frozen=True)
class InputProgress:
    """The progress of the inputs, and how many partitions of each input have it.

    An input with zero partitions has no progress; the highest time of its own records stands for
    it.
    """

    rows: DataFrame | None = None
    """The rows of progress topics; None without any."""
    partitions: Mapping[int, int] = field(default_factory=dict)
    topics: Mapping[int, str] = field(default_factory=dict)
    """The topic of each input."""
    begins: Mapping[str, int] = field(default_factory=dict)
    """The first offset that is still there, by `place_of`; tasks do not wait for earlier ones."""

    def options(self) -> dict[str, int]:
        """Return the options that a checkpoint remembers."""
        return {input_option(number, topic): 1 for number, topic in self.topics.items()}

    def expected(self, spread: Spread) -> Expected:
        """Return the partitions whose progress the tasks expect."""
        return Expected(self.partitions, self.topics, by_partition=spread.by == "partition")


def record_rows(records: DataFrame, spread: Spread, hot: HotKeys | None = None) -> DataFrame:
    """Make rows of records for `bundled`.

    A column `arrival`, if there is one, is their order; `aside` is the verdict that a row has had.

    Spark writes each column of each row to Python, so these have none that follows from another.
    """
    own = [F.col(name) for name in ("aside", "arrival") if name in records.columns]
    task = spread.task()
    if hot is not None:
        is_hot = (F.col("input") == hot.stream) & F.col("key").isin(*sorted(hot.keys))
        # By where it stands, a record goes to the same task when its micro-batch is repeated.
        of_place = F.pmod(F.xxhash64("partition", "offset"), F.lit(spread.tasks)).cast("int")
        task = F.when(is_hot, of_place).otherwise(task)
    return records.select(
        task.alias("task"),
        "input",
        *CARRIED,
        packed_headers(),
        *own,
    )


def bundled(
    rows: DataFrame,
    tasks_waiting_for: Callable[[int], Iterable[int]] | None = None,
    hot: HotKeys | None = None,
    checks: Checks = MappingProxyType({}),
) -> DataFrame:
    """Bundle rows of records by task; say how far they go to the tasks that wait for a partition.

    A table's record of a hot key goes to all tasks. `checks` are by input.
    """
    # A proxy cannot be sent to workers.
    checks = dict(checks)

    def bundle(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        positions = Positions()
        for batch in batches:
            placed = _placed(marked(batch, checks))
            if tasks_waiting_for is not None:
                # The time of a dead record is no progress.
                positions.note(placed)
            yield from bundles_of(placed)
            if hot is not None:
                for copies in hot.copies_of(placed):
                    yield from bundles_of(copies)
        if tasks_waiting_for is not None:
            yield from bundles_of_rows(positions.rows(tasks_waiting_for))

    return rows.mapInArrow(bundle, BUNDLES_SCHEMA)


def _placed(records: pa.RecordBatch) -> pa.RecordBatch:
    """Add the kind of rows of records, and their place in the lane of their partition."""
    kinds = pa.repeat(pa.scalar(RECORD, pa.int32()), records.num_rows)
    placed = (
        records.append_column("kind", kinds)
        .append_column("lane", records["partition"])
        .append_column("place", records["offset"])
    )
    if "aside" in records.schema.names:
        return placed
    return placed.append_column("aside", pa.nulls(records.num_rows, pa.string()))


def process(
    bundles: list[DataFrame],
    topology_of: Callable[[int], Topology],
    spread: Spread,
    progress: InputProgress | None = None,
    options: Mapping[str, int] = MappingProxyType({}),
    sending: Sending | Leaving | None = None,
) -> DataFrame:
    """Run bundles of rows through the processor; headers are still text.

    `options` are remembered in a checkpoint beside those of the topology and the spread. With
    `sending` the results are bundles for another processor or for a sink.
    """
    progress = progress or InputProgress()
    together = reduce(DataFrame.unionByName, bundles)
    spark = together.sparkSession
    stops = spark.conf.get(ON_FAILURE, None) == STOP
    processor = TaskProcessor(
        topology_of,
        progress.expected(spread),
        progress.begins,
        {**spread.options(), **options},
        spread.buckets,
        stops=stops,
    )
    processor.sending = sending
    grouped = grouped_by_task(together, spread)
    moved = spark.conf.get(MOVED, None)
    begins = None
    if moved is not None:
        begins = grouped_by_task(rows_moved_to(spark, moved, topology_of(0)), spread)
    schema = RESULTS_SCHEMA if sending is None else BUNDLES_SCHEMA
    return grouped.transformWithStateInPandas(
        processor, schema, "Append", "None", initialState=begins
    )


def grouped_by_task(rows: DataFrame, spread: Spread) -> GroupedData:
    """Group rows of tasks; by partition nothing says before how many tasks there are."""
    if spread.by == "partition":
        return rows.groupBy("task")
    rows, columns = salted(rows, spread.tasks)
    return rows.groupBy(*columns)


def operator_of(names: Iterable[str]) -> str:
    """Return the name of an operator by the names of its options: it is made of its steps."""
    return " ".join(sorted(name for name in names if name.startswith(STEP)))


def rows_moved_to(spark: SparkSession, folder: str, topology: Topology) -> DataFrame:
    """Return the rows of an operator that were moved; refuse one without any."""
    operator = operator_of(options_of(topology))
    moved = spark.read.schema(MOVED_SCHEMA).parquet(literal(folder))
    own = moved.where(F.col("operator") == operator)
    if own.isEmpty():
        message = f"the checkpoint that was moved has no state of `{topology.name}`; {_AS_IT_WAS}"
        raise StateOfOtherOptions(message)
    taken = json.loads(spark.conf.get(TAKEN, None) or "[]")
    spark.conf.set(TAKEN, json.dumps([*taken, operator]))
    return own.select("task", "name", "row")


def refuse_rows_left(spark: SparkSession, folder: str) -> None:
    """Refuse rows that were moved and that no operator has begun with: they would be lost."""
    taken = json.loads(spark.conf.get(TAKEN, None) or "[]")
    moved = spark.read.schema(MOVED_SCHEMA).parquet(literal(folder))
    left = moved.where(~F.col("operator").isin(taken)).select("operator").distinct().collect()
    if left:
        operator = min(row.operator for row in left)
        steps = " and ".join(f"`{step}`" for step in _STEPS.findall(operator))
        message = (
            f"the checkpoint that was moved has state of {steps}, with which no step of the job"
            f" goes on; {_AS_IT_WAS}"
        )
        raise StateOfOtherOptions(message)


def with_headers(results: DataFrame) -> DataFrame:
    """Return results with headers as Kafka's source and sink have them."""
    return results.withColumn("headers", unpacked_headers())
