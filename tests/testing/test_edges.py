"""Values at the edges of a type, in tests of queries: Spark's answer, or a sentence."""

from __future__ import annotations

import math
from typing import Any

import pytest
from pyspark.sql import types as spark

import headrace as hr
from headrace.contracts.errors import JobInvalid, SparkNeeded
from headrace.testing import run
from headrace.testing.queries.casts import NoAnswer
from headrace.testing.queries.expressions import Compiler
from headrace.testing.queries.json_values import Unreadable, read, read_ours, write

_COLUMNS = {"s": spark.StringType(), "t": spark.TimestampType(), "d": spark.DoubleType()}


def _answer(text: str, **row: Any) -> Any:
    return Compiler(_COLUMNS, "select").named(f"{text} AS x").typed.run(row)


def test_an_exponent_that_no_decimal_has_gives_no_answer() -> None:
    with pytest.raises(NoAnswer, match="exponent"):
        _answer("CAST(s AS DECIMAL(5, 2))", s="1e9999999999999999999")
    assert _answer("TRY_CAST(s AS DECIMAL(5, 2))", s="1e9999999999999999999") is None


@pytest.mark.parametrize(("number", "digits"), [(1.5, 400), (1e308, 100), (5e-324, 400)])
def test_a_double_keeps_its_digits_where_fewer_are_rounded_to_more(
    number: float, digits: int
) -> None:
    assert _answer(f"round(d, {digits})", d=number) == number


def test_a_day_of_digits_of_another_script_is_left_to_spark() -> None:
    for kind, text in ("DATE", "２０26-01-31"), ("TIMESTAMP", "２０26-01-31T12:00:00Z"):  # noqa: RUF001 - digits of another script
        with pytest.raises(SparkNeeded, match="only Spark knows which"):
            _answer(f"CAST(s AS {kind})", s=text)


@pytest.mark.parametrize("zone", ["+18:01", "+19:00", "-00:60", "-99:00"])
def test_a_zone_that_nobody_has_is_left_to_spark(zone: str) -> None:
    assert _answer("CAST(s AS TIMESTAMP)", s="1970-01-01T18:00:00+18:00") == 0
    with pytest.raises(SparkNeeded, match="only Spark knows which time"):
        _answer("CAST(s AS TIMESTAMP)", s=f"2026-01-31T12:00:00{zone}")


def test_a_time_beyond_the_days_of_python_is_left_to_spark() -> None:
    with pytest.raises(SparkNeeded, match="only Spark knows on which day"):
        _answer("CAST(t AS DATE)", t=10**18)


def _read(kind: str, value: str) -> Any:
    schema = spark.StructType().add("x", kind)
    return read(f'{{"x":{value}}}'.encode(), schema)["x"]


def test_half_a_character_is_a_question_mark_as_in_spark() -> None:
    assert _read("string", r'"a\ud83d"') == "a?"
    assert _read("string", r'"\ude00\ud83d\ude00"') == "?\U0001f600"


@pytest.mark.parametrize("kind", ["byte", "long", "timestamp"])
def test_a_number_of_thousands_of_digits_is_unreadable(kind: str) -> None:
    with pytest.raises(Unreadable):
        _read(kind, "9" * 5_000)


def test_a_decimal_of_a_huge_exponent_is_left_to_spark() -> None:
    with pytest.raises(SparkNeeded, match="smaller exponent"):
        _read("decimal(10,2)", "1e99999999999999999999")


@pytest.mark.parametrize("value", ['"NaN"', '"Infinity"', '"-inf"', '"+INF"', '""', "true", "[]"])
def test_a_text_is_no_double_of_a_record(value: str) -> None:
    with pytest.raises(Unreadable):
        _read("double", value)


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan, -0.0, 5e-324])
def test_a_double_that_a_step_wrote_is_read_again(number: float) -> None:
    schema = spark.StructType().add("x", spark.ArrayType(spark.DoubleType()))
    written = write({"x": ([number], schema["x"].dataType)})
    assert repr(read_ours(written, schema)) == repr({"x": [number]})


def test_infinity_from_a_step_of_a_table_is_a_value_of_its_row() -> None:
    table = hr.table("ratios.cleaned", "ratio DOUBLE").select("ratio * 1e308 AS big")
    (row,) = run(table, [{"key": "k", "time": "1s", "value": {"ratio": 10}}]).rows
    assert row.value == b'{"big":"Infinity"}'


@pytest.mark.parametrize("seconds", ["1700000000000", "-62135596801"])
def test_a_time_that_python_cannot_write_is_left_to_spark(seconds: str) -> None:
    micros = _read("timestamp", seconds)
    with pytest.raises(SparkNeeded, match="read milliseconds as a BIGINT"):
        write({"at": (micros, spark.TimestampType())})


def test_a_name_beyond_ascii_needs_backticks_as_in_spark() -> None:
    compiler = Compiler({"größe": spark.LongType()}, "select")
    assert compiler.named("größe").name == "größe"
    assert compiler.named("`größe` + 1 AS `höhe`").typed.run({"größe": 1}) == 2
    for text in "größe + 1 AS more", "1 AS höhe":
        with pytest.raises(JobInvalid, match="only between backticks"):
            compiler.named(text)
