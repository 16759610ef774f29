"""A job ends when it is asked to, whatever its micro-batch waits for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
import yaml
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.contracts.time import parse_duration_ms
from headrace.spark_jobs.cli.run import _wait
from headrace.spark_jobs.observe.metrics import Metrics
from headrace.spark_jobs.session import SETTINGS

TIMEOUT = "spark.sql.streaming.stopTimeout"


@pytest.fixture
def hasty(spark: SparkSession) -> Iterator[SparkSession]:
    """Stop queries without patience."""
    patience = spark.conf.get(TIMEOUT) or ""
    spark.conf.set(TIMEOUT, "1ms")
    yield spark
    spark.conf.set(TIMEOUT, patience)


class Batch:
    """A micro-batch that begins, and ends when it may."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.begun, self.may_end = Event(), Event()
        self._failure = failure

    def __call__(self, _rows: DataFrame, _number: int) -> None:
        """Wait as a call to Kafka does, which nothing interrupts."""
        self.begun.set()
        self.may_end.wait()
        if self._failure is not None:
            raise self._failure


def started(spark: SparkSession, folder: Path, batch: Batch) -> StreamingQuery:
    """Start a query that is within its first micro-batch."""
    rows = spark.readStream.format("rate").load()
    writer = rows.writeStream.foreachBatch(batch).queryName("waits")
    query = writer.option("checkpointLocation", str(folder)).start()
    batch.begun.wait()
    return query


def test_a_micro_batch_that_waits_for_kafka_is_left(
    hasty: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    batch, stops = Batch(), Event()
    query = started(hasty, tmp_path, batch)
    stops.set()
    try:
        _wait(query, stops, Metrics("waits", lambda: 0.0))
        assert "waits: the micro-batch under way does not end" in caplog.text
    finally:
        # The session's end would wait for it.
        batch.may_end.set()
    query.awaitTermination()


def test_a_query_that_fails_says_so(spark: SparkSession, tmp_path: Path) -> None:
    batch, stops = Batch(ValueError("no")), Event()
    query = started(spark, tmp_path, batch)
    batch.may_end.set()
    with pytest.raises(StreamingQueryException, match="no"):
        _wait(query, stops, Metrics("waits", lambda: 0.0))


def test_a_job_in_a_container_is_not_killed_while_it_stops() -> None:
    compose = Path(__file__).parents[2] / "docker" / "compose.yaml"
    job = yaml.safe_load(compose.read_text("utf-8"))["services"]["priced"]
    # Behind the micro-batch that is left, Java ends too.
    assert parse_duration_ms(job["stop_grace_period"]) > 1.5 * parse_duration_ms(SETTINGS[TIMEOUT])
