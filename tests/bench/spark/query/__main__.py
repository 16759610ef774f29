"""`python -m tests.bench.spark.query WHO FACTS VERSIONS SERVERS FOLDER`: one Spark contestant.

He says "running" when his session is open and "done" when all is written, and is measured between.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

from headrace.contracts.topics import cleaned_topic
from headrace.spark_jobs.jobs.bulk import join_as_of, read_range
from headrace.spark_jobs.operators.frames import Spread
from headrace.spark_jobs.operators.operate import operate
from headrace.spark_jobs.operators.topology import LookUp, Topic
from headrace.spark_jobs.read.source import Source
from headrace.spark_jobs.read.topics import read_cleaned
from headrace.spark_jobs.read.written_by import CleanedTopic
from headrace.spark_jobs.session import open_session
from headrace.spark_jobs.shapes import JOINED
from headrace.spark_jobs.versioned.tables import Versioned
from headrace.spark_jobs.write.aim import Targets
from headrace.spark_jobs.write.kafka import KafkaSink
from headrace.spark_jobs.write.output import KafkaOutput
from tests.bench.spark import native
from tests.bench.spark.topics import PARTITIONS, RETENTION_MS, Size

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

CORES = 2
BATCH_FACTS = 1_000_000
"""So many of them a micro-batch, whatever there are in all; the versions come with the first."""


class Bench:
    """The input of a contestant."""

    def __init__(self, spark: SparkSession, size: Size, servers: str, folder: Path) -> None:
        """`folder` is for the checkpoint and for what comes out."""
        self.spark, self.size, self.servers, self.folder = spark, size, servers, folder

    def versions(self) -> DataFrame:
        """The table's topic, as a stream."""
        topics = [CleanedTopic(0, self.size.versions_topic)]
        return read_cleaned(self.spark, Source(self.servers), topics).records

    def facts(self) -> DataFrame:
        """The stream's topic."""
        source = Source(self.servers, batch_records=BATCH_FACTS)
        return read_cleaned(self.spark, source, [CleanedTopic(1, self.size.facts_topic)]).records

    def to_files(self, rows: DataFrame) -> None:
        """Run a streaming query into Parquet."""
        out = str(self.folder / "out")
        self._run(rows.writeStream.format("parquet").option("path", out))

    def to_topic(self, results: DataFrame) -> None:
        """Run a streaming query into a topic, in transactions."""
        name = f"join-{self.size.facts}"
        sink = KafkaSink(
            name, {"bootstrap.servers": self.servers}, {cleaned_topic(name): PARTITIONS}
        )
        output = KafkaOutput(sink, Targets(name, None), lambda _batch, _written: None)
        self._run(results.writeStream.foreachBatch(output.write))

    def _run(self, writer: DataStreamWriter) -> None:
        checkpoint = str(self.folder / "checkpoint")
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()


def main() -> None:
    """Run the contestant that the command line names."""
    who, facts, versions, servers, folder = sys.argv[1:]
    spark = open_session(
        "bench",
        master=f"local[{CORES}]",
        shuffle_partitions=CORES,
        settings={"spark.ui.enabled": "false", "spark.driver.memory": "3g"},
    )
    print("running", flush=True)
    RUNS[who](Bench(spark, Size(int(facts), int(versions)), servers, Path(folder)))
    print("done", flush=True)
    spark.stop()


def _joined(bench: Bench) -> DataFrame:
    prices = Topic("prices", 0, Versioned(RETENTION_MS))
    join = LookUp("price", prices, stream=1, join="inner")
    return operate(join, bench.versions().unionByName(bench.facts()), Spread())


def _headrace(bench: Bench) -> None:
    rows = _joined(bench).where(F.col("verdict") == JOINED)
    bench.to_files(rows.select("key", "value", "table_value", "timestamp_ms"))


def _headrace_to_kafka(bench: Bench) -> None:
    both = F.concat("value", F.lit(b"|"), "table_value")
    is_joined = F.col("verdict") == JOINED
    value = F.when(is_joined, both).otherwise(F.col("value"))
    bench.to_topic(_joined(bench).withColumn("value", value))


def _bulk(bench: Bench) -> None:
    source = Source(bench.servers)
    stream, table = (
        read_range(bench.spark, source, [CleanedTopic(number, topic)])
        for number, topic in ((1, bench.size.facts_topic), (0, bench.size.versions_topic))
    )
    rows = join_as_of(stream, table).select("key", "value", "table_value", "timestamp_ms")
    rows.write.parquet(str(bench.folder / "out"))


def _with_state(bench: Bench) -> None:
    bench.to_files(native.apply_in_pandas_with_state(bench.versions(), bench.facts()))


def _stream_stream(bench: Bench) -> None:
    bench.to_files(native.stream_stream_join(bench.versions(), bench.facts()))


def _duplicates(bench: Bench) -> None:
    bench.to_files(native.drop_duplicates(bench.facts()))


RUNS: dict[str, Callable[[Bench], None]] = {
    "headrace": _headrace,
    "headrace-kafka": _headrace_to_kafka,
    "bulk": _bulk,
    "with-state": _with_state,
    "stream-stream": _stream_stream,
    "duplicates": _duplicates,
}

if __name__ == "__main__":
    main()
