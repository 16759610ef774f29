"""Delta tables with the last row or all versions of each key: once, whenever the driver dies."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)

from headrace.contracts.record import Record
from headrace.spark_jobs.connectors import CONNECTORS
from headrace.spark_jobs.write.delta import DeltaSink
from headrace.spark_jobs.write.delta_place import DeltaPlace, make_table
from tests.oracles.scd2 import Came, Kept, history
from tests.spark.driver import KILLED, Driver
from tests.spark.strikes import Strike, run_query, write_batch_file
from tests.spark.tables import live_rows

pytestmark = pytest.mark.long("drivers", why="a driver is killed")

BATCHES = 3
KEYS = 5
BACK_MS = 1_000
OF_TASKS = {
    (0, 10, b"0:90"): b"moved",
    (0, 20, b"1:1"): b"moved",
    (1, 15, b"0:91"): b"moved",
    (0, 21, b"1:2"): b"late",
    (2, 5, b"1:3"): b"late",
}
"""Keys by micro-batch, time and value of a row; the value is its task, and its number there."""


def keep_last(folder: Path, strike: Strike | None) -> None:
    """The life of one driver; the one that reaches the end is refused in the other mode."""
    table = str(folder / "delta")
    place = DeltaPlace(None, table)
    upserting, appending = DeltaSink("query", place, mode="upsert"), DeltaSink("query", place)
    keeping = DeltaSink("query", DeltaPlace(None, str(folder / "versions")), mode="scd2")

    def write(frame: DataFrame, batch: int) -> None:
        words = F.split(F.col("value").cast("string"), ":")
        said = F.get(words, 0), F.get(words, 1)
        rows = frame.select(
            F.col("key").cast("string"),
            F.col("value").isNull().alias("deleted"),
            F.timestamp_millis("timestamp_ms").alias("timestamp"),
            F.coalesce(said[0].try_cast("int"), F.lit(0)).alias("task"),
            F.coalesce(said[1].try_cast("bigint"), BACK_MS - F.col("timestamp_ms")).alias(
                "sequence"
            ),
            F.col("value").cast("string"),
        )
        # As a version left it that had no places of rows; where it is, it stays.
        before = "key STRING, deleted BOOLEAN, timestamp TIMESTAMP, value STRING"
        make_table(frame.sparkSession, table, before)
        keeping.write(rows, batch)
        upserting.write(rows, batch)
        if batch == BATCHES - 1:
            # Its rows are written already, and by then this key has another row.
            for sink in (upserting, keeping):
                sink.write(rows.withColumn("value", F.lit("twice")), batch)
            try:
                appending.write(rows, batch)
            except Exception as error:  # noqa: BLE001 - it is looked at by who started this
                print("refused:", error, flush=True)

    run_query(folder, write, strike, connectors=CONNECTORS)


def test_the_last_row_of_a_key_is_the_only_one_or_ends_the_others(tmp_path: Path) -> None:
    last: dict[str, tuple[str, int]] = {}
    versions: list[list[Came]] = []
    sequence = 0
    for batch in range(BATCHES):
        records = []
        for key in [b"k%d" % one for one in range(KEYS)] * 3:
            sequence += 1
            deleted = (sequence + batch) % 4 == 0
            value = None if deleted else b"v%d" % sequence
            # Times go back, for a row that comes late is the last one all the same.
            records.append(Record(key, value, BACK_MS - sequence, (), "", 0, 0))
            last.pop(key.decode(), None)
            if value is not None:
                last[key.decode()] = (value.decode(), batch)
        for (place, time_ms, value), key in OF_TASKS.items():
            if place == batch:
                records.append(Record(key, value, time_ms, (), "", 0, 0))
        write_batch_file(tmp_path / "in", batch, [("unused", one) for one in records])
        versions.append([_came(one) for one in records])
    assert 0 < len(last) < KEYS, "a key that is deleted, and others that are not"
    last |= {"moved": ("1:1", 0), "late": ("1:3", 2)}

    for strike in (Strike(1, "behind"), None):
        driver = Driver(tmp_path / f"{strike}.log", keep_last, tmp_path, strike)
        assert driver.wait() == (KILLED if strike else 0), driver.log
    found = [(row["key"], (row["value"], row["batch"])) for row in live_rows(tmp_path / "delta")]
    assert sorted(found) == sorted(last.items())
    assert "was written with `mode: upsert`" in driver.log
    assert sorted(_versions(tmp_path / "versions"), key=_place) == sorted(
        history(versions), key=_place
    )


def _came(one: Record) -> Came:
    """The version that a row is, by the columns that it gets above."""
    value = None if one.value is None else one.value.decode()
    task, found, number = (value or "").partition(":")
    sequence = int(number) if found else BACK_MS - one.timestamp_ms
    key = (one.key or b"").decode()
    return Came(key, one.timestamp_ms, int(task) if found else 0, sequence, value)


def _versions(table: Path) -> Iterator[Kept]:
    for row in live_rows(table):
        begin_ms, end_ms = _ms(row["valid_from"]), _ms(row["valid_to"])
        assert begin_ms is not None
        yield Kept(row["key"], begin_ms, end_ms, row["value"])


def _ms(time: datetime | None) -> int | None:
    return None if time is None else round(time.replace(tzinfo=UTC).timestamp() * 1_000)


def _place(row: Kept) -> tuple[str, int]:
    return row.key or "", row.valid_from
