"""Rows that leave to Delta, Iceberg and Parquet: once, whenever the driver dies."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

from headrace.contracts.record import Record
from headrace.spark_jobs.connectors import connectors_for
from headrace.spark_jobs.write.delta import DeltaSink
from headrace.spark_jobs.write.delta_place import DeltaPlace
from headrace.spark_jobs.write.iceberg import IcebergSink
from headrace.spark_jobs.write.iceberg_place import IcebergPlace
from headrace.spark_jobs.write.output import Sink
from headrace.spark_jobs.write.parquet import ParquetSink
from tests.spark.driver import KILLED, Driver
from tests.spark.strikes import Strike, run_query, write_batch_file
from tests.spark.tables import live_files, live_iceberg_files

BATCHES = 3
RECORDS = 40


def write_all(folder: Path, strike: Strike | None) -> None:
    """The life of one driver; the one that reaches the end reads what there is, and is refused."""
    delta, parquet = DeltaPlace(None, str(folder / "delta")), str(folder / "parquet")
    iceberg = IcebergPlace(None, str(folder / "iceberg"))

    def sinks() -> tuple[Sink, ...]:
        tables = DeltaSink("query", delta), IcebergSink("query", iceberg)
        return *tables, ParquetSink("query", parquet)

    def rows_of(frame: DataFrame) -> DataFrame:
        time = F.timestamp_millis("timestamp_ms").alias("timestamp")
        return frame.select("key", "value", "timestamp_ms", time)

    def write_all_tables(checkpoint: str, strike: Strike | None) -> None:
        tables = sinks()

        def write(frame: DataFrame, batch: int) -> None:
            for sink in tables:
                sink.write(rows_of(frame), batch)

        connectors = connectors_for(iceberg=True)
        run_query(folder, write, strike, checkpoint=checkpoint, connectors=connectors)

    write_all_tables("checkpoint", strike)
    refusals: list[str] = []
    for refused in sinks():

        def refuse(frame: DataFrame, batch: int, sink: Sink = refused) -> None:
            sink.write(rows_of(frame), batch)

        try:
            run_query(folder, refuse, None, checkpoint=f"new-{len(refusals)}")
        except Exception as error:  # noqa: BLE001 - Spark wraps what a batch raised
            refusals.append(str(error))
    (folder / "refusals.json").write_text(json.dumps(refusals))


@pytest.mark.long("drivers", why="drivers are killed")
def test_every_row_is_written_once_whenever_the_driver_dies(tmp_path: Path) -> None:
    expected = []
    for number in range(BATCHES):
        records = [
            Record(b"k%d" % one, None if one % 5 == 0 else b"v", 1_000 * number + one, (), "", 0, 0)
            for one in range(RECORDS)
        ]
        expected += [(one.key, one.value, one.timestamp_ms) for one in records]
        write_batch_file(tmp_path / "in", number, [("unused", one) for one in records])
    # The files of a driver that is killed while Delta makes the table.
    (tmp_path / "delta" / "_delta_log" / "_staged_commits").mkdir(parents=True)

    for strike in (Strike(1, "behind"), None):
        driver = Driver(tmp_path / f"{strike}.log", write_all, tmp_path, strike)
        assert driver.wait() == (KILLED if strike else 0), driver.log

    by_time = sorted(expected, key=lambda row: row[2])
    assert _rows(live_files(tmp_path / "delta")) == by_time
    assert _rows(live_iceberg_files(tmp_path / "iceberg")) == by_time
    assert _rows(list((tmp_path / "parquet").glob("checkpoint=*/batch=*/*.parquet"))) == by_time
    refusals = json.loads((tmp_path / "refusals.json").read_text())
    assert ["with another checkpoint" in refusal for refusal in refusals] == [True] * 3


def _rows(files: list[Path]) -> list[tuple[bytes, bytes | None, int]]:
    rows = [
        (row["key"], row["value"], row["timestamp_ms"])
        for file in files
        for row in pq.ParquetFile(file).read().to_pylist()
    ]
    return sorted(rows, key=lambda row: row[2])
