"""The operators through real queries: spread over tasks, bad rows, changed options, late rows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headrace.contracts.dead_letter import read_dead
from headrace.contracts.decision import Reason
from headrace.contracts.errors import TopologyRefused
from headrace.contracts.record import Record
from headrace.spark_jobs.operators.frames import InputProgress, Spread
from headrace.spark_jobs.operators.operate import operate
from headrace.spark_jobs.operators.pairs import left_of, paired, right_of
from headrace.spark_jobs.operators.topology import (
    AggregateStep,
    ForeignKeyStep,
    JoinStep,
    LookUp,
    StreamJoin,
    Topic,
)
from headrace.spark_jobs.read.decode import JsonValue, checked, decoded
from headrace.spark_jobs.versioned.tables import Plain, Versioned
from headrace.spark_jobs.versioned.totals import read_long, sum_of
from tests.spark.frames import Row, run_to_end, stream_rows, write_rows
from tests.spark.pointing import (
    JOIN,
    LEFT,
    RIGHT,
    changes,
    pairs_of,
    pairs_told,
    points_at,
    row_of,
)

PRICES = Topic("prices", LEFT, Versioned(60_000))
PRICED = LookUp("priced", PRICES, stream=RIGHT, join="left", grace_ms=10)


def _told(results: DataFrame, checkpoint: Path) -> list[dict[str, Any]]:
    """All that a query tells, in order."""
    told: list[dict[str, Any]] = []

    def take(frame: DataFrame, _: int) -> None:
        told.extend(frame.orderBy("task", "sequence").toArrow().to_pylist())

    run_to_end(results.writeStream.foreachBatch(take), checkpoint)
    return told


@pytest.mark.long("spark", why="`test_nonsense.py` reads what cannot be decoded")
def test_unreadable_records_pass_by_as_dead_letters(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        row_of(LEFT, 0, 1, "k", {"price": 5}),
        row_of(LEFT, 1, 2, "k", {"price": "dear"}),
        row_of(LEFT, 2, 3, "k", None),
        row_of(RIGHT, 0, 1, "k", {"id": 1, "note": None}),
        row_of(RIGHT, 1, 2, "k", {"note": "no id"}),
        row_of(RIGHT, 2, 3, None, {"id": 3}),
        row_of(RIGHT, 3, 3, "k", b"{"),
        row_of(RIGHT, 4, 50, "k", {"id": 9 * 10**18}),
    ]
    price = JsonValue(_schema("price bigint not null"))
    order = JsonValue(_schema("id bigint not null, note string"))
    records = checked(stream_rows(spark, write_rows(tmp_path / "in", rows)), {0: price, 1: order})
    results = operate(PRICED, records, Spread(tasks=2))
    results = decoded(decoded(results, "value", order), "table_value", price, "price")
    told = _told(results, tmp_path / "checkpoint")
    dead = [row for row in told if row["verdict"] == "dead"]
    assert sorted((row["topic"], row["offset"], row["reason"]) for row in dead) == [
        ("t0", 1, Reason.UNDECODABLE),
        ("t1", 1, Reason.UNDECODABLE),
        ("t1", 2, Reason.NULL_KEY),
        ("t1", 3, Reason.UNDECODABLE),
    ]
    letter = read_dead(_record(next(row for row in dead if row["topic"] == "t0")))
    assert letter is not None
    assert (letter.record.offset, letter.record.headers) == (1, (("trace", b"1"), ("empty", None)))
    assert letter.reason is Reason.UNDECODABLE
    joined = [row for row in told if row["verdict"] == "joined"]
    assert [(row["value"], row["price"]) for row in joined] == [
        ({"id": 1, "note": None}, {"price": 5}),
    ]
    assert joined[0]["headers"] == [
        {"key": "trace", "value": b"0"},
        {"key": "empty", "value": None},
    ]
    held = [row["number"] for row in told if row["reason"] == "priced:held:records"]
    assert sum(held) == 1


def _schema(ddl: str) -> StructType:
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    return schema


def _record(row: dict[str, Any]) -> Record:
    headers = tuple((each["key"], each["value"]) for each in row["headers"])
    fields = (row["key"], row["value"], row["timestamp_ms"], headers)
    return Record(*fields, row["topic"], row["partition"], row["offset"])


def test_late_records_are_joined_told_and_counted(spark: SparkSession, tmp_path: Path) -> None:
    times = [0, 100, 5, 90, 101]
    rows = [row_of(RIGHT, n, time_ms, "k", {"n": n}) for n, time_ms in enumerate(times)]
    told = _told(
        operate(PRICED, stream_rows(spark, write_rows(tmp_path / "in", rows)), Spread(tasks=1)),
        tmp_path / "checkpoint",
    )
    assert [row["offset"] for row in told if row["verdict"] == "joined"] == [0, 2, 3]
    assert [row["offset"] for row in told if row["verdict"] == "late"] == [2]
    counts = {
        row["reason"]: (row["number"], row["added"]) for row in told if row["verdict"] == "count"
    }
    assert counts["priced:late"] == (1, 1)
    assert counts["priced:held:records"] == (2, 2)
    assert counts["priced:balance"] == (0, 0)


def test_options_that_state_cannot_follow_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    folder = write_rows(tmp_path / "in", [row_of(RIGHT, 0, 5, "k", {"n": 0})])
    _told(operate(PRICED, stream_rows(spark, folder), Spread(tasks=1)), tmp_path / "checkpoint")
    more = write_rows(tmp_path / "more", [row_of(RIGHT, 1, 6, "k", {"n": 1})])
    (more / "rows.parquet").rename(folder / "more.parquet")
    changed = replace(PRICED, table=Topic("prices", LEFT, Plain()), grace_ms=None)
    with pytest.raises(StreamingQueryException, match="which its state cannot follow"):
        _told(
            operate(changed, stream_rows(spark, folder), Spread(tasks=1)), tmp_path / "checkpoint"
        )
    longer = replace(PRICED, grace_ms=20)
    told = _told(
        operate(longer, stream_rows(spark, folder), Spread(tasks=1)), tmp_path / "checkpoint"
    )
    (said,) = [row["reason"] for row in told if row["verdict"] == "said"]
    assert "`grace_ms` was 10 and is 20 from now on" in said


def _group(_: bytes, value: bytes) -> tuple[bytes, bytes]:
    return json.loads(value)["group"].encode(), value


def _amount(value: bytes) -> int:
    return int(json.loads(value)["amount"])


def _latest(told: list[dict[str, Any]]) -> dict[bytes, Any]:
    """Return the rows that a compacted topic of the results would hold."""
    latest = {row["key"]: row["value"] for row in told if row["verdict"] == "changed"}
    return {key: value for key, value in latest.items() if value is not None}


def _stream_in_two(spark: SparkSession, folder: Path, rows: list[Row]) -> DataFrame:
    """The rows as two micro-batches."""
    half = len(rows) // 2
    write_rows(folder, rows[:half])
    (write_rows(folder.with_name("rest"), rows[half:]) / "rows.parquet").rename(
        folder / "z.parquet"
    )
    schema = stream_rows(spark, folder).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


@pytest.mark.long("spark", why="a query joins by such keys, and the next test is about tasks")
def test_rows_that_meet_in_other_tasks_end_as_one_join_of_all(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows, left, right = changes(Random(7))
    results = operate(JOIN, _stream_in_two(spark, tmp_path / "in", rows), Spread(tasks=3))
    sides = results.withColumn("mine", left_of("value")).withColumn("theirs", right_of("value"))
    told = _told(sides, tmp_path / "checkpoint")
    assert pairs_told(told) == pairs_of(left, right)


@pytest.mark.long("spark", why="a query joins by such keys; this one is about tasks alone")
def test_answers_of_one_task_do_not_overtake_one_another(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Answers with any timestamps: one of long ago, and behind it the newest."""
    before, batch = [], []
    for at in range(8):
        before += [
            row_of(RIGHT, 2 * at, 10, f"near{at}", {"was": "old"}),
            row_of(RIGHT, 2 * at + 1, 500, f"far{at}", {"was": "far"}),
        ]
        batch += [
            row_of(LEFT, 2 * at, 5, f"q{at}", {"group": f"far{at}"}),
            row_of(LEFT, 2 * at + 1, 6, f"p{at}", {"group": f"near{at}"}),
            row_of(RIGHT, 100 + at, 60, f"near{at}", {"was": "new"}),
        ]
    versioned = Versioned(60_000)
    sides = Topic("left", LEFT, versioned), Topic("right", RIGHT, versioned)
    join = ForeignKeyStep("join", *sides, points_at, paired)
    filler = [row_of(LEFT, 1_000 + at, 7, f"filler{at}", {"group": "none"}) for at in range(8)]
    rows = [*before, *filler, *batch]
    results = operate(join, _stream_in_two(spark, tmp_path / "in", rows), Spread(tasks=2))
    told = _told(results.withColumn("theirs", right_of("value")), tmp_path / "checkpoint")
    ends = {row["key"]: row["theirs"] for row in told if row["verdict"] == "changed"}
    assert {json.loads(ends[b"p%d" % at])["was"] for at in range(8)} == {"new"}


