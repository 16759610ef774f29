"""Progress that is seen before the records it speaks of: nothing is joined too early."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from headrace.contracts.record import Record
from headrace.spark_jobs.operators.frames import InputProgress, Spread
from headrace.spark_jobs.operators.operate import operate
from headrace.spark_jobs.operators.topology import AggregateStep, LookUp, Step, Topic
from headrace.spark_jobs.versioned.tables import Versioned
from headrace.spark_jobs.versioned.totals import Aggregation
from tests.spark.frames import Row, collect_stream, stream_rows, write_rows

PRICES, ORDERS = 0, 1
TOPICS = ("prices", "orders")
KEYS = (b"a", b"b", b"c", b"d", b"e")
"""Enough of them to live in several tasks."""
PROGRESS_SCHEMA = (
    "topic STRING, partition INT, offset BIGINT, progress_ms BIGINT, cleaned_offset BIGINT"
)
_ARROW = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("progress_ms", pa.int64()),
        ("cleaned_offset", pa.int64()),
    ]
)


class Inputs:
    """Two topics of one partition each, of which more and more can be seen."""

    def __init__(self, spark: SparkSession, folder: Path, table: Step) -> None:
        self._spark = spark
        self._folder = folder
        self._table = table
        self._seen = 0
        for name in ("records", "progress"):
            (folder / name).mkdir()

    def see(self, records: list[Row], progress: list[tuple[int, int, int | None]]) -> None:
        """These records, and rows of progress: input, time, and the record they name."""
        self._seen += 1
        name = f"{self._seen}.parquet"
        if records:
            made = write_rows(self._folder / str(self._seen), records)
            (made / "rows.parquet").rename(self._folder / "records" / name)
        told = [(TOPICS[number], 0, self._seen, *row) for number, *row in progress]
        if told:
            rows = [dict(zip(_ARROW.names, row, strict=True)) for row in told]
            pq.write_table(pa.Table.from_pylist(rows, _ARROW), self._folder / "progress" / name)

    def joined(self) -> list[tuple[object, ...]]:
        """Start the query from its checkpoint, and return the rows that it joins."""
        records = stream_rows(self._spark, self._folder / "records")
        reader = self._spark.readStream.schema(PROGRESS_SCHEMA)
        progress = reader.parquet(str(self._folder / "progress"))
        join = LookUp("join", self._table, stream=ORDERS, join="left", release="progress")
        of_inputs = InputProgress(progress, {PRICES: 1, ORDERS: 1}, dict(enumerate(TOPICS)))
        results = operate(join, records, Spread(tasks=3), of_inputs)
        found = collect_stream(results, self._folder / "checkpoint", "key", "value", "table_value")
        return sorted(found)


def _row(number: int, offset: int, key: bytes, time_ms: int, value: bytes) -> Row:
    return number, Record(key, value, time_ms, (), TOPICS[number], 0, offset)


def _rows(number: int, first: int, time_ms: int, value: bytes) -> list[Row]:
    """A record of each key."""
    return [_row(number, first + at, key, time_ms, value) for at, key in enumerate(KEYS)]


def test_records_that_progress_names_are_read_before_it_counts(
    spark: SparkSession, tmp_path: Path
) -> None:
    inputs = Inputs(spark, tmp_path, Topic("prices", PRICES, Versioned(60_000)))
    orders, early = _rows(ORDERS, 0, 10, b"order"), _rows(PRICES, 0, 1, b"old")
    late = _rows(PRICES, len(KEYS), 9, b"new")
    last = 2 * len(KEYS) - 1
    inputs.see([*orders, *early], [(ORDERS, 11, len(KEYS) - 1), (PRICES, 11, last)])
    assert inputs.joined() == [], "the rows of the prices are seen, and their records are not"
    inputs.see(late[:-1], [])
    assert inputs.joined() == [], "another task's record is still missing"
    inputs.see(late[-1:], [(ORDERS, 12, len(KEYS) - 1)])
    assert inputs.joined() == [(key, b"order", b"new") for key in KEYS]


@pytest.mark.long("spark", why="tests/versioned has such rows of progress")
def test_progress_that_names_no_record_counts_at_once(spark: SparkSession, tmp_path: Path) -> None:
    inputs = Inputs(spark, tmp_path, Topic("prices", PRICES, Versioned(60_000)))
    inputs.see(_rows(ORDERS, 0, 10, b"order"), [(ORDERS, 11, None), (PRICES, 11, None)])
    assert inputs.joined() == [(key, b"order", None) for key in KEYS]


def _same_key(key: bytes, value: bytes) -> tuple[bytes, bytes]:
    return key, value


def _added(_group: bytes, value: bytes, _before: bytes) -> bytes:
    return value


def _left(_group: bytes, _value: bytes, before: bytes) -> bytes:
    return before


@pytest.mark.long("spark", why="it takes twelve seconds, and its twin runs the same path")
def test_it_holds_as_well_for_a_table_behind_another_stage(
    spark: SparkSession, tmp_path: Path
) -> None:
    latest = Aggregation(None, _added, _left)
    source = Topic("prices", PRICES, Versioned(60_000))
    table = AggregateStep("latest", source, _same_key, latest, Versioned(60_000))
    inputs = Inputs(spark, tmp_path, table)
    orders = _rows(ORDERS, 0, 10, b"order")
    inputs.see(orders, [(ORDERS, 11, len(KEYS) - 1), (PRICES, 11, len(KEYS) - 1)])
    assert inputs.joined() == []
    prices = _rows(PRICES, 0, 9, b"new")
    inputs.see(prices[:-1], [])
    assert inputs.joined() == []
    inputs.see(prices[-1:], [])
    assert inputs.joined() == [(key, b"order", b"new") for key in KEYS]
