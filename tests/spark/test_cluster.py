"""Executors that die, tasks that are tried again, and copies of slow ones: each row leaves once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

from headrace.contracts.record import Record
from headrace.contracts.topics import cleaned_topic
from headrace.spark_jobs.connectors import CONNECTORS
from headrace.spark_jobs.write import kafka as write_kafka
from headrace.spark_jobs.write.delta import DeltaSink
from headrace.spark_jobs.write.delta_place import DeltaPlace
from headrace.spark_jobs.write.kafka import KafkaSink
from tests.architecture.source import ROOT
from tests.kafka.clients import fresh_name
from tests.kafka.fixtures import SharedKafka
from tests.spark.driver import WITHIN_S, Driver
from tests.spark.strikes import run_query, write_batch_file
from tests.spark.tables import live_rows

pytestmark = pytest.mark.long("drivers", why="executors are killed, and tasks copied")

BATCHES = 2
RECORDS = 200
SPOILT = 0
"""The micro-batch to which all of it happens; the one behind it must go on from there."""
_COPY_WITHIN_S = 300.0
SETTINGS = {
    "spark.master": "local-cluster[2,1,1024]",
    # An executor runs in a folder of its own, from which nobody can import this test.
    "spark.executorEnv.PYTHONPATH": str(ROOT),
    "spark.speculation": "true",
    "spark.speculation.efficiency.enabled": "false",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "0ms",
}


def write_all(servers: str, topic: str, folder: Path) -> None:
    """The life of one driver, whose tasks meet with everything that a cluster does to them."""
    # Tasks write themselves, or nothing of theirs could be there twice.
    write_kafka.HANDED_BYTES_MAX = 0
    kafka = KafkaSink(topic, {"bootstrap.servers": servers}, {cleaned_topic(topic): 2})
    delta = DeltaSink(topic, DeltaPlace(None, str(folder / "delta")))

    def write(frame: DataFrame, batch: int) -> None:
        rows = frame.mapInArrow(_spoilt(folder, batch), frame.schema).persist()
        kafka.write(rows, batch)
        timed = rows.withColumn("timestamp", F.timestamp_millis("timestamp_ms"))
        delta.write(timed.select("key", "value", "timestamp_ms", "timestamp"), batch)
        rows.unpersist()

    run_query(folder, write, None, connectors=CONNECTORS, settings=SETTINGS)


def _spoilt(folder: Path, batch: int):  # type: ignore[no-untyped-def] # noqa: ANN202 (for mapInArrow)
    def pass_on(tables: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        place = batch, context.partitionId()
        yield from tables
        # Only here Spark has given all rows, and the writer has none of them committed.
        if place == (SPOILT, 1) and _first(folder / "killed"):
            os.kill(_executor(), signal.SIGKILL)
        if place == (SPOILT, 0) and _first(folder / "failed"):
            message = "a task that is tried again"
            raise RuntimeError(message)
        if place == (SPOILT, 2):
            if context.attemptNumber() == 0:
                _wait_for(folder / "copied")
            else:
                _first(folder / "copied")

    return pass_on


def _first(flag: Path) -> bool:
    """Whether nobody was here before."""
    try:
        flag.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _executor() -> int:
    """The process that started the one from which this one was forked."""
    status = Path(f"/proc/{os.getppid()}/status").read_text("utf-8")
    (parent,) = [line for line in status.splitlines() if line.startswith("PPid:")]
    return int(parent.split()[1])


def _wait_for(flag: Path) -> None:
    give_up_at = time.monotonic() + _COPY_WITHIN_S
    while not flag.exists():
        assert time.monotonic() < give_up_at, "Spark ran no copy of this task"
        time.sleep(0.05)


def test_every_record_leaves_once_whatever_becomes_of_tasks(
    kafka: SharedKafka, tmp_path: Path
) -> None:
    topic = fresh_name("cluster")
    expected = []
    for number in range(BATCHES):
        records = [
            Record(b"k%d" % one, b"v%d" % number, 1_000 * number + one + 1, (), "", 0, 0)
            for one in range(RECORDS)
        ]
        expected += [(one.key, one.value, one.timestamp_ms) for one in records]
        write_batch_file(tmp_path / "in", number, [(topic, one) for one in records])

    driver = Driver(tmp_path / "driver.log", write_all, kafka.bootstrap_servers, topic, tmp_path)
    assert driver.wait(2 * WITHIN_S) == 0, driver.log
    for flag in ("killed", "failed", "copied"):
        assert (tmp_path / flag).exists(), flag
    written = kafka.clients.consume_all(topic)
    assert sorted((one.key, one.value, one.timestamp_ms) for one in written) == sorted(expected)
    rows = live_rows(tmp_path / "delta")
    assert sorted((row["key"], row["value"], row["timestamp_ms"]) for row in rows) == sorted(
        expected
    )