@pytest.mark.long("spark", why="queries fold the rows of a join in tasks")
def test_a_row_that_leaves_a_group_in_another_task_is_subtracted(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows, left, _ = changes(Random(8))
    step = AggregateStep("sum", Topic("left", LEFT, Plain()), _group, sum_of(_amount))
    told = _told(
        operate(step, _stream_in_two(spark, tmp_path / "in", rows), Spread(tasks=3)),
        tmp_path / "checkpoint",
    )
    wanted: dict[str, int] = {}
    for value in left.values():
        wanted[value["group"]] = wanted.get(value["group"], 0) + value["amount"]
    found = {key.decode(): read_long(value) for key, value in _latest(told).items()}
    assert found == {group: wanted.get(group, 0) for group in found}
    assert wanted.keys() <= found.keys()
    taken = [row["number"] for row in told if row["reason"] == "sum:rows:taken"]
    assert taken, "the counts of the first stage come out at the end"


def test_a_join_that_cannot_wait_is_refused_at_once(spark: SparkSession, tmp_path: Path) -> None:
    records = stream_rows(spark, write_rows(tmp_path / "in", [row_of(LEFT, 0, 0, "k", {})]))
    waiting = replace(PRICED, release="progress", grace_ms=None)
    with pytest.raises(TopologyRefused, match="nothing says how far input 1 is"):
        operate(waiting, records, Spread(), InputProgress(None, {0: 4}))
    by_key = ForeignKeyStep("join", PRICES, Topic("right", RIGHT), points_at, paired)
    with pytest.raises(TopologyRefused, match="only a spread by key"):
        operate(by_key, records, Spread("partition"))
    with pytest.raises(TopologyRefused, match="input 0 has 4, input 1 has 6 partitions"):
        operate(PRICED, records, Spread("partition"), InputProgress(None, {0: 4, 1: 6}))
    with pytest.raises(TopologyRefused, match="raise its history retention"):
        operate(replace(PRICED, grace_ms=60_001), records, Spread())
    counted = AggregateStep("count", PRICES, _group, sum_of(_amount), Versioned(60_000))
    with pytest.raises(TopologyRefused, match="`count` gives the table other keys"):
        operate(replace(PRICED, table=counted, corrects=True), records, Spread())
    orders, payments = (
        AggregateStep(name, Topic(f"{name}-rows", number), _group, sum_of(_amount))
        for number, name in enumerate(("orders", "payments"))
    )
    both = JoinStep("both", orders, payments, paired)
    with pytest.raises(TopologyRefused, match="`orders` and `payments` stand side by side"):
        operate(both, records, Spread())
    operate(both, records, Spread(tasks=1))
    two = StreamJoin("two", (LEFT, RIGHT), paired, 1_000)
    with pytest.raises(TopologyRefused, match="nothing says how far input 0, 1 is"):
        operate(two, records, Spread())


@pytest.mark.long("spark", why="tests/versioned joins tables without Spark")
def test_a_join_of_two_tables_keeps_missing_sides_as_nulls(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [
        row_of(LEFT, 0, 1, "both", {"l": 1}),
        row_of(RIGHT, 0, 2, "both", {"r": 1}),
        row_of(RIGHT, 1, 3, "alone", {"r": 2}),
        row_of(RIGHT, 2, 4, "gone", {"r": 3}),
        row_of(RIGHT, 3, 5, "gone", None),
    ]
    join = JoinStep("join", Topic("left", LEFT), Topic("right", RIGHT), paired, "outer")
    records = stream_rows(spark, write_rows(tmp_path / "in", rows))
    sides = operate(join, records, Spread("partition")).select(
        "*", left_of("value").alias("mine"), right_of("value").alias("theirs")
    )
    told = _told(sides, tmp_path / "checkpoint")
    assert [
        (row["key"], row["mine"], row["theirs"]) for row in told if row["verdict"] == "changed"
    ] == [
        (b"both", b'{"l": 1}', None),
        (b"both", b'{"l": 1}', b'{"r": 1}'),
        (b"alone", None, b'{"r": 2}'),
        (b"gone", None, b'{"r": 3}'),
        (b"gone", None, None),
    ]
