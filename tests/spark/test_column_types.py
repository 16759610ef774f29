"""Columns of a table and the values that they hold, by a writer's ways."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
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
    NullType,
    StringType,
    StructType,
    TimestampType,
)

from headrace.contracts.errors import JobInvalid
from headrace.spark_jobs.write.catalogs import first_line
from headrace.spark_jobs.write.column_types import Writer, refuse_untyped
from headrace.spark_jobs.write.delta_place import DeltaPlace
from headrace.spark_jobs.write.parquet import ParquetSink

APPENDS = Writer(widens=False, fills=True)
EVOLVES = Writer(fills=True, adds=True)
WORD, WHOLE, LONG = StringType(), IntegerType(), LongType()
ONE = StructType().add("a", WHOLE)
TWO = StructType().add("a", WHOLE).add("b", WORD)


def is_taken(writer: Writer, there: DataType, rows: DataType) -> bool:
    try:
        writer.refuse_other_types("rows", table_of(there), table_of(rows))
    except JobInvalid:
        return False
    return True


def table_of(kind: DataType) -> StructType:
    return StructType().add("key", WORD).add("v", kind)


@pytest.mark.parametrize(
    ("larger", "smaller"),
    [
        (LONG, WHOLE),
        (WHOLE, ByteType()),
        (DoubleType(), FloatType()),
        (DecimalType(12, 2), DecimalType(10, 2)),
        (DecimalType(12, 3), DecimalType(11, 2)),
        (ArrayType(LONG), ArrayType(WHOLE)),
        (MapType(WORD, StructType().add("a", LONG)), MapType(WORD, StructType().add("A", WHOLE))),
    ],
    ids=str,
)
def test_a_column_holds_smaller_numbers_where_the_writer_widens_and_never_larger_ones(
    larger: DataType, smaller: DataType
) -> None:
    assert is_taken(Writer(), larger, smaller)
    assert not is_taken(APPENDS, larger, smaller)
    assert not is_taken(Writer(), smaller, larger)


@pytest.mark.parametrize(
    ("there", "rows"),
    [
        (BooleanType(), LONG),
        (WORD, LONG),
        (DateType(), TimestampType()),
        (DoubleType(), LONG),
        (WORD, ONE),
        (ArrayType(WORD), ArrayType(WHOLE)),
        (DecimalType(12, 3), DecimalType(12, 2)),
    ],
    ids=str,
)
def test_no_value_becomes_one_of_another_kind(there: DataType, rows: DataType) -> None:
    assert not any(is_taken(one, there, rows) for one in (Writer(), APPENDS, EVOLVES))


def test_a_struct_has_the_fields_of_the_rows_unless_a_writer_makes_it_have_them() -> None:
    writers = Writer(), APPENDS, EVOLVES
    assert [is_taken(each, TWO, ONE) for each in writers] == [False, True, True]
    assert [is_taken(each, ONE, TWO) for each in writers] == [False, False, True]


def test_a_column_that_differs_is_named_with_both_types() -> None:
    sentence = "rows has the column `v` as `boolean`, and the rows have it as `array<int>`; give"
    with pytest.raises(JobInvalid, match=sentence):
        Writer().refuse_other_types("rows", table_of(BooleanType()), table_of(ArrayType(WHOLE)))
    # Columns that only one of them has are told by others.
    Writer().refuse_other_types("rows", StructType(), table_of(WHOLE))


@pytest.mark.parametrize("kind", [NullType(), ArrayType(NullType()), StructType().add("a", "void")])
def test_a_column_that_is_always_null_needs_a_type_for_a_new_table(kind: DataType) -> None:
    with pytest.raises(
        JobInvalid, match=r"column `v` without a type.+`CAST\(NULL AS STRING\) AS v`"
    ):
        refuse_untyped(table_of(kind))
    refuse_untyped(table_of(MapType(WORD, WHOLE)))


def test_a_table_that_spark_does_not_write_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = AnalysisException("Found invalid character(s) in the column names.\nA page of advice")

    def refuse(*_: object) -> None:
        raise refusal

    writer = SimpleNamespace(mode=lambda _: SimpleNamespace(parquet=refuse))
    frame = SimpleNamespace(schema=table_of(WORD), write=writer, sparkSession=None)
    module = "headrace.spark_jobs.write"
    monkeypatch.setattr(f"{module}.parquet.query_id_of", lambda _: "id")
    monkeypatch.setattr(f"{module}.delta_place.make_table", refuse)
    monkeypatch.setattr(ParquetSink, "_check", lambda *_: None)
    monkeypatch.setattr(f"{module}.delta_place.Folder", lambda *_: None)
    monkeypatch.setattr(f"{module}.delta_place.has_rows_of_parquet", lambda _: False)
    monkeypatch.setattr(DeltaPlace, "exists", lambda *_: False)
    with pytest.raises(JobInvalid, match=r"^rows cannot be written to: Found .+ column names\.$"):
        ParquetSink("query", "rows").write(cast("Any", frame), 0)
    with pytest.raises(JobInvalid, match=r"^rows cannot be made: Found .+ column names\.$"):
        DeltaPlace(None, "rows").make(cast("SparkSession", None), table_of(WORD))


def test_a_reason_that_a_library_lists_below_its_first_line_is_told_with_it() -> None:
    listed = AnalysisException("Invalid schema for v2:\n- Invalid type for x: variant is not\nMore")
    assert first_line(listed) == "Invalid schema for v2: Invalid type for x: variant is not"
    assert first_line(AnalysisException("A reason.\nA plan")) == "A reason."
