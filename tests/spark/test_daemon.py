"""Python workers have what they need when they are forked."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.contracts.record import Record
from headrace.spark_jobs import daemon
from headrace.spark_jobs.operators.frames import Spread
from headrace.spark_jobs.operators.operate import operate
from headrace.spark_jobs.operators.topology import LookUp, Topic
from headrace.spark_jobs.versioned.tables import Versioned
from tests.bench.processes import stat_of
from tests.spark.frames import collect_stream, stream_rows, write_rows


def test_a_worker_imports_nothing_that_all_of_them_need(spark: SparkSession) -> None:
    (row,) = spark.range(1).repartition(1).mapInArrow(_state_of_worker, _SCHEMA).collect()
    assert row.imported
    assert row.frozen > 0


_SCHEMA = "imported BOOLEAN, frozen BIGINT"


def _state_of_worker(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        # No import of this module would bring these.
        needed = ("transaction", "task_files")
        state = {
            "imported": all(f"headrace.spark_jobs.write.{name}" in sys.modules for name in needed),
            "frozen": gc.get_freeze_count(),
        }
        yield pa.RecordBatch.from_pylist([state])


def test_workers_with_state_and_without_are_of_one_daemon(
    spark: SparkSession, tmp_path: Path
) -> None:
    look_up = LookUp("priced", Topic("prices", 0, Versioned(60_000)), stream=1, join="left")
    records = stream_rows(
        spark, write_rows(tmp_path / "in", [(1, Record(b"k", b"v", 1, (), "orders", 0, 0))])
    )
    collect_stream(operate(look_up, records, Spread(tasks=1)), tmp_path / "checkpoint", "value")
    assert len(_daemons_below(_java_of(spark))) == 1


def test_java_and_its_workers_are_told_to_keep_little_memory(spark: SparkSession) -> None:
    environment = Path(f"/proc/{_java_of(spark)}/environ")
    variables = environment.read_bytes().split(b"\0")
    assert {b"MALLOC_ARENA_MAX=2", b"ARROW_DEFAULT_MEMORY_POOL=system"} <= {*variables}


def _java_of(spark: SparkSession) -> int:
    # PySpark has no public way to the process that it started.
    java: int = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]  # noqa: SLF001
    return java


def _daemons_below(java: int) -> list[str]:
    running = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]
    commands = []
    for pid in running:
        try:
            if stat_of(pid).parent == java:
                commands.append(Path(f"/proc/{pid}/cmdline").read_text())
        except OSError:
            # It has ended meanwhile.
            continue
    return [command for command in commands if daemon.__name__ in command]
