"""Where a driver is killed while it writes, and the small query that is killed there."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame

from headrace.contracts.record import Record
from headrace.spark_jobs.headers import encode_headers
from headrace.spark_jobs.session import open_session
from headrace.spark_jobs.write.digest import ROW_HASH
from tests.spark.driver import QUICK_JAVA, kill_session

WRITERS = 3
SCHEMA = (
    "target STRING, key BINARY, value BINARY, timestamp_ms BIGINT,"
    " headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
_COLUMNS = [
    ("target", pa.string()),
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("timestamp_ms", pa.int64()),
]
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_IN_A_FILE = pa.schema([*_COLUMNS, ("headers", _HEADERS)])
_ORIGIN = [("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())]
_ON_ITS_WAY = pa.schema([*_COLUMNS, ("headers", pa.string()), (ROW_HASH, pa.int64()), *_ORIGIN])
Moment = Literal["in the middle", "behind"]


class Strike(NamedTuple):
    """When the driver dies: in which micro-batch, and where in it."""

    batch: int
    moment: Moment


def write_batch_file(folder: Path, number: int, records: list[tuple[str, Record]]) -> None:
    """The input of one micro-batch, appearing whole."""
    file = folder / f"{number:03}.parquet"
    folder.mkdir(exist_ok=True)
    rows = [
        _row(topic, one)
        | {"headers": [{"key": name, "value": value} for name, value in one.headers]}
        for topic, one in records
    ]
    table = pa.Table.from_pylist(rows, _IN_A_FILE)
    pq.write_table(table, file.with_suffix(".part"))
    # Spark reads files in the order of their times, which would else be equal now and then.
    os.utime(file.with_suffix(".part"), (1_700_000_000 + number,) * 2)
    file.with_suffix(".part").rename(file)


def record_table(records: list[tuple[str, Record]]) -> pa.RecordBatch:
    """Records as a writer gets them."""
    rows = [
        _row(topic, one)
        | {"headers": encode_headers(one.headers), ROW_HASH: hash((topic, one.key, one[2]))}
        | {"topic": one.topic, "partition": one.partition, "offset": one.offset}
        for topic, one in records
    ]
    return pa.RecordBatch.from_pylist(rows, _ON_ITS_WAY)


def _row(topic: str, one: Record) -> dict[str, Any]:
    return {"target": topic, "key": one.key, "value": one.value, "timestamp_ms": one.timestamp_ms}


_NOTE = (
    *("'' AS topic", "0 AS partition", "0L AS offset"),
    *("'late' AS note", "'' AS reason", "0 AS task", "1L AS number", "1L AS added"),
)


def run_query(
    folder: Path,
    write: Callable[[DataFrame, int], object],
    strike: Strike | None,
    *,
    checkpoint: str = "checkpoint",
    connectors: Sequence[str] = (),
    settings: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Go through the files of a folder, a micro-batch each, and die where the strike says.

    One task runs at a time: in the middle, the first writer has committed and the last not begun.
    """
    # Workers would start whichever Python comes first on the path.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = open_session(
        "strikes",
        master=settings.get("spark.master", "local[1]"),
        shuffle_partitions=WRITERS,
        settings={
            "spark.ui.enabled": "false",
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": QUICK_JAVA,
            "spark.databricks.delta.snapshotPartitions": "1",
            **settings,
        },
        connectors=connectors,
    )
    files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    frame = files.parquet(str(folder / "in")).dropDuplicates(["key", "timestamp_ms"])
    frame = frame.selectExpr("*", *_NOTE)
    driver = os.getpid()

    def each(rows: DataFrame, batch: int) -> None:
        write(_struck(rows, strike, batch, driver), batch)
        if strike == (batch, "behind"):
            kill_session(driver)

    query = frame.writeStream.foreachBatch(each).trigger(availableNow=True)
    query.option("checkpointLocation", str(folder / checkpoint)).start().awaitTermination()
    spark.stop()


def _struck(rows: DataFrame, strike: Strike | None, batch: int, driver: int) -> DataFrame:
    if strike != (batch, "in the middle"):
        return rows

    def pass_on(tables: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        yield from tables
        # The writer behind has taken all rows of its partition by now, and committed none.
        context = TaskContext.get()
        if context is not None and context.partitionId() == 1:
            kill_session(driver)

    return rows.mapInArrow(pass_on, rows.schema)
