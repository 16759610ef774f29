"""Python makes the rows of a table from bundles as Spark makes them from results."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
    VarcharType,
)

from headrace.spark_jobs.operators.bundles import BUNDLES_SCHEMA
from headrace.spark_jobs.operators.tabled import Tabled
from headrace.spark_jobs.shapes import FIELDS
from headrace.spark_jobs.write.aim import rows_of
from headrace.spark_jobs.write.bundled import COLUMNS, packed
from headrace.spark_jobs.write.output import columns
from tests.spark.frames import BUNDLED_SCHEMA

ROW = (
    StructType()
    .add("text", StringType())
    .add("long", LongType())
    .add("int", IntegerType())
    .add("short", ShortType())
    .add("yes", BooleanType())
    .add("Key", StringType())
    .add("timestamp_ms", LongType())
)
TOKENS = [
    *("null", '"a"', '""', '"\\ud800"', '"\\u0000é"', "true", "false", "0", "-1", "32767", "32768"),
    *("2147483648", "-9223372036854775808", "9223372036854775808", "1e3", "1.0", "1.50", "[1, 2]"),
    '{"b": 1, "a": [true]}',
]
VALUES: list[bytes | None] = [
    None,
    b"{}",
    *(b'{"%s":%s}' % (name.encode(), token.encode()) for name, token in product(ROW.names, TOKENS)),
    json.dumps({"text": "t", "long": 1, "int": 2, "short": 3, "yes": True, "Key": "k"}).encode(),
]
VERDICTS = ("joined", "changed", "corrected", "late", "count")
TIMES_MS = (0, -1, 1_700_000_000_123, 253_402_300_799_999)


def _results() -> list[dict[str, Any]]:
    return [
        {
            **dict.fromkeys(COLUMNS.names),
            "verdict": VERDICTS[place % len(VERDICTS)],
            "task": place % 3,
            "sequence": place,
            "timestamp_ms": TIMES_MS[place % len(TIMES_MS)],
            "key": (b"k", None, b"\xff")[place // 2 % 3],
            "value": value,
        }
        for place, value in enumerate(each for each in VALUES for _ in range(len(VERDICTS)))
    ]


@pytest.mark.parametrize(("corrects", "apart"), [(True, False), (False, True)])
def test_rows_of_bundles_are_those_of_results(
    spark: SparkSession, *, corrects: bool, apart: bool
) -> None:
    rows = [tuple(row[name] for name in COLUMNS.names) for row in _results()]
    results = spark.createDataFrame(rows, BUNDLED_SCHEMA)
    wanted = columns(rows_of(results), ROW, corrects=corrects)
    # A field that is not plain has all rows of its bundle read one by one.
    pieces = [[one] for one in _results()] if apart else [_results()]
    tables = [pa.Table.from_pylist(piece, COLUMNS) for piece in pieces]
    bundles = [(0, one) for each in tables for one in packed(each)]
    table = Tabled(ROW, corrects=corrects)
    frame = spark.createDataFrame(bundles, BUNDLES_SCHEMA)
    found = frame.mapInArrow(table.rows_of, table.schema)
    assert found.dtypes == wanted.dtypes
    by_place = [sorted(each.collect(), key=lambda row: row.sequence) for each in (found, wanted)]
    assert len(by_place[0]) == len(VALUES) * 3
    for one, other in zip(*by_place, strict=True):
        assert one == other, VALUES[one.sequence // len(VERDICTS)]


@pytest.mark.parametrize("which", [slice(None), slice(0, None, 2), slice(0)])
def test_rows_with_fields_need_no_json(which: slice) -> None:
    fields: list[dict[str, Any] | None] = [
        {**dict.fromkeys(ROW.names), "text": "é", "long": 1, "Key": "k"},
        {**dict.fromkeys(ROW.names), "int": 2, "short": 3, "yes": False},
        dict.fromkeys(ROW.names),
    ]
    table = Tabled(ROW, corrects=True)
    in_json = [
        {**row, "verdict": "joined", "value": json.dumps(one).encode()}
        for row, one in zip(_results(), fields, strict=False)
    ]
    in_json.append({**in_json[0], "value": None})
    wanted = table.tabled(pa.RecordBatch.from_pylist(in_json, COLUMNS))
    without = [row | {"value": None} for row in in_json[which] if row["value"] is not None]
    rows = pa.RecordBatch.from_pylist([*without, *in_json], COLUMNS)
    given = [*fields[which], *[None] * len(in_json)]
    results = rows.append_column(FIELDS, pa.array(given, table.fields))
    made = table.tabled(results)
    assert made.slice(len(without)).equals(wanted)
    assert made.slice(0, len(without)).to_pylist() == wanted.slice(0, 3).to_pylist()[which]
    assert table.tabled(results.slice(0, len(without))).equals(made.slice(0, len(without)))


@pytest.mark.parametrize(
    "kind", [DoubleType(), ByteType(), TimestampType(), VarcharType(3), ArrayType(LongType())]
)
def test_other_types_are_left_to_spark(kind: DataType) -> None:
    assert Tabled.is_for(ROW)
    assert not Tabled.is_for(StructType().add("it", kind))
