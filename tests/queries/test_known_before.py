"""A misspelt type or column is a sentence that names the nearest one, before any Java starts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    CharType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    VarcharType,
)

import headrace as hr
from headrace.contracts.errors import HeadraceError, JobInvalid, SchemaRefused
from headrace.spark_jobs.cli.job_file import load_job
from headrace.spark_jobs.queries.ddl import problem_of
from headrace.spark_jobs.queries.expressions import refuse_unreadable
from headrace.spark_jobs.queries.mentioned import columns_in
from headrace.testing import run
from tests.queries.test_query_file import GOOD, written

ORDERS = hr.stream("orders.cleaned", "order_id STRING, quantity BIGINT, tags ARRAY<STRING>")
PRICES = hr.table("prices.cleaned", "price_cents BIGINT", retention="30d")
JOINED = ORDERS.join_as_of(PRICES)


WRONG = (
    ("price_cents BIGNT", "`BIGNT` is no type of a column; did you mean `BIGINT`?"),
    ("a MAP<STRING, STRUCT<x: INT, y: DOUBEL>>", "`DOUBEL` is no type of a column; did you"),
    ("a ARRAY<STRNG>, b INT", "`STRNG` is no type of a column; did you mean `STRING`?"),
    ("a FOO", "`FOO` is no type of a column; write such as `STRING`, `BIGINT`"),
    ("a STRING b BIGINT", "`b` stands behind the type of `a`; put a comma between columns"),
    ("a", "`a` has no type; write such as `a BIGINT`"),
    ("a, b INT", "`a` has no type"),
    ("a INT,", "no column stands behind the comma after `a`; remove the comma"),
    ("a ARRAY<INT", "the `ARRAY` of `a` has no `>` behind it"),
    ("a INT>", "`>` closes nothing; remove it"),
)
RIGHT = (
    "a STRING, b DECIMAL(10, 2) NOT NULL COMMENT 'x, \\'y\\'', c ARRAY<MAP<STRING, BIGINT>>",
    "`a b` int, `c``d`: struct<x: int not null, y: array<array<double>>>, e struct<>",
    "a INTERVAL DAY TO SECOND, b INTERVAL YEAR, c STRING COLLATE UTF8_BINARY, d CHAR(3)",
    "a TIMESTAMP_NTZ, b TIMESTAMP_LTZ, c VARIANT, d DEC, e REAL, f LONG, g SHORT, h BYTE",
)
"""Spark reads these schemas, and not those; `tests/spark/test_queries.py` asks it."""


@pytest.mark.parametrize(("ddl", "said"), WRONG)
def test_a_schema_that_spark_refuses_is_a_sentence(ddl: str, said: str) -> None:
    assert (problem_of(ddl) or "").startswith(said)
    with pytest.raises(SchemaRefused) as refused:
        hr.table("x", ddl)
    assert str(refused.value).startswith(f"the schema of the table `x`: {said}")


@pytest.mark.parametrize("ddl", RIGHT)
def test_a_schema_that_spark_reads_is_none(ddl: str) -> None:
    assert problem_of(ddl) is None


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (CharType(3), "has a CHAR(3), which Spark cannot read from JSON; write STRING"),
        (VarcharType(9), "has a VARCHAR(9), which Spark cannot read from JSON; write STRING"),
        (MapType(IntegerType(), LongType()), "has a MAP<INT,BIGINT>, which Spark cannot read from"),
    ],
)
def test_a_type_that_json_is_not_read_as_is_a_sentence(kind: DataType, said: str) -> None:
    good = MapType(StringType(), ArrayType(StringType()))
    for each in (kind, ArrayType(kind), MapType(StringType(), StructType().add("b", kind))):
        with pytest.raises(SchemaRefused) as refused:
            refuse_unreadable(StructType().add("x", good).add("a", each), "orders")
        assert str(refused.value).startswith(f"the schema of `orders` {said}")
    refuse_unreadable(StructType().add("x", good), "orders")


@pytest.mark.parametrize(
    "make",
    [
        lambda: hr.stream("x.cleaned", "a INT, _Headrace_row INT"),
        lambda: ORDERS.select("quantity AS _headrace_alive"),
        lambda: PRICES.group_by("key").agg(hr.count().alias("_hr_kind")),
    ],
)
def test_a_column_with_a_name_of_headraces_own_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(JobInvalid, match="that begin with `_headrace` or `_hr_` are headrace's"):
        make()


def test_a_column_may_have_any_other_name() -> None:
    odd = hr.table("odd.cleaned", "`a``b` INT, `c d` INT, `_nth` INT", pipeline=None)
    table = """
        | key | value |
        | k | {"a`b":1,"c d":2,"_nth":3} |
    """
    shown = odd.select("*", "`a``b` + 1 AS more")
    assert run(shown, table).latest == {"k": {"a`b": 1, "c d": 2, "_nth": 3, "more": 2}}


@pytest.mark.parametrize(
    ("expression", "columns"),
    [
        ("a * b AS c", ["a", "b"]),
        ("payload.item.name", ["payload"]),
        ("items[0].name || m['k'] || `odd name`", ["items", "m", "odd name"]),
        ("aggregate(xs, 0, (sum, x) -> sum + x.n + more)", ["xs", "more"]),
        ("CASE WHEN a IS NULL THEN b ELSE CAST(c AS DECIMAL(9, 2)) END", ["a", "b", "c"]),
        ("timestampdiff(HOUR, a, time) + extract(DAY FROM b)", ["a", "time", "b"]),
        ("current_date || current_timestamp || user || localtimestamp", []),
        ("time + INTERVAL 1 DAY > '2024-01-01'", ["time"]),
        ("count(*)", []),
        ("comment = 'x' AND show > 1", ["comment", "show"]),
        ("no SQL (", []),
    ],
)
def test_the_columns_of_an_expression_are_found(expression: str, columns: list[str]) -> None:
    assert sorted(columns_in(expression)) == sorted(columns)


def test_a_column_may_have_the_name_of_a_command(caplog: pytest.LogCaptureFixture) -> None:
    notes = hr.table("notes", "comment STRING, show BIGINT", pipeline=None)
    shown = notes.filter("comment = 'x'").select("comment AS text", "show + 1 AS more")
    table = """
        | key | value |
        | a | {"comment":"x","show":2} |
        | b | {"comment":"y","show":2} |
    """
    assert run(shown, table).latest == {"a": {"text": "x", "more": 3}}
    assert [one for one in caplog.records if one.name.startswith("sqlglot")] == []


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: JOINED.select("quantiy * price_cents AS x"), "has `order_id`, `quantity`, `tags`"),
        (lambda: JOINED.filter("quantiy > 1"), "did you mean `quantity`?"),
        (lambda: JOINED.select("*", "2 AS two").filter("tow = 2"), "did you mean `two`?"),
        (lambda: JOINED.select("order_id").filter("quantity > 1"), "names a column `quantity`"),
        (lambda: PRICES.filter("tiem > '2024'"), "did you mean `time`?"),
    ],
)
def test_an_expression_names_columns_that_are_there(make: object, said: str) -> None:
    with pytest.raises(JobInvalid) as refused:
        make()  # type: ignore[operator]
    assert said in str(refused.value)


@pytest.mark.parametrize("on", [("order_id", "key"), 7])
def test_a_join_by_what_is_no_name_is_a_sentence(on: Any) -> None:
    said = "of the (table|stream) `.*` takes the name of a column, not .*; `select` computes one"
    with pytest.raises(JobInvalid, match=f"^`join_as_of` {said}"):
        hr.stream("o", "order_id STRING").join_as_of(PRICES, on=on)
    with pytest.raises(JobInvalid, match=f"^`join_on` {said}"):
        hr.table("o", "order_id STRING").join_on(PRICES, on)


@pytest.mark.parametrize(
    "expression",
    [
        "value AS v",
        "quantity + 1 AS more",
        "more * 2 AS most",
        "Quantity AS q",
        "transform(tags, tag -> upper(tag) || order_id) AS loud",
        "user AS who",
        "headers[0].value AS first",
        "true",
        "NULL",
        "1",
        "5L",
        "1e3",
    ],
)
def test_an_expression_that_spark_understands_is_not_refused(expression: str) -> None:
    JOINED.select("order_id AS value", "quantity + 1 AS more", "*").select("*", expression)


@pytest.mark.parametrize("schema", [StructType().add("a", StringType()), {"a": "STRING"}, dict])
def test_a_schema_that_is_neither_ddl_nor_a_model_is_a_sentence(schema: Any) -> None:
    with pytest.raises(
        SchemaRefused, match=r"the schema of the stream `x` is a .*; write DDL, such"
    ):
        hr.stream("x", schema)


def test_a_condition_may_be_a_word_of_sqls_own() -> None:
    table = '| key | value |\n| k | {"price_cents":1} |'
    assert run(PRICES.filter("true"), table).latest == {"k": {"price_cents": 1}}
    assert run(PRICES.filter("FALSE"), table).latest == {}


def printed(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    file = written(folder, text)
    command = [sys.executable, "-m", "headrace.services.cli", "spark", str(file), "--print"]
    nowhere = without_java(folder)
    return subprocess.run(command, capture_output=True, text=True, check=False, env=nowhere)


def without_java(folder: Path) -> dict[str, str]:
    """Return variables with which a process finds no Java."""
    return {"JAVA_HOME": str(folder / "no-java"), "PATH": str(folder)}


MISSPELT = (
    (
        GOOD.replace("price_cents BIGINT", "price_cents BIGNT"),
        ":10:35: tables.prices.schema: `BIGNT` is no type of a column; did you mean `BIGINT`?",
    ),
    (GOOD.replace("quantity *", "quantiy *"), "did you mean `quantity`?"),
    (GOOD.replace("o.key, order_id", "o.key, p.order_id"), "`p.order_id` names a column"),
    (GOOD.replace("= p.key", "= p.key WHERE quantiy > 1"), "`filter(quantiy > 1)` names"),
)


@pytest.mark.parametrize(("text", "said"), MISSPELT)
def test_a_file_is_checked_without_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    for name, value in without_java(tmp_path).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(HeadraceError) as refused:
        load_job(written(tmp_path, text))
    assert said in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


def test_print_checks_a_file_without_java(tmp_path: Path) -> None:
    text, said = MISSPELT[-1]
    done = printed(tmp_path, text)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.long("spark", why="its twin starts the same command, for a file that is wrong")
def test_print_names_the_call_of_a_file_that_is_right(tmp_path: Path) -> None:
    done = printed(tmp_path, GOOD)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("spark-submit ")


def test_a_fold_that_takes_nothing_out_is_refused_where_it_is_written() -> None:
    with pytest.raises(JobInvalid) as refused:
        PRICES.group_by("price_cents").agg(hr.reduce("price_cents"))
    assert "a table's row that changes must be taken out again" in str(refused.value)
    assert "`aggregate: {function: module:name}`" in str(refused.value)
