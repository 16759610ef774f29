"""Nonsense through Spark's readers: no query ends; each record is read or dead, with its bytes."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pydantic import BaseModel
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)
from pyspark.sql.types import StructType

from headrace.contracts.dead_letter import read_dead
from headrace.contracts.record import Record
from headrace.spark_jobs.read.decode import (
    AvroValue,
    CountValue,
    Format,
    JsonValue,
    checked,
    decoded,
)
from headrace.spark_jobs.read.schema import schema_of
from tests.chance import seed_of_run
from tests.nonsense.records import stream
from tests.spark.frames import read_rows, write_rows

COUNT = 3_000
FIRST = {"JSON", "Avro behind a number"}
MORE = pytest.mark.long("spark", why="JSON and registered Avro fail in all of their ways")
_AVRO = json.dumps(
    {
        "type": "record",
        "name": "nonsense",
        "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string"}],
    }
)


class Shown(BaseModel):
    """The form of most values."""

    id: int
    a: float | None
    at: int


class Noted(BaseModel):
    """The schema of values in Avro."""

    id: int
    note: str


FORMATS: dict[str, Format] = {
    "JSON": JsonValue(schema_of(Shown)),
    "Avro": AvroValue(schema_of(Noted), _AVRO),
    "Avro behind a number": AvroValue(schema_of(Noted), registered={1: _AVRO, 2: _AVRO}),
    "counts": CountValue(),
}


@pytest.mark.parametrize(
    "name",
    [name if name in FIRST else pytest.param(name, marks=MORE) for name in FORMATS],
)
def test_each_record_is_read_or_dead_and_keeps_its_bytes(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    seed = seed_of_run()
    records = [_told(record) for record in stream(Random(seed), COUNT)]
    frame = read_rows(spark, write_rows(tmp_path / "rows", [(0, record) for record in records]))
    looked_at = checked(frame, {0: FORMATS[name]})
    found = decoded(looked_at, "value", FORMATS[name], "read").withColumn(
        "is_read", F.col("read").isNotNull()
    )
    rows = {row["offset"]: row for row in found.drop("read").collect()}
    assert len(rows) == COUNT, f"seed {seed}"
    for record in records:
        row = rows[record.offset]
        headers = tuple((one["key"], _bytes(one["value"])) for one in row["headers"] or ())
        told = record._replace(key=_bytes(row["key"]), value=_bytes(row["value"]), headers=headers)
        if row["aside"] is None:
            assert record.value is None or row["is_read"], f"seed {seed}"
        else:
            letter = read_dead(told)
            assert letter is not None, f"seed {seed}"
            assert letter.detail, "it says why"
            told = letter.record
        assert told == record, f"seed {seed}"


def test_a_value_that_closes_what_stands_around_it_is_dead(
    spark: SparkSession, tmp_path: Path
) -> None:
    tails = [
        '],"x":[{}',
        '],"x":[',
        ']} {"x":[',
        '],"headrace_end":1,"x":[{}',
        '],"headrace_end":1}',
        ',{"headrace_end":1}],"x":[{}',
        ',{"id":6}',
        ",{}",
        ",",
        " x",
    ]
    values = ['{"id":5,"at":5}' + tail for tail in tails]
    for value in values:
        with pytest.raises(json.JSONDecodeError):
            json.loads(value)
    records = [
        Record(b"key", value.encode(), 0, (), "shown", 0, offset)
        for offset, value in enumerate(values)
    ]
    frame = read_rows(spark, write_rows(tmp_path / "rows", [(0, record) for record in records]))
    rows = checked(frame, {0: FORMATS["JSON"]}).orderBy("offset").collect()
    assert [tail for tail, row in zip(tails, rows, strict=True) if row["aside"] is None] == []


def _told(record: Record) -> Record:
    """As Spark's source tells it: names are text there."""
    names = ((name.encode(errors="replace").decode(), value) for name, value in record.headers)
    return record._replace(headers=tuple(names))


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def test_a_time_without_a_zone_is_in_utc_in_every_session(spark: SparkSession) -> None:
    value = JsonValue(StructType().add("at", "timestamp"))
    looked, parsed = value.look(F.col("value")), value.parse(F.col("value"))
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        frame = spark.createDataFrame([(b'{"at": "1970-01-01T00:00:05"}',)], "value BINARY")
        seen = frame.select(value.seen(looked).alias("looked"), value.whole(parsed).alias("parsed"))
        (found,) = seen.selectExpr("looked.at::BIGINT AS a", "parsed.at::BIGINT AS b").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone or "UTC")
    assert tuple(found) == (5, 5)
