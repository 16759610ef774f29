"""Compares the answers of Spark with those that tests of queries give without it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)
from pyspark.sql import types as spark

import headrace as hr
from headrace.contracts.errors import SparkNeeded
from headrace.spark_jobs.queries.expressions import _JSON
from headrace.spark_jobs.queries.topologies import inputs_of
from headrace.spark_jobs.read.decode import JsonValue, checked
from headrace.testing.queries.casts import NoAnswer
from headrace.testing.queries.expressions import Compiler
from headrace.testing.queries.json_values import Unreadable, read, write
from headrace.testing.queries.kinds import struct_of

DDL = (
    "i INT, j INT, l BIGINT, m BIGINT, p DECIMAL(10, 2), q DECIMAL(38, 18), d DOUBLE, e DOUBLE,"
    " s STRING, t STRING, b BOOLEAN, c BOOLEAN, at TIMESTAMP, day DATE"
)
VALUES: dict[str, tuple[str, ...]] = {
    "i": ("null", "0", "1", "-7", "2147483647", "-2147483648"),
    "j": ("2", "0", "null", "-3"),
    "l": ("null", "0", "5", "-9223372036854775808", "9223372036854775807", "1000000007"),
    "m": ("3", "-1", "0", "null"),
    "p": ("null", "0", "0.10", "-12345678.99", "99999999.99", "3.005"),
    "q": ("null", "0.000000000000000001", "-1.5", "12345678901234567890.123456789012345678", "0"),
    "d": ("null", "0.0", "-0.0", "0.1", "1e300", "-2.5", "1234567.125", "1e7", "0.001", "1e-5"),
    "e": ("3", "0.0", "null", "1e10", "-0.25"),
    "s": ("null", '""', '" Ab "', '"12"', '"a_b%"', '"é"', '"3.75"', '"x\\u0001\\n\\"y"'),
    "t": ('"b"', '"A"', "null", '"ab"'),
    "b": ("null", "true", "false"),
    "c": ("false", "null", "true"),
    "at": (
        "null",
        '"2020-02-29T23:59:59.999999Z"',
        '"1969-12-31T23:00:00Z"',
        '"2024-05-06T07:08:09+02:00"',
    ),
    "day": ('"2020-02-29"', "null", '"1969-12-31"'),
}  # fmt: skip
COLUMNS: dict[str, tuple[str, ...]] = {
    "whole": ("i", "j", "l", "m"),
    "number": ("i", "j", "l", "m", "p", "q", "d", "e"),
    "text": ("s", "t"),
    "truth": ("b", "c"),
    "exact": ("i", "j", "l", "m", "p", "q"),
}
"""Columns by kind of expression; Java 17 writes some doubles with a digit too many, so that a text
is made of an exact number alone."""
LITERALS = {
    "whole": ("0", "1", "-1", "7", "100", "3000000000"),
    "number": ("0", "1", "-1", "2", "10", "1.5", "0.001", "2.00", "1e3", "-7"),
    "text": ("'a'", "''", "'Ab'", "'12'"),
    "truth": ("true", "false", "NULL"),
    "exact": ("0", "1", "-1", "2", "10", "1.5", "0.001", "2.00", "-7"),
}


def rows(seed: int, size: int) -> list[str]:
    """Values of DDL as JSON."""
    luck = random.Random(seed)
    return [
        "{" + ",".join(f'"{name}":{luck.choice(some)}' for name, some in VALUES.items()) + "}"
        for _ in range(size)
    ]


class Drawn:
    """Draws expressions of a kind, which may or may not have an answer."""

    def __init__(self, seed: int) -> None:
        self._luck = random.Random(seed)

    def expression(self, depth: int = 3) -> str:
        """One of any kind."""
        return self._of(self._luck.choice(("whole", "number", "text", "truth")), depth)

    def _of(self, kind: str, depth: int) -> str:
        if depth == 0 or self._luck.random() < 0.2:
            some = COLUMNS if self._luck.random() < 0.7 else LITERALS
            return self._luck.choice(some[kind])
        form = self._luck.choice(FORMS[kind])
        return "".join(
            self._of(part[1:], depth - 1) if part.startswith("@") else part
            for part in form.split("~")
        )


READ: dict[str, tuple[str, ...]] = {
    "BIGINT": (
        "1", "1.0", '"5"', '""', "true", "9223372036854775808", "1e2", "[1]", '{"a":1}', "null",
    ),
    "INT": ("1", "2147483648", "1.5", "9" * 500),
    "DOUBLE": (
        "1", "1.5", "1e400", '"1.5"', '""', "true", "1e-320", "0.1", "100.0", "1E7", "12345678.9",
        "1.0E-4", "2e-3", "5.684341886080802E-14",
    ),
    "DECIMAL(10, 2)": (
        "1", "1.005", "1.015", "99999999.994", "99999999.995", "1e3", "true", "0", "-0.001",
    ),
    "DECIMAL(38, 18)": ("0", "1e-18", "0.000001", "1", "123456789012345678901.5"),
    "STRING": (
        '"a"', "1", "true", '"\\u0001"', '"\\u001f\\u007f\\u2028"', '""', '"\\/"', '"é"',
        '"a\\ud83d"', '"\\ude00\\ud83d\\ude00"',
    ),
    "BOOLEAN": ("true", '"true"', "1", "0"),
    "TIMESTAMP": (
        '"2020-01-01T00:00:00Z"', '"2020-01-01T00:00:00.1Z"', '"2020-01-01 00:00:00"', "1", "1.5",
        '"2020-01-01T00:00:00.123456+01:00"', "true", '"2020-13-01T00:00:00Z"', "-1",
        '"2020-02-30T00:00:00Z"', '"0001-01-01T00:00:00Z"', '"9999-12-31T23:59:59.999999Z"',
        "1700000000000", "9" * 20,
    ),
    "DATE": ('"2020-01-01"', '"2020-02-30"', '"0001-01-01"'),
    "ARRAY<INT>": ("[1,null]", "[]", "1", '["a"]'),
    "STRUCT<a: INT, b: STRING>": ('{"a":1,"c":2}', "{}", "1", '{"a":"x"}'),
}  # fmt: skip
"""Values of a field, by the type of its column."""
WHOLE_VALUES = (
    '{"y":1}', '{"x":null}', "1", '"a"', '{"x":1', '{"x":1} y', '{"x":1,"x":2}', "true", "x", "{}",
    '{"X":1}', "{'x':1}", '{"x":NaN}', '{"x":01}', '{"x":1,}', '  {"x":1}',
    '{"x":1}\r\n\t ', "", " ", "null",
    '{"x":1}{"x":2}', '{"x":1},{"x":2}', '{"x":1}]', '{"x":1}]}', "[]",
    '[{"x":1}]', '{"x":1},"y":2', '{"x":1}}', '{"x":1},', ',{"x":1}', '{"x":1},null', "\ufeff{}",
)  # fmt: skip
FORMS: dict[str, tuple[str, ...]] = {
    "whole": (
        "(~@whole~ + ~@whole~)", "(~@whole~ - ~@whole~)", "(~@whole~ * ~@whole~)",
        "(~@whole~ div ~@whole~)", "(~@whole~ % ~@whole~)", "abs(~@whole~)", "-(~@whole~)",
        "length(~@text~)", "CAST(~@number~ AS INT)", "CAST(~@number~ AS BIGINT)",
        "coalesce(~@whole~, ~@whole~)", "TRY_CAST(~@number~ AS SMALLINT)",
        "CASE WHEN ~@truth~ THEN ~@whole~ ELSE ~@whole~ END", "nullif(~@whole~, ~@whole~)",
    ),
    "number": (
        "(~@number~ + ~@number~)", "(~@number~ - ~@number~)", "(~@number~ * ~@number~)",
        "(~@number~ / ~@number~)", "(~@number~ % ~@number~)", "-(~@number~)", "@whole",
        "CAST(~@number~ AS DECIMAL(12, 3))", "TRY_CAST(~@number~ AS DECIMAL(4, 1))",
        "CAST(~@whole~ AS DOUBLE)", "coalesce(~@number~, ~@number~)",
        "if(~@truth~, ~@number~, ~@number~)", "TRY_CAST(~@text~ AS DECIMAL(8, 2))",
        "round(~@number~)", "round(~@number~, 2)", "round(~@number~, 20)", "@exact",
    ),
    "exact": (
        "(~@exact~ + ~@exact~)", "(~@exact~ - ~@exact~)", "(~@exact~ * ~@exact~)",
        "(~@exact~ % ~@exact~)", "-(~@exact~)", "@whole", "coalesce(~@exact~, ~@exact~)",
        "CAST(~@number~ AS DECIMAL(12, 3))", "TRY_CAST(~@number~ AS DECIMAL(4, 1))",
        "if(~@truth~, ~@exact~, ~@exact~)", "TRY_CAST(~@text~ AS DECIMAL(8, 2))",
        "round(~@exact~)", "round(~@exact~, 2)", "round(~@exact~, 20)",
    ),
    "text": (
        "upper(~@text~)", "lower(~@text~)", "concat(~@text~, ~@text~)", "(~@text~ || ~@text~)",
        "trim(~@text~)", "ltrim(~@text~)", "rtrim(~@text~)", "substring(~@text~, 1, 2)",
        "substring(~@text~, -2, 1)", "substring(~@text~, 0)", "CAST(~@exact~ AS STRING)",
        "CAST(~@truth~ AS STRING)", "coalesce(~@text~, ~@text~)",
    ),
    "truth": (
        "(~@number~ < ~@number~)", "(~@number~ = ~@number~)", "(~@number~ >= ~@number~)",
        "(~@text~ < ~@text~)", "(~@text~ <> ~@text~)", "(~@truth~ AND ~@truth~)",
        "(~@truth~ OR ~@truth~)", "(NOT ~@truth~)", "(~@number~ IS NULL)", "(~@text~ IS NOT NULL)",
        "(~@number~ <=> ~@number~)", "(~@number~ IN (~@number~, ~@number~))",
        "(~@number~ BETWEEN ~@number~ AND ~@number~)", "(~@text~ LIKE 'a%')",
        "(~@text~ NOT LIKE '_b_%')", "isnull(~@truth~)", "(at < date_trunc('HOUR', at))",
    ),
}  # fmt: skip


def differences(session: SparkSession, expressions: Sequence[str], some: list[str]) -> list[str]:
    """Where Spark answers otherwise: by type, by text, or by failing."""
    schema = struct_of(hr.stream("x", DDL).source)
    kinds = {field.name: field.dataType for field in schema.fields}
    taken = [read(row.encode(), schema) for row in some]
    answers = {text: found for text in expressions if (found := _answers(text, kinds, taken))}
    assert len(answers) > len(expressions) * 0.9, "most expressions are refused"
    frame = session.createDataFrame(list(enumerate(some)), "id INT, value STRING")
    frame = frame.withColumn("v", F.from_json("value", schema)).select("id", "v.*").cache()
    return list(_compared(frame, answers, some))


REFUSED = "only Spark knows"
Answers = tuple[spark.DataType, list[str | None]]


def _answers(
    text: str, kinds: dict[str, spark.DataType], taken: list[dict[str, Any]]
) -> Answers | None:
    """The type and the JSON of each row, None for one without an answer; None if all is refused."""
    try:
        typed = Compiler(kinds, text).named(f"{text} AS x").typed
    except SparkNeeded:
        return None
    found: list[str | None] = []
    for row in taken:
        try:
            found.append(write({"x": (typed.run(row), typed.kind)}).decode())
        except NoAnswer:
            found.append(None)
        except SparkNeeded:
            found.append(REFUSED)
    return typed.kind, found


def _compared(frame: Any, answers: dict[str, Answers], some: list[str]) -> Iterator[str]:
    columns = {}
    for number, (text, (_, found)) in enumerate(answers.items()):
        known = [at for at, each in enumerate(found) if each not in {None, REFUSED}]
        chosen = F.when(F.col("id").isin(known), F.expr(text))
        columns[f"x{number}"] = F.to_json(F.struct(chosen.alias("x")), _JSON)
        try:
            kind = frame.select(F.expr(text).alias("x")).schema["x"].dataType
        except PySparkException as refused:
            yield f"{text} is refused: {refused}"
            columns.pop(f"x{number}")
            continue
        if kind != answers[text][0]:
            yield f"{text} is a {answers[text][0].simpleString()} here, and a {kind.simpleString()}"
    for row in frame.select("id", *(each.alias(n) for n, each in columns.items())).collect():
        for number, (text, (kind, found)) in enumerate(answers.items()):
            ours = found[row["id"]] if f"x{number}" in columns else None
            if ours not in {None, REFUSED} and not _alike(kind, ours, row[f"x{number}"]):
                yield f"{text} is {ours} here, and {row[f'x{number}']}, of {some[row['id']]}"
    for text, (_, found) in answers.items():
        if None in found:
            at = found.index(None)
            row = frame.where(F.col("id") == at)
            try:
                row.select(F.expr(text)).collect()
                with _as_written(frame.sparkSession):
                    answer = row.select(F.expr(text)).collect()
            except PySparkException:
                continue
            yield f"{text} has no answer here, and {answer[0][0]}, of {some[at]}"


PLANNING = "spark.sql.optimizer.excludedRules"
RULES = (
    "BooleanSimplification", "ConstantFolding", "ConstantPropagation", "LikeSimplification",
    "NullPropagation", "OptimizeIn", "PushFoldableIntoBranches", "ReorderAssociativeOperator",
    "SimplifyBinaryComparison", "SimplifyCasts", "SimplifyConditionals",
)  # fmt: skip


@contextmanager
def _as_written(session: SparkSession) -> Iterator[None]:
    """Let Spark compute all that is written, since its planning takes some errors out."""
    rules = (f"org.apache.spark.sql.catalyst.optimizer.{name}" for name in RULES)
    session.conf.set(PLANNING, ",".join(rules))
    try:
        yield
    finally:
        session.conf.unset(PLANNING)


def _alike(kind: spark.DataType, ours: str, found: str) -> bool:
    """Whether two JSON texts are the same; Java 17 writes some doubles with a digit too many."""
    if ours == found or not isinstance(kind, spark.DoubleType):
        return ours == found
    return bool(json.loads(ours) == json.loads(found))


def read_differences(session: SparkSession, kind: str, values: Sequence[str]) -> list[str]:
    """Where Spark reads values of a column otherwise: as another value, or as a dead record."""
    table = hr.table("t", f"x {kind}", pipeline=None)
    schema = struct_of(inputs_of(table)["table"])
    fields = (
        "input INT, topic STRING, partition INT, offset BIGINT, key BINARY, value BINARY,"
        " headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    )
    data: list[Any] = [
        (0, "t", 0, at, b"k", bytearray(value.encode()), []) for at, value in enumerate(values)
    ]
    frame = checked(session.createDataFrame(data, fields), {0: JsonValue(schema)})
    parsed = JsonValue(schema).parse(F.col("value"))
    alive = F.to_json(F.struct(parsed["x"].alias("x")), _JSON)
    found = frame.select("offset", F.when(F.col("aside").isNull(), alive).alias("x")).collect()
    wrong = []
    for row in found:
        value = values[row["offset"]]
        try:
            ours = write({"x": (read(value.encode(), schema)["x"], schema["x"].dataType)}).decode()
        except Unreadable:
            ours = None
        except SparkNeeded:
            continue
        if ours is None or row["x"] is None:
            same = ours == row["x"]
        else:
            same = _alike(schema["x"].dataType, ours, row["x"])
        if not same:
            wrong.append(f"{kind} {value}: {ours} here, and {row['x']}")
    return wrong
