"""Make the rows of a query in the tasks that join them, where Python makes them as Spark would.

Otherwise Java parses each record and the row that it met, computes the user's expressions, and
writes JSON, in a stage behind the tasks. A query is plain if

- its stream meets a table by the keys of records, and both come as JSON of plain types,
- its table has no steps, and its stream's and its own select columns, their sums, differences and
  products.

All of it is known by the types of columns, before anything is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructField
from sqlglot import exp
from sqlglot.errors import SqlglotError

from headrace.contracts.errors import JobFailed
from headrace.spark_jobs.jobs.rows import rows_in_columns
from headrace.spark_jobs.queries.described import ALL, Select
from headrace.spark_jobs.queries.mentioned import selected
from headrace.spark_jobs.queries.names import OWN, column_of
from headrace.spark_jobs.queries.streams import JoinedStream
from headrace.spark_jobs.queries.topologies import STREAM, TABLE
from headrace.spark_jobs.read.parsed import ARROW_TYPES, columns_of_repeated, columns_of_written
from headrace.spark_jobs.versioned.records import objects
from headrace.spark_jobs.write.row_json import json_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql.types import StructType

    from headrace.spark_jobs.queries.described import Filter, Query
    from headrace.spark_jobs.versioned.records import Objects

_OPERATORS: Mapping[type[Any], str] = {exp.Add: "add", exp.Sub: "subtract", exp.Mul: "multiply"}
_WHOLE = {LongType(), IntegerType()}
"""The types of numbers that Arrow adds and multiplies as Spark does, and refuses as Spark does."""


@dataclass(frozen=True)
class Computed:
    """A column that is computed of two others."""

    operator: str
    left: Term
    right: Term
    kind: DataType


@dataclass(frozen=True)
class Given:
    """A field of a record's value or of the table's; or the key, which has no side."""

    side: str
    field: StructField

    @property
    def kind(self) -> DataType:
        """Its type."""
        return self.field.dataType


Term = Computed | Given
_KEY = Given("", StructField("key", StringType()))


def plain_rows(
    query: Query, schemas: Mapping[str, StructType], row: StructType
) -> PlainRows | None:
    """Return what makes the rows of a query, None if it is not plain.

    `schemas` are those of the values of its inputs, and `row` has the columns that Spark found.
    """
    if not isinstance(query, JoinedStream) or query.on or query.corrections or query.history:
        return None
    if query.table.steps or any(source.registry for source in query.sources):
        return None
    stream, table = schemas[STREAM], schemas[TABLE]
    if not all(type(each.dataType) in ARROW_TYPES for each in (*stream, *table, *row)):
        return None
    columns = _stepped(_columns_of(STREAM, stream), query.stream.steps)
    if columns is not None:
        columns = _stepped(columns | _columns_of(TABLE, table), query.steps)
    if columns is None or [each.kind for each in columns.values()] != [
        each.dataType for each in row
    ]:
        return None
    return PlainRows(tuple(row.names), tuple(columns.values()))


@dataclass(frozen=True)
class PlainRows:
    """Makes rows of a record's key and value, and of the table's value."""

    names: tuple[str, ...]
    terms: tuple[Term, ...]

    def row_of(self, key: bytes | None, value: bytes, table_value: bytes | None) -> bytes:
        """Make the value of one row."""
        met = pa.array([table_value], pa.large_binary())
        rows = self.rows_of(objects([key]), objects([value]), met)
        assert rows is not None, "no column of one row has two gigabytes"
        row: bytes = json_of(rows)[0].as_py()
        return row

    def rows_of(
        self, keys: Objects, values: Objects, table_values: pa.LargeBinaryArray
    ) -> pa.StructArray | None:
        """Make the fields of many rows, None if a column of them is too long."""
        fields: dict[str, list[StructField]] = {STREAM: [], TABLE: []}
        for given in dict.fromkeys(each for term in self.terms for each in _given_of(term)):
            if given != _KEY:
                fields[given.side].append(given.field)
        read = {
            STREAM: columns_of_written(values.tolist(), fields[STREAM]),
            TABLE: columns_of_repeated(table_values, fields[TABLE]),
        }
        columns = {
            Given(side, field): column
            for side, own in fields.items()
            for field, column in zip(own, read[side], strict=True)
        }
        columns[_KEY] = _valid_texts(keys)
        return rows_in_columns(self.names, [_computed(term, columns) for term in self.terms])

    @property
    def computes(self) -> bool:
        """Whether any of the columns is computed, so that Spark's settings decide how."""
        return any(isinstance(term, Computed) for term in self.terms)


def unanswered(what: str) -> JobFailed:
    """Make the error of an expression that has no answer for a row."""
    return JobFailed(
        f"an expression of this job has no answer for a row: {what} Spark's functions with `try_`"
        " before their names answer null then; change the expression, and start the job again"
    )


def _columns_of(side: str, fields: StructType) -> dict[str, Term]:
    return {column_of(each.name): Given(side, each) for each in fields}


def _stepped(
    columns: Mapping[str, Term], steps: Sequence[Filter | Select]
) -> dict[str, Term] | None:
    """Return the columns behind some steps, None if one of these is not plain."""
    found = dict(columns)
    for step in steps:
        if not isinstance(step, Select):
            return None
        chosen: dict[str, Term] = {}
        for each in step.expressions:
            named = found if each.text == ALL else _named(each.text, found)
            if named is None or each.column is not None:
                return None
            chosen |= named
        found = chosen
    return found


def _named(expression: str, columns: Mapping[str, Term]) -> dict[str, Term] | None:
    """Return the column that an expression selects, by its name; None if it is not plain."""
    try:
        statements = selected(expression)
    except (SqlglotError, ValueError):
        return None
    if len(statements) != 1 or len(statements[0].expressions) != 1:
        return None
    (parsed,) = statements[0].expressions
    term = _term(parsed.unalias(), {name.lower(): term for name, term in columns.items()})
    name = parsed.alias_or_name
    return {name: term} if term is not None and name else None


def _term(parsed: Any, columns: Mapping[str, Term]) -> Term | None:
    parsed = parsed.unnest()
    if isinstance(parsed, exp.Column):
        name = parsed.name.lower()
        if len(parsed.parts) > 1 or (name in OWN and name != _KEY.field.name):
            return None
        return columns.get(name, _KEY if name == _KEY.field.name else None)
    operator = _OPERATORS.get(type(parsed))
    if operator is None:
        return None
    left, right = (_term(side, columns) for side in (parsed.this, parsed.expression))
    if left is None or right is None or left.kind != right.kind or left.kind not in _WHOLE:
        return None
    return Computed(operator, left, right, left.kind)


def _valid_texts(keys: Objects) -> pa.StringArray:
    """Return keys as texts; bytes that are no text are null."""
    try:
        return pa.array(keys, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([*map(_valid_text, keys)], pa.string())


def _valid_text(key: bytes | None) -> str | None:
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        return None


def _given_of(term: Term) -> list[Given]:
    if isinstance(term, Given):
        return [term]
    return [*_given_of(term.left), *_given_of(term.right)]


def _computed(term: Term, columns: Mapping[Given, pa.Array]) -> pa.Array:
    if isinstance(term, Given):
        return columns[term]
    left, right = (_computed(each, columns) for each in (term.left, term.right))
    try:
        return pc.call_function(f"{term.operator}_checked", [left, right])
    except pa.ArrowInvalid as error:
        bits = ARROW_TYPES[type(term.kind)].bit_width
        message = f"what comes of a `{term.operator}` does not fit {bits} bits."
        raise unanswered(message) from error
