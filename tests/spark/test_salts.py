"""Each of Spark's partitions has as many tasks as any other, in checkpoints that began so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

from headrace.spark_jobs.jobs.orders_prices import Config
from headrace.spark_jobs.jobs.stamp import Stamp
from headrace.spark_jobs.jobs.tasks import AT_A_TIME, TasksNote
from headrace.spark_jobs.observe.state import stored_rows
from headrace.spark_jobs.operators.frames import Spread
from headrace.spark_jobs.operators.operate import operate
from headrace.spark_jobs.operators.processor import ROWS
from headrace.spark_jobs.operators.salts import SALTS, salted, salts_of
from headrace.spark_jobs.operators.topology import FilterStep, Topic
from headrace.spark_jobs.versioned.tables import Plain
from tests.runtime.sidecar import record
from tests.spark.frames import Row, collect_stream, stream_rows, write_rows

PARTITIONS = 2
"""Of the session's shuffles."""
TASKS = 6
TABLE = FilterStep("kept", Topic("read", 0, Plain()), lambda _key, _value: True)


@contextmanager
def salts(spark: SparkSession, partitions: int | None) -> Iterator[None]:
    """Let tasks have salts for so many partitions, or none."""
    if partitions is not None:
        spark.conf.set(SALTS, str(partitions))
    try:
        yield
    finally:
        spark.conf.unset(SALTS)


def changed(spark: SparkSession, folder: Path, name: str, *values: bytes) -> list[Any]:
    """Give twenty keys each of these values; return the changes that the folder's query makes."""
    rows: list[Row] = [
        (0, record(b"k%d" % key, value, 1_000 + place))
        for place, value in enumerate(values)
        for key in range(20)
    ]
    placed = [(side, one._replace(offset=at)) for at, (side, one) in enumerate(rows)]
    read_from = folder / "in"
    read_from.mkdir(exist_ok=True)
    written = write_rows(folder / name, placed) / "rows.parquet"
    written.rename(read_from / f"{name}.parquet")
    read = stream_rows(spark, read_from)
    results = operate(TABLE, read, Spread(tasks=TASKS))
    return collect_stream(results, folder / "checkpoint", "key", "value")


@pytest.mark.parametrize(
    ("tasks", "partitions"), [(4, 4), (16, 4), (7, 3), (2, 5), (1, 1), (300, 7)]
)
def test_tasks_fall_into_partitions_in_turn(
    spark: SparkSession, tasks: int, partitions: int
) -> None:
    numbers = spark.range(tasks).select(F.col("id").cast("int").alias("task"))
    with salts(spark, partitions):
        rows, names = salted(numbers, tasks)
    placed = rows.repartition(partitions, *names).withColumn("place", F.spark_partition_id())
    found = {row["task"]: row["place"] for row in placed.collect()}
    assert found == {task: task % partitions for task in range(tasks)}


def test_a_salt_is_the_same_however_many_tasks_there_are() -> None:
    assert salts_of(100, 7)[:33].tolist() == salts_of(33, 7).tolist()


def test_the_state_of_a_task_lies_in_its_partition(spark: SparkSession, tmp_path: Path) -> None:
    with salts(spark, PARTITIONS):
        assert len(changed(spark, tmp_path, "first", b"1", b"2")) == 40
    reader = spark.read.format("statestore").option("stateVarName", ROWS)
    state = reader.load(str(tmp_path / "checkpoint"))
    places = state.select("key.task", "partition_id").distinct().collect()
    assert {row["task"]: row["partition_id"] for row in places} == {
        task: task % PARTITIONS for task in range(TASKS)
    }
    listed = stored_rows(spark, str(tmp_path / "checkpoint"), 0).select("task").distinct()
    assert {row["task"] for row in listed.collect()} == {*range(TASKS)}


@pytest.mark.parametrize("begins_with_salts", [True, False])
def test_state_with_and_without_salts_is_never_taken_for_none(
    spark: SparkSession, tmp_path: Path, *, begins_with_salts: bool
) -> None:
    before, now = (PARTITIONS, None) if begins_with_salts else (None, PARTITIONS)
    with salts(spark, before):
        changed(spark, tmp_path, "first", b"1")
    with salts(spark, now), pytest.raises(StreamingQueryException, match=r"(?i)key.schema"):
        changed(spark, tmp_path, "second", b"2")


def job(checkpoint: Path, **said: object) -> Config:
    """A job's file that says this."""
    inputs = {name: {"topic": name} for name in ("prices", "orders")}
    rest = {"job": "orders-prices", "name": "it", "servers": "here:1", "retention": "1h"}
    sink: dict[str, object] = {"console": {}}
    named = {"checkpoint": str(checkpoint), "inputs": inputs, "sink": sink, **rest, **said}
    return Config.model_validate(named)


def settled(spark: SparkSession, config: Config) -> tuple[int, str | None]:
    """The tasks with which a job starts, and for how many partitions they have salts."""
    note = TasksNote(spark, config.checkpoint)
    tasks = note.settled(config).tasks
    note.begin()
    partitions = spark.conf.get(SALTS, None)
    note.go_on()
    assert spark.conf.get(SALTS, None) is None
    return tasks, partitions


def test_a_job_has_two_tasks_for_each_that_runs_at_a_time(tmp_path: Path) -> None:
    assert job(tmp_path).tasks == 8
    assert job(tmp_path, **{"shuffle-partitions": 9}).tasks == 18
    assert job(tmp_path, tasks=3).tasks == 3


def test_a_checkpoint_keeps_its_tasks_and_their_partitions(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert settled(spark, job(tmp_path, **{"shuffle-partitions": 4})) == (8, "4")
    # No micro-batch has begun, so the job's file still says it.
    assert settled(spark, job(tmp_path, **{"shuffle-partitions": 3})) == (6, "3")
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").touch()
    assert settled(spark, job(tmp_path)) == (6, "3")
    # The state says that it has another number, and the job is refused there.
    assert settled(spark, job(tmp_path, tasks=5)) == (5, "3")


def test_a_new_checkpoint_has_no_more_partitions_than_cores(
    spark: SparkSession, tmp_path: Path
) -> None:
    cores = spark.sparkContext.defaultParallelism
    assert cores < 4, "this session has all that a job asks for"
    assert settled(spark, job(tmp_path)) == (8, str(cores))
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").touch()
    # A checkpoint keeps what it has.
    assert settled(spark, job(tmp_path, **{"shuffle-partitions": 4})) == (8, str(cores))


def test_a_query_is_planned_for_the_partitions_of_its_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    before = spark.conf.get(AT_A_TIME)
    note = TasksNote(spark, str(tmp_path))
    note.settled(job(tmp_path, **{"shuffle-partitions": 7}))
    note.begin()
    assert spark.conf.get(AT_A_TIME) == "7"
    note.go_on()
    assert spark.conf.get(AT_A_TIME) == before


def test_a_checkpoint_of_an_earlier_version_has_no_salts(
    spark: SparkSession, tmp_path: Path
) -> None:
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "0").touch()
    assert settled(spark, job(tmp_path)) == (16, None)
    Stamp(spark, str(tmp_path)).put({"tasks": 32})
    assert settled(spark, job(tmp_path)) == (32, None)
