"""Records as files that Spark reads, and a small session to read them with."""

from __future__ import annotations

import random
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)
from pyspark.sql.streaming.readwriter import DataStreamWriter

from headrace.contracts.record import Record
from headrace.spark_jobs.connectors import ICEBERG
from headrace.spark_jobs.jobs.again import Attempts, has_ended, running
from headrace.spark_jobs.session import open_session
from tests.spark.driver import QUICK_JAVA

SCHEMA = (
    "input INT, topic STRING, partition INT, offset BIGINT, timestamp_ms BIGINT, key BINARY,"
    " value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
ARROW = pa.schema(
    [
        ("input", pa.int32()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
BUNDLED_SCHEMA = (
    "verdict STRING, reason STRING, task INT, sequence BIGINT, topic STRING, partition INT,"
    " offset BIGINT, timestamp_ms BIGINT, key BINARY, value BINARY, headers STRING, number BIGINT,"
    " added BIGINT"
)
"""The columns of results that leave in bundles, as Spark writes them."""
Row = tuple[int, Record]
"""A record behind the number of its input."""


def small_session(name: str) -> SparkSession:
    """A session for tests that need neither Kafka nor Delta; Iceberg takes no part in others."""
    return open_session(
        name,
        master="local[2]",
        shuffle_partitions=2,
        settings={
            "spark.ui.enabled": "false",
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": QUICK_JAVA,
            # Compiling an expression costs more than evaluating it over a few rows.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            # On a busy machine a micro-batch may need long to end.
            "spark.sql.streaming.stopTimeout": "0",
        },
        connectors=(ICEBERG,),
    )


def write_rows(folder: Path, rows: list[Row]) -> Path:
    """A file with these rows, in no order that anybody could rely on."""
    shuffled = random.Random(1).sample(rows, len(rows))
    folder.mkdir()
    listed = [{**one._asdict(), "input": side, "headers": _headers(one)} for side, one in shuffled]
    pq.write_table(pa.Table.from_pylist(listed, ARROW), folder / "rows.parquet")
    return folder


def read_rows(spark: SparkSession, folder: Path) -> DataFrame:
    """The rows of a folder, at rest."""
    return spark.read.schema(SCHEMA).parquet(str(folder))


def stream_rows(spark: SparkSession, folder: Path) -> DataFrame:
    """The rows of a folder, as a stream."""
    return spark.readStream.schema(SCHEMA).parquet(str(folder))


def apart(records: DataFrame, inputs: int) -> list[DataFrame]:
    """The records of each input, as a job reads them."""
    return [records.where(F.col("input") == number) for number in range(inputs)]


def collect_stream(results: DataFrame, checkpoint: Path, *columns: str) -> list[tuple[object, ...]]:
    """Run a query over all that is there, and return some columns of what it gives, in order."""
    found: list[tuple[object, ...]] = []

    def take(frame: DataFrame, _batch: int) -> None:
        rows = frame.where("verdict IN ('joined', 'changed')").orderBy("task", "sequence")
        found.extend(
            tuple(bytes(one) if isinstance(one, bytearray) else one for one in row)
            for row in rows.select(*columns).collect()
        )

    run_to_end(results.writeStream.foreachBatch(take), checkpoint)
    return found


def run_to_end(writer: DataStreamWriter, checkpoint: Path) -> None:
    """Run a query over all that is there; a busy machine may have to start it again, as a job's."""
    writer = writer.trigger(availableNow=True).option("checkpointLocation", str(checkpoint))
    attempts = Attempts("test", lambda: -1)
    # The writer's function has nothing to close; a file in memory stands for its output.
    for query in running(attempts, BytesIO, lambda _output: writer.start()):
        has_ended(query)


def _headers(record: Record) -> list[dict[str, object]]:
    return [{"key": name, "value": value} for name, value in record.headers]
