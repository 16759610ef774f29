"""orders-prices whose driver dies in its first micro-batch, and with code that was changed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

from headrace.spark_jobs.cli.job_file import load_job
from headrace.spark_jobs.connectors import connectors_for
from headrace.spark_jobs.jobs import orders_prices, run
from headrace.spark_jobs.jobs.again import has_ended
from headrace.spark_jobs.jobs.inputs import Inputs
from headrace.spark_jobs.jobs.orders_prices import VALUES, Config, Row
from headrace.spark_jobs.operators.leaving import Leaving
from headrace.spark_jobs.session import open_session
from headrace.spark_jobs.shapes import JOINED
from headrace.spark_jobs.write import kafka as write_kafka
from headrace.spark_jobs.write.delta import DeltaSink
from headrace.spark_jobs.write.iceberg import IcebergSink
from headrace.spark_jobs.write.kafka import Written
from headrace.spark_jobs.write.kept import KeptWriter
from headrace.spark_jobs.write.parquet import ParquetSink
from headrace.spark_jobs.write.where_made import Words, Writer
from tests.spark.driver import QUICK_JAVA, dying_behind, kill_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["VALUES", "Config", "Row", "transform"]

Moment = Literal["between writers", "behind the table"]
CLOSED = "the driver closes its producer"
_STRIKE, _CODE = "HEADRACE_TEST_STRIKE", "HEADRACE_TEST_CODE"
SHUFFLE_PARTITIONS = 2


def transform(inputs: Inputs, config: Config) -> DataFrame:
    """Join as it does, and kill the driver when it has the rows of the last partition."""
    if os.environ.get(_CODE):
        results = orders_prices.transform(inputs, config)
        return results.where((F.col("verdict") != JOINED) | (F.col("offset") % 2 == 1))
    leaving, driver = inputs.leaving, os.getpid()
    if os.environ.get(_STRIKE) != "between writers" or leaving is None:
        return orders_prices.transform(inputs, config)
    if leaving.writer is not None:
        leaving = Leaving(_Deadly(leaving.writer, driver))
        return orders_prices.transform(replace(inputs, leaving=leaving), config)
    results = orders_prices.transform(inputs, config)

    def pass_on(tables: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        yield from tables
        _strike(driver)

    return results.mapInArrow(pass_on, results.schema)


class _Deadly(NamedTuple):
    """Writes as another writer does, but for the last partition."""

    writer: Writer
    driver: int

    @property
    def fields(self) -> pa.StructType | None:
        return self.writer.fields

    def write(self, results: Iterable[pa.RecordBatch], words: Words) -> None:
        _strike(self.driver)
        self.writer.write(results, words)


def _strike(driver: int) -> None:
    """Kill the driver from the last of the tasks, of which one runs at a time.

    The first writer has committed, and this one has not.
    """
    context = TaskContext.get()
    if context is not None and context.partitionId() == SHUFFLE_PARTITIONS - 1:
        kill_session(driver)


def run_struck(file: Path, strike: Moment | None = None, *, changed_code: bool = False) -> None:
    """The life of one driver, one task at a time, until it has read all or is struck."""
    os.environ.update({_STRIKE: strike or "", _CODE: "yes" if changed_code else ""})
    strikes = pytest.MonkeyPatch()
    # The job has a module of its own, and leaves as the shipped one unless it looks at its rows.
    strikes.setattr(run, "leaves_bundled", lambda _job, _config: not changed_code)
    if strike == "behind the table":
        for maker in (ParquetSink, DeltaSink):
            strikes.setattr(maker, "write_made", dying_behind(maker.write_made))
        for sink in (DeltaSink, IcebergSink):
            strikes.setattr(sink, "write_noted", dying_behind(sink.write_noted))
    write_kafka.KeptWriter = _Told  # type: ignore[attr-defined]
    if strike == "between writers":
        # The driver would write for both writers at once.
        write_kafka.HANDED_BYTES_MAX = 0
    job, config = load_job(file)
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": QUICK_JAVA,
        "spark.databricks.delta.snapshotPartitions": "1",
    }
    spark = open_session(
        config.name,
        master="local[1]",
        shuffle_partitions=config.shuffle_partitions,
        settings=settings,
        connectors=connectors_for(iceberg=config.sink.iceberg is not None),
    )
    for query in run.queries(spark, job, config, once=True, note=_tell):
        has_ended(query)
    spark.stop()


class _Told(KeptWriter):
    def close(self) -> None:
        if self._producer is not None:
            print(CLOSED, flush=True)
        super().close()


def _tell(batch_id: int, written: Written) -> None:
    print("wrote", batch_id, written.records, written.replayed, flush=True)
