"""`python -m headrace.spark_jobs.first_run ARCHIVE FOLDER`: run a small job that loads all classes.

Java archives the classes when it ends. The job joins a stream with versions, with state and a
checkpoint, into a Delta table. Of Kafka's connector, it loads the classes that ask a broker.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

from headrace.spark_jobs.operators.frames import Spread
from headrace.spark_jobs.operators.operate import operate
from headrace.spark_jobs.operators.topology import LookUp, Topic
from headrace.spark_jobs.seams import gateway_of, java_of
from headrace.spark_jobs.session import open_session
from headrace.spark_jobs.versioned.tables import Versioned
from headrace.spark_jobs.write.delta import DeltaSink
from headrace.spark_jobs.write.delta_place import DeltaPlace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NOBODY = "127.0.0.1:9"
_RECORDS = """
    SELECT CAST(id % 2 AS INT) AS input, 'topic' AS topic, 0 AS partition, id AS offset,
        id AS timestamp_ms, CAST('key' AS BINARY) AS key, CAST('value' AS BINARY) AS value,
        CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers
    FROM range(100)
"""


def main() -> None:
    """Run the job, and wait until Java has ended."""
    archive, folder = sys.argv[1], Path(sys.argv[2])
    written = f"-XX:ArchiveClassesAtExit={archive} -Xlog:cds=off -XX:TieredStopAtLevel=1"
    spark = open_session(
        "headrace first run",
        master="local[2]",
        shuffle_partitions=1,
        settings={
            "spark.driver.extraJavaOptions": written,
            "spark.databricks.delta.snapshotPartitions": "1",
        },
        checkpoint=str(folder),
    )
    gateway = gateway_of(spark)
    _run(spark, folder)
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


def _run(spark: SparkSession, folder: Path) -> None:
    spark.sql(_RECORDS).write.parquet(f"{folder}/in")
    schema = spark.read.parquet(f"{folder}/in").schema
    records = spark.readStream.schema(schema).parquet(f"{folder}/in")
    join = LookUp("join", Topic("table", 0, Versioned(1_000)), stream=1, join="left", grace_ms=10)
    sink = DeltaSink("first run", DeltaPlace(None, f"{folder}/table"))

    def write(frame: DataFrame, batch: int) -> None:
        rows = frame.persist()
        timed = rows.withColumn("timestamp", F.timestamp_millis("timestamp_ms"))
        sink.write(timed.select("key", "value", "table_value", "timestamp"), batch)
        rows.groupBy("verdict").count().collect()
        rows.unpersist()

    query = operate(join, records, Spread(tasks=2)).writeStream.foreachBatch(write)
    query = query.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
    query.start().awaitTermination()
    _load_kafka(spark)


def _load_kafka(spark: SparkSession) -> None:
    """Load the classes that read topics; no broker needs to answer."""
    kafka = spark.read.format("kafka").option("kafka.bootstrap.servers", _NOBODY)
    assert kafka.option("subscribe", "none").load().columns
    jvm = java_of(spark)
    settings = jvm.java.util.HashMap()
    bytes_of = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
    for name in ("key.deserializer", "value.deserializer"):
        settings[name] = bytes_of
    settings["bootstrap.servers"] = _NOBODY
    soon = jvm.java.time.Duration.ofMillis(1)
    consumer = jvm.org.apache.kafka.clients.consumer.KafkaConsumer(settings)
    partitions = jvm.java.util.ArrayList()
    partitions.add(jvm.org.apache.kafka.common.TopicPartition("none", 0))
    consumer.assign(partitions)
    consumer.seekToBeginning(partitions)
    consumer.poll(soon)
    consumer.close(soon)
    jvm.org.apache.kafka.clients.admin.AdminClient.create(settings).close(soon)


if __name__ == "__main__":
    main()
