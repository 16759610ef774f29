"""Python's check of JSON says of each value what Spark's says."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
    VarcharType,
)

from headrace.contracts.dead_letter import read_dead
from headrace.contracts.decision import Reason
from headrace.contracts.record import Record
from headrace.spark_jobs.headers import decode_headers, encode_headers
from headrace.spark_jobs.operators.arriving import marked
from headrace.spark_jobs.operators.bundles import unbundled
from headrace.spark_jobs.operators.frames import Spread, bundled, record_rows
from headrace.spark_jobs.read.decode import (
    JsonValue,
    checked,
    checked_alone,
    dead_alone,
    readable_alone,
)
from headrace.spark_jobs.read.json_text import UNREADABLE, JsonCheck, missing, read_json
from headrace.spark_jobs.read.parsed import Parsing
from headrace.spark_jobs.shapes import DEAD, POSITION, READ
from tests.chance import seed_of_run
from tests.spark.frames import read_rows, write_rows

INNER = StructType().add("n", LongType()).add("texts", ArrayType(StringType()))
SCHEMA = (
    StructType()
    .add("text", StringType())
    .add("short", ShortType())
    .add("int", IntegerType())
    .add("long", LongType(), nullable=False)
    .add("double", DoubleType())
    .add("float", FloatType())
    .add("yes", BooleanType())
    .add("inner", INNER)
    .add("all", ArrayType(INNER))
    .add("must", StringType(), nullable=False)
)
WHOLE = {"long": 1, "must": "m"}
TOKENS = [
    *('""', '"a"', '"\\ud800"', '"\\u0000"', '"1"', '"NaN"', '"Infinity"', '"true"', '"{}"'),
    *("0", "-0", "1", "-1", "127", "128", "-128", "-129", "32767", "32768", "-32769"),
    *("2147483647", "2147483648", "-2147483649", "9223372036854775807", "9223372036854775808"),
    *("-9223372036854775808", "-9223372036854775809", "18446744073709551615"),
    *("18446744073709551616", "1" + 40 * "0", "1.0", "1.5", "-0.0", "1e2", "1E400", "-1e-400"),
    *("01", "+1", "1.", ".5", "1e", "0x1", "NaN", "Infinity", "-Infinity", "1 2", "--1", "-"),
    *("true", "false", "null", "True", "tru", "nul", "nulls", "undefined", "'a'", "a"),
    *("{}", "[]", "[null]", '["a"]', "[1]", "[[]]", "[{}]", "[1,]", "[,]", "{,}", '{"n":}'),
    *('{"n":1}', '{"n":"1"}', '{"n":1.0}', '{"n":null,"texts":null}', '{"texts":[1,"a",{}]}'),
    *('[{"n":1},null,{"n":2}]', '[{"n":"x"}]', '[{"texts":1}]', '{"texts":{}}', '{"n":1'),
    *('"\t"', '"\\x"', '"', '"\\', "/**/1", "1//", "", " ", "\ufeff1", "\u00a01"),
]
VALUES = [
    b"",
    b" ",
    b"null",
    b"1",
    b'"a"',
    b"[]",
    b"[{}]",
    b"{}",
    b"{",
    b"}",
    b"\x00",
    b"\xff",
    b'{"long":1,"must":"m"}',
    b' \r\n\t{"long":1,"must":"m"}\n ',
    b'\x0b{"long":1,"must":"m"}',
    b'\xef\xbb\xbf{"long":1,"must":"m"}',
    b'{"long":1,"must":"m"} ',
    b'{"long":1,"must":"m"}x',
    b'{"long":1,"must":"m"}{}',
    b'{"long":1,"must":"m"},{}',
    b'[{"long":1,"must":"m"}]',
    b'{"long":1,"must":"m\xff\xc3"}',
    b'{"long":1,"must":"m","\xff":1}',
    b'{"long":1,"must":"m",}',
    b'{"long":1 "must":"m"}',
    b'{"long":1,"must":null}',
    b'{"long":null,"must":null}',
    b'{"must":"m"}',
    b'{"long":"x"}',
    b'{"long":1,"must":"m","more":[1,{"a":NaN}]}',
    b'{"long":1,"must":"m","more":[1,{"a":{}}]}',
    b'{"LONG":1,"must":"m"}',
    b"{'long':1,'must':'m'}",
    b"{long:1,must:1}",
    b'{"long":1,"must":"m"}],"x":[{}',
]


def _values() -> list[bytes]:
    """Each token in each column, values of their own kind, and some of all with bytes changed."""
    chance = Random(seed_of_run())
    whole = [
        json.dumps({**WHOLE, "COLUMN": "TOKEN"})
        .replace('"COLUMN"', f'"{name}"')
        .replace('"TOKEN"', token)
        for name in SCHEMA.names
        if name not in WHOLE
        for token in TOKENS
    ]
    values = [*VALUES, *(value.encode() for value in whole)]
    for _ in range(1_500):
        value = bytearray(chance.choice(values))
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(value) + 1)
            value[at : at + chance.randint(0, 2)] = chance.choice(
                [b"", b'"', b",", b"{", b"}", b"[", b"]", b":", b"\\", b"1", b" ", b"\xf0", b"\n"]
            )
        values.append(bytes(value))
    return values


def _record(value: bytes, offset: int) -> Record:
    return Record(b"key", value, 0, (), "them", 0, offset)


def test_python_and_spark_find_the_same_problem(spark: SparkSession, tmp_path: Path) -> None:
    assert JsonCheck.is_for(SCHEMA)
    values = _values()
    found = JsonCheck(SCHEMA).problems(values)
    records = [_record(value, offset) for offset, value in enumerate(values)]
    frame = read_rows(spark, write_rows(tmp_path / "rows", [(0, record) for record in records]))
    rows = checked(frame, {0: JsonValue(SCHEMA)}).select("offset", "headers", "aside").collect()
    said = {}
    for row in rows:
        if row["aside"] is not None:
            headers = tuple((one["key"], bytes(one["value"])) for one in row["headers"])
            letter = read_dead(records[row["offset"]]._replace(headers=headers))
            assert letter is not None
            said[row["offset"]] = letter.detail
    unlike = {
        values[at]: (found.get(at), said.get(at))
        for at in range(len(values))
        if found.get(at) != said.get(at)
    }
    assert unlike == {}, f"seed {seed_of_run()}"
    assert UNREADABLE in found.values()
    assert missing("must") in found.values()
    assert len(found) < len(values)


def test_python_and_spark_read_the_same_fields_of_readable_records(
    spark: SparkSession, tmp_path: Path
) -> None:
    flat = StructType([one for one in SCHEMA.fields if Parsing.is_for(StructType([one]))])
    assert flat.names == ["text", "short", "int", "long", "yes", "must"]
    records = [_record(value, offset) for offset, value in enumerate(_values())]
    records[1] = records[1]._replace(value=None)
    records[2] = records[2]._replace(key=None)
    records[-1] = records[-1]._replace(headers=((("h", None)), ("h", b"1")))
    rows = [(0, record) for record in records]
    frame = read_rows(spark, write_rows(tmp_path / "rows", rows))
    as_format = JsonValue(flat)

    def rows_of(found: DataFrame) -> dict[int, Row]:
        return {row["offset"]: row for row in found.collect()}

    columns = ("offset", "headers", "aside", READ)
    # A filter by the mark parses each value several times.
    by_spark = rows_of(checked_alone(frame, 0, as_format).select(*columns))
    marks = {at for at, row in by_spark.items() if row["aside"] is not None}
    read = rows_of(readable_alone(frame, 0, as_format).select(*columns))
    assert read.keys() == by_spark.keys() - marks

    def fields(row: Row) -> tuple[object, ...]:
        # Spark has its own end behind the columns, and packing takes no headers for none.
        return None if row[READ] is None else row[READ][: len(flat)], row["headers"] or None

    unlike = {
        records[at].value: (fields(row), fields(by_spark[at]))
        for at, row in read.items()
        # Spark puts quotes around a number, as a text, that no double can hold.
        if fields(row) != fields(by_spark[at]) and "Infinity" not in tuple(row[READ] or ())
    }
    assert unlike == {}, f"seed {seed_of_run()}"
    assert by_spark[1][READ] is None
    dead = rows_of(dead_alone(frame, 0, as_format).select(*columns[:3]))
    assert dead.keys() == marks
    assert all(row["headers"] == by_spark[at]["headers"] for at, row in dead.items())
    assert {0, 2} <= marks


def test_a_value_that_passes_is_read() -> None:
    values = _values()
    found = JsonCheck(SCHEMA).problems(values)
    assert [
        value for at, value in enumerate(values) if at not in found and not read_json(value)
    ] == []


@pytest.mark.parametrize("bracket", [("[", "]"), ('{"a":', "}")])
def test_a_value_may_be_five_hundred_levels_deep(bracket: tuple[str, str]) -> None:
    opened, closed = bracket

    def deep(levels: int) -> bytes:
        inner = opened * (levels - 1) + "1" + closed * (levels - 1)
        return f'{{"text":{inner},"long":1,"must":"m"}}'.encode()

    wide = b'{"long":1,"must":"' + 600 * b"[" + b'\\"{","all":[' + b",".join(600 * [b"{}"]) + b"]}"
    check = JsonCheck(SCHEMA)
    assert check.problems([deep(500), deep(501), wide, deep(5_000)]) == {
        1: UNREADABLE,
        3: UNREADABLE,
    }
    assert read_json(deep(500)) is not None


def test_the_last_of_two_fields_with_one_name_counts() -> None:
    values = [b'{"n":"x","n":1}', b'{"n":1,"n":"x"}', b'{"n":1,"n":null}', b'{"n":null,"n":1}']
    must = StructType().add("n", LongType(), nullable=False)
    assert JsonCheck(must).problems(values) == {1: UNREADABLE, 2: missing("n")}


def test_a_value_of_a_megabyte_that_only_begins_texts_is_refused_at_once() -> None:
    value = b'{"must":"' + b'\\"' * 500_000 + b"[" * 600
    assert JsonCheck(SCHEMA).problems([value]) == {0: UNREADABLE}


@pytest.mark.parametrize(
    "kind",
    [
        ByteType(),
        DateType(),
        TimestampType(),
        DecimalType(10, 2),
        MapType(StringType(), LongType()),
        VarcharType(3),
        ArrayType(DateType()),
        StructType().add("at", TimestampType()),
    ],
    ids=repr,
)
def test_other_types_are_left_to_spark(kind: DataType) -> None:
    assert not JsonCheck.is_for(StructType().add("it", kind))


def test_unreadable_records_become_dead_letters_and_others_stay() -> None:
    own = (("trace", b"\xff"), ("none", None))
    batch = pa.RecordBatch.from_pydict(
        {
            "input": pa.array([0, 1, 0, 0, 1, 2], pa.int32()),
            "topic": ["a", "b", "a", "a", "b", "c"],
            "partition": pa.array([0, 0, 1, 1, 0, 3], pa.int32()),
            "offset": pa.array([5, 6, 7, 8, 9, 10]),
            "key": pa.array([b"k", None, b"k", None, b"k", None], pa.binary()),
            "value": pa.array([b"{}", b"x", None, b"{}", b"{", b"{"], pa.binary()),
            "headers": pa.array([encode_headers(own), None, None, None, None, None], pa.string()),
        }
    )
    check = JsonCheck(StructType().add("n", LongType(), nullable=False))
    rows = marked(batch, {0: check, 1: None}).to_pylist()
    letters = [
        read_dead(Record(row["key"], row["value"], 0, decode_headers(row["headers"]), "", 0, 0))
        for row in rows
        if row["aside"] is not None
    ]
    assert [(one.reason, one.detail, *one.record[3:]) for one in letters if one is not None] == [
        (Reason.UNDECODABLE, missing("n"), own, "a", 0, 5),
        (Reason.NULL_KEY, "the key is null", (), "b", 0, 6),
        (Reason.NULL_KEY, "the key is null", (), "a", 1, 8),
    ]
    asides = [None if row["aside"] is None else json.loads(row["aside"]) for row in rows]
    dead = {"verdict": "dead", "reason": "undecodable"}
    keyless = {"verdict": "dead", "reason": "null-key"}
    assert asides == [dead, keyless, None, keyless, None, None]
    # The third input has been checked elsewhere.
    unmarked = marked(batch, {})
    assert unmarked is batch


def test_the_time_of_an_unreadable_record_is_no_progress(
    spark: SparkSession, tmp_path: Path
) -> None:
    sent = [Record(b"k", b'{"n":1}', 5, (), "a", 0, 0), Record(b"k", b"{", 900, (), "a", 0, 1)]
    frame = read_rows(spark, write_rows(tmp_path / "rows", [(0, record) for record in sent]))
    check = JsonCheck(StructType().add("n", LongType()))
    rows = record_rows(frame.coalesce(1), Spread(tasks=1))
    bundles = bundled(rows, lambda _partition: [0], checks={0: check}).collect()
    columns = unbundled(bytes(row["bundle"]) for row in bundles)
    said = [None if text is None else json.loads(text)["verdict"] for text in columns["aside"]]
    found = zip(said, columns["offset"].tolist(), columns["timestamp_ms"].tolist(), strict=True)
    assert [*found] == [(None, 0, 5), (DEAD, 1, 900), (POSITION, 1, 5)]
