"""Spark reports on a micro-batch that is done again, also where it would end the query over it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.contracts.record import Record
from headrace.spark_jobs.jobs import done_again
from tests.kafka.clients import fresh_name
from tests.kafka.fixtures import SharedKafka


@pytest.mark.long("spark", why="Spark 4.1 alone needs it, and killed drivers show it there")
def test_a_report_behind_a_micro_batch_that_is_done_again_has_the_lag(
    spark: SparkSession, kafka: SharedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = kafka.bootstrap_servers
    topic = kafka.clients.make_topic(fresh_name("again"), 1, {"retention.ms": "-1"})
    kafka.clients.produce(topic, [Record(b"k", b"v", 1, (), topic, 0, None)])
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    records = source.option("startingOffsets", "earliest").option("subscribe", topic).load()
    # The class is there in every Spark, so each of them asks.
    monkeypatch.setattr(done_again, "REAL_TIME_MODE", "java.lang.String")
    dies = True
    written: list[bytes] = []

    def write(frame: DataFrame, _batch: int) -> None:
        assert not dies
        written.extend(row.value for row in frame.collect())

    def started() -> StreamingQuery:
        writer = records.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer = writer.foreachBatch(done_again.reportable(spark, write))
        return writer.trigger(availableNow=True).start()

    with pytest.raises(StreamingQueryException):
        started().awaitTermination()
    dies = False
    query = started()
    query.awaitTermination()
    report = query.recentProgress[0]
    assert report.batchId == 0
    assert report.sources[0].metrics["maxOffsetsBehindLatest"] == "0"
    assert written == [b"v"]
