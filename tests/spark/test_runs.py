"""Runs of versions in Spark's store: in a map of their own, which older checkpoints do not have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

from headrace.contracts.record import Record
from headrace.spark_jobs.observe.state import read_state, stored_rows
from headrace.spark_jobs.operators.frames import Spread
from headrace.spark_jobs.operators.operate import operate
from headrace.spark_jobs.operators.processor import ROWS, RUNS, TaskProcessor
from headrace.spark_jobs.operators.rows import NAME_SCHEMA, ROW_SCHEMA, StoredRows
from headrace.spark_jobs.operators.topology import LookUp, Topic
from headrace.spark_jobs.versioned.runs import RUN_VERSIONS_MIN
from headrace.spark_jobs.versioned.table_rows import RUN
from headrace.spark_jobs.versioned.tables import Versioned
from tests.spark.frames import Row, collect_stream, stream_rows, write_rows

TABLE, STREAM = 0, 1
KEYS = 20
EACH = RUN_VERSIONS_MIN // KEYS + 2
"""How many versions each key has: enough for a run, without the last one of each."""
JOIN = LookUp("met", Topic("table", TABLE, Versioned(1 << 40)), stream=STREAM, join="left")


class OlderProcessor(TaskProcessor):
    """A task of the versions that knew no runs: it has one map."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the rows."""
        rows = handle.getMapState(ROWS, NAME_SCHEMA, ROW_SCHEMA)
        self.rows = StoredRows(rows, rows)


def test_versions_that_were_replaced_are_in_a_map_of_their_own(
    spark: SparkSession, tmp_path: Path
) -> None:
    last_ms = EACH - 1
    asked = [_asked(key, last_ms) for key in range(KEYS)]
    assert set(_met(spark, tmp_path, [*_versions(), *asked])) == {b"%d" % last_ms}
    checkpoint = str(tmp_path / "checkpoint")
    reader = spark.read.format("statestore")
    in_maps = {
        name: [
            row.name
            for row in reader.option("stateVarName", name)
            .load(checkpoint)
            .selectExpr("user_map_key.name AS name")
            .collect()
        ]
        for name in (ROWS, RUNS)
    }
    assert in_maps[RUNS]
    assert all(RUN in name for name in in_maps[RUNS])
    assert not any(RUN in name for name in in_maps[ROWS])
    shown = [row.name for row in read_state(spark, checkpoint)]
    assert sorted(shown) == sorted([*in_maps[ROWS], *in_maps[RUNS]])
    late = [_asked(key, 1 + key) for key in range(KEYS)]
    assert _met(spark, tmp_path, late) == [b"%d" % (1 + key) for key in range(KEYS)]


def test_a_checkpoint_of_a_version_without_runs_goes_on_and_gets_some(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = str(tmp_path / "checkpoint")
    with monkeypatch.context() as patch:
        patch.setattr("headrace.spark_jobs.operators.frames.TaskProcessor", OlderProcessor)
        assert _met(spark, tmp_path, [*_versions(), _asked(3, 5)]) == [b"5"]
    names = [row.name for row in stored_rows(spark, checkpoint, 0).collect()]
    assert names
    assert not any(RUN in name for name in names)
    last_ms = EACH - 1
    again = [(TABLE, _record(b"%d" % key, b"last", last_ms)) for key in range(KEYS)]
    assert _met(spark, tmp_path, [*again, _asked(3, last_ms)]) == [b"last"]
    names = [row.name for row in stored_rows(spark, checkpoint, 0).collect()]
    assert any(RUN in name for name in names)
    assert _met(spark, tmp_path, [_asked(3, 5), _asked(3, last_ms)]) == [b"5", b"last"]


def _record(key: bytes, value: bytes | None, timestamp_ms: int) -> Record:
    return Record(key, value, timestamp_ms, (), "", 0, None)


def _versions() -> list[Row]:
    return [
        (TABLE, _record(b"%d" % key, b"%d" % time_ms, time_ms))
        for time_ms in range(EACH)
        for key in range(KEYS)
    ]


def _asked(key: int, time_ms: int) -> Row:
    return STREAM, _record(b"%d" % key, b"", time_ms)


def _met(spark: SparkSession, folder: Path, rows: list[Row]) -> list[Any]:
    """Give the folder's query these rows, and return the values that look-ups meet, in order."""
    read_from = folder / "in"
    read_from.mkdir(exist_ok=True)
    number = len([*read_from.iterdir()])
    first = number * 10_000
    placed = [(side, one._replace(offset=first + at)) for at, (side, one) in enumerate(rows)]
    written = write_rows(folder / f"{number}", placed) / "rows.parquet"
    written.rename(read_from / f"{number}.parquet")
    results = operate(JOIN, stream_rows(spark, read_from), Spread(tasks=1))
    found = collect_stream(results, folder / "checkpoint", "offset", "table_value")
    return [value for _, value in sorted(map(tuple, found))]
