"""Rows of jobs on their way to sinks, and what can be seen of a query and its checkpoint."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Literal

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)
from pyspark.sql.types import LongType, StructField, StructType

from headrace.contracts.errors import StateUnavailable
from headrace.contracts.record import Record
from headrace.contracts.window import WindowBounds, window_header, windowed_key
from headrace.spark_jobs.jobs.bulk import join_as_of, latest
from headrace.spark_jobs.jobs.inputs import Inputs
from headrace.spark_jobs.jobs.rows import with_row
from headrace.spark_jobs.jobs.run import find_job, format_of
from headrace.spark_jobs.observe.state import read_state
from headrace.spark_jobs.operators.frames import InputProgress, Spread
from headrace.spark_jobs.operators.operate import operate
from headrace.spark_jobs.operators.topology import LookUp, Topic
from headrace.spark_jobs.read.schema import schema_of
from headrace.spark_jobs.shapes import FIELDS
from headrace.spark_jobs.versioned.tables import Versioned
from headrace.spark_jobs.write.aim import Targets, aimed
from headrace.spark_jobs.write.kafka import COLUMNS as KAFKA_COLUMNS
from headrace.spark_jobs.write.output import columns, kept_of
from tests.oracles.versioned import joined_on_time, latest_rows
from tests.spark.frames import (
    Row,
    apart,
    collect_stream,
    read_rows,
    run_to_end,
    stream_rows,
    write_rows,
)

PRICES, ORDERS = 0, 1
FAR_MS = 1_000_000
FEWER = pytest.mark.long("spark", why="the left join has its rows, and those without a partner")
Joined = Counter[tuple[object, ...]]
COLUMNS = ("key", "timestamp_ms", "value", "table_value")


def test_a_count_that_goes_elsewhere_has_its_whole_key(spark: SparkSession, tmp_path: Path) -> None:
    def count(key: bytes, start_ms: int, at_ms: int, value: bytes, offset: int) -> Row:
        window = WindowBounds("tumbling", start_ms, start_ms + 100)
        headers = (window_header(window),)
        return 1, Record(windowed_key(key, window), value, at_ms, headers, "1", 0, offset)

    eight = (2).to_bytes(8, "big")
    sent = [
        count(b"k", 0, 5_000_000, eight, 0),
        count(b"dead", 200, 5_000_000, b"nine bytes", 1),
        count(b"late", 300, 5_000, eight, 2),
        (1, Record(b"short", b"no count of eight bytes", 5_000_000, (), "1", 0, 3)),
        (0, Record(b"k", b'{"least": 3, "most": null}', 4_999_000, (), "0", 0, 0)),
    ]
    job = find_job("count-alerts")
    config = job.Config.model_validate(
        {
            "job": "count-alerts",
            "name": "it",
            "servers": "here:1",
            "checkpoint": "unused",
            "inputs": {one: {"topic": one} for one in ("limits", "counts")},
            "sink": {"console": {}},
            "retention": "1s",
            "tasks": 1,
        }
    )
    formats = {1: format_of(job, "counts")}
    frame = stream_rows(spark, write_rows(tmp_path / "in", sent))
    inputs = Inputs(
        ["limits", "counts"], apart(frame, 2), formats, InputProgress(None, {0: 0, 1: 0}), {}
    )
    found: list[tuple[str, bytes]] = []

    def take(frame: DataFrame, _batch: int) -> None:
        elsewhere = frame.where("verdict IN ('dead', 'late')").select("verdict", "key").collect()
        found.extend((row["verdict"], bytes(row["key"])) for row in elsewhere)

    results = job.transform(inputs, config)
    run_to_end(results.writeStream.foreachBatch(take), tmp_path / "checkpoint")
    whole = {one.key for _, one in sent}
    assert {key for _, key in found} <= whole, found
    assert ("dead", sent[1][1].key) in found
    assert ("dead", b"short") in found


def history(seed: int) -> list[Row]:
    """Prices and orders over the same time, with ties, tombstones, and nulls of all kinds."""
    chance = random.Random(seed)
    rows = []
    for offset in range(600):
        side = chance.choice((PRICES, ORDERS))
        value = None if chance.random() < 0.1 else b"%d/%d" % (side, offset)
        key = None if chance.random() < 0.03 else b"k%d" % chance.randrange(9)
        record = Record(key, value, chance.randrange(1, 200), (), str(side), 0, offset)
        rows.append((side, record))
    return rows


@pytest.mark.parametrize("join", [pytest.param("inner", marks=FEWER), "left"])
def test_bulk_and_stream_and_oracle_agree(
    spark: SparkSession, tmp_path: Path, join: Literal["inner", "left"]
) -> None:
    rows = history(seed=len(join))
    table = [one for side, one in rows if side == PRICES]
    expected: Joined = Counter()
    for side, one in rows:
        if side == ORDERS and one.value is not None:
            met = None if one.key is None else joined_on_time(table, one)
            if met is not None or join == "left":
                expected[one.key, one.timestamp_ms, one.value, met] += 1

    records = read_rows(spark, write_rows(tmp_path / "all", rows))
    orders, prices = (records.where(f"input = {side}") for side in (ORDERS, PRICES))
    assert _rows(join_as_of(orders, prices, join)) == expected

    last = Record(b"flush", b"", FAR_MS, (), "1", 0, FAR_MS)
    stream = stream_rows(spark, write_rows(tmp_path / "in", [*rows, (ORDERS, last)]))
    versions = Topic("prices", PRICES, Versioned(10 * FAR_MS))
    priced = LookUp("priced", versions, stream=ORDERS, join=join, grace_ms=FAR_MS // 2)
    checkpoint = tmp_path / "checkpoint"
    results = operate(priced, stream, Spread(tasks=1))
    assert Counter(collect_stream(results, checkpoint, *COLUMNS)) == expected
    _check_state(spark, checkpoint, table, held=1)


def _rows(frame: DataFrame) -> Joined:
    return Counter(
        tuple(bytes(one) if isinstance(one, bytearray) else one for one in row)
        for row in frame.select(*COLUMNS).collect()
    )


def _check_state(spark: SparkSession, checkpoint: Path, table: list[Record], held: int) -> None:
    """The checkpoint remembers exactly the versions that it must remember."""
    rows = list(read_state(spark, str(checkpoint)))
    header = next(row.line for row in rows if row.kind == "numbers")
    assert " priced:taken=" in header
    assert sum(int(row.line.split()[0]) for row in rows if row.kind == "held") == held
    versions = sum(int(row.line.split()[2]) for row in rows if row.kind == "versions")
    assert versions == len({(one.key, one.timestamp_ms) for one in table if one.key is not None})


def test_the_latest_rows_are_those_of_the_table(spark: SparkSession, tmp_path: Path) -> None:
    table = [one for side, one in history(seed=3) if side == PRICES]
    records = read_rows(spark, write_rows(tmp_path / "table", [(PRICES, one) for one in table]))
    for retention_ms in (10 * FAR_MS, None):
        found = latest(records, by_arrival=retention_ms is None).select("key", "value").collect()
        wanted = latest_rows(table, retention_ms)
        assert {bytes(key): bytes(value) for key, value in found} == wanted
    assert wanted != latest_rows(table, 10 * FAR_MS)


def test_a_folder_without_state_is_no_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(StateUnavailable, match="name the job's checkpoint"):
        list(read_state(spark, str(tmp_path)))


def test_each_verdict_goes_where_it_belongs(spark: SparkSession) -> None:
    verdicts = ("joined", "corrected", "changed", "late", "dead", "count", "said")
    rows = [
        (verdict, "why", 3, "orders.cleaned", 0, 7, b"k", b"v", 5, None, 7, None)
        for verdict in verdicts
    ]
    results = spark.createDataFrame(
        rows,
        "verdict STRING, reason STRING, task INT, topic STRING, partition INT, offset BIGINT,"
        " key BINARY, value BINARY, timestamp_ms BIGINT,"
        " headers ARRAY<STRUCT<key: STRING, value: BINARY>>, number BIGINT, added BIGINT",
    )

    def targets(rows: str | None, late: str | None) -> dict[str, str | None]:
        found = aimed(results, Targets(rows, late)).select("note", "target").collect()
        return {row["note"]: row["target"] for row in found}

    nowhere = {"count": None, "said": None, "dead": "orders.cleaned.dead"}
    assert targets("out", "out.late") == nowhere | {
        "joined": "out",
        "corrected": "out",
        "changed": "out",
        "late": "out.late",
    }
    assert targets("out", None)["late"] is None
    assert targets(None, "out.late")["joined"] is None
    assert set(KAFKA_COLUMNS) == set(aimed(results, Targets("out", None)).columns)


def test_rows_become_columns_and_tombstones_become_deletions(spark: SparkSession) -> None:
    more = b'{"orders": 2, "revenue_cents": 9223372036854775808}'
    values = (b'{"orders": 2, "revenue_cents": 5}', None, more)
    rows = [(b"x", 1_500, value, 3, number) for number, value in enumerate(values)]
    frame = spark.createDataFrame(
        rows, "key BINARY, timestamp_ms BIGINT, value BINARY, task INT, sequence BIGINT"
    )
    found = columns(frame, schema_of(find_job("revenue-by-segment").Row)).collect()
    assert [
        (row["key"], row["timestamp"].microsecond, row["deleted"], row["orders"]) for row in found
    ] == [("x", 500_000, False, 2), ("x", 500_000, True, None), ("x", 500_000, False, 2)]
    assert [row["revenue_cents"] for row in found] == [5, None, None]
    assert [(row["task"], row["sequence"]) for row in found] == [(3, 0), (3, 1), (3, 2)]


def test_a_table_of_alerts_has_one_key(spark: SparkSession) -> None:
    rows = [(b"x", 1_500, b'{"key": "y", "count": 2}', 3, 1)]
    frame = spark.createDataFrame(
        rows, "key BINARY, timestamp_ms BIGINT, value BINARY, task INT, sequence BIGINT"
    )
    table = columns(frame, schema_of(find_job("count-alerts").Row))
    assert len(set(table.columns)) == len(table.columns)
    assert [(row["key"], row["count"]) for row in table.collect()] == [("x", 2)]


def test_a_table_says_which_rows_are_corrections(spark: SparkSession) -> None:
    rows = [
        (verdict, b"x", 1_500, b'{"price_cents": 5}', 3, 1) for verdict in ("joined", "corrected")
    ]
    frame = spark.createDataFrame(
        rows,
        "verdict STRING, key BINARY, timestamp_ms BIGINT, value BINARY, task INT, sequence BIGINT",
    )
    table = columns(frame, schema_of(find_job("orders-prices").Row), corrects=True)
    assert [(row["corrected"], row["price_cents"]) for row in table.collect()] == [
        (False, 5),
        (True, 5),
    ]


@pytest.mark.parametrize("kind", ["bigint", "int"])
def test_a_table_has_the_same_rows_by_fields_and_by_json(spark: SparkSession, kind: str) -> None:
    rows = [("joined", b"xy", b"old"), ("late", b"x", b"as it came"), ("joined", None, b"old")]
    results = spark.createDataFrame(
        [(*row, 1, 3, number) for number, row in enumerate(rows)],
        "verdict STRING, key BINARY, value BINARY, timestamp_ms BIGINT, task INT, sequence BIGINT",
    )
    # The fields of one are not of the types that a table has, so there its JSON is parsed.
    made = with_row(results, F.struct(F.length("key").cast(kind).alias("total_cents")))
    given = dict.fromkeys(("reason", "topic", "headers"), "string")
    given |= {"partition": "int", "offset": "bigint", "number": "bigint"}
    empty = {name: F.lit(None).cast(kind) for name, kind in (given | {"added": "bigint"}).items()}
    row = StructType([StructField("total_cents", LongType())])
    needed = kept_of(made.withColumns(empty), row)
    values = [each["value"] for each in needed.orderBy("sequence").collect()]
    assert values[1] == b"as it came"
    assert (values[0] is None) == (kind == "bigint"), "JSON that nobody asks for is not made"
    by_json = columns(made.drop(FIELDS), row).where("sequence != 1").orderBy("sequence")
    found = columns(needed, row).where("sequence != 1").orderBy("sequence")
    assert found.collect() == by_json.collect()
    assert [each["total_cents"] for each in found.collect()] == [2, None]
