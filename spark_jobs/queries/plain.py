"""Make the rows of a query in the tasks that join them, where Python makes them as Spark would.

Otherwise Java parses each record and the row that it met, computes the user's expressions, and
writes JSON, in a stage behind the tasks. A query is plain if

- its stream meets a table by the keys of records, and the values of both are of plain types,
- its table has no steps, and its stream's and its own have plain terms alone (`plain_terms`).

All of it is known by the types of columns, before anything is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headrace.spark_jobs.jobs.rows import rows_in_columns, texts_of
from headrace.spark_jobs.queries.described import ALL, Filter
from headrace.spark_jobs.queries.names import column_of
from headrace.spark_jobs.queries.plain_terms import (
    KEY,
    Computed,
    Given,
    Term,
    computed,
    condition,
    given_in,
    named,
)
from headrace.spark_jobs.queries.streams import JoinedStream
from headrace.spark_jobs.queries.topologies import STREAM, TABLE
from headrace.spark_jobs.read.parsed import ARROW_TYPES, columns_of_repeated, columns_of_written
from headrace.spark_jobs.versioned.records import objects
from headrace.spark_jobs.write.row_json import json_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql.types import StructType

    from headrace.spark_jobs.queries.described import Query, Select
    from headrace.spark_jobs.versioned.records import Objects

    Columns = Mapping[str, Term]


def plain_rows(
    query: Query, schemas: Mapping[str, StructType], row: StructType
) -> PlainRows | None:
    """Return what makes the rows of a query, None if it is not plain.

    `schemas` are those of the values of its inputs, and `row` has the columns that Spark found.
    """
    if not isinstance(query, JoinedStream) or query.on or query.corrections or query.history:
        return None
    if query.table.steps:
        return None
    stream, table = schemas[STREAM], schemas[TABLE]
    if not all(type(each.dataType) in ARROW_TYPES for each in (*stream, *table, *row)):
        return None
    found = _stepped(_columns_of(STREAM, stream), query.stream.steps)
    if found is None:
        return None
    columns, early = found
    found = _stepped({**columns, **_columns_of(TABLE, table)}, query.steps)
    if found is None:
        return None
    columns, late = found
    if [each.kind for each in columns.values()] != [each.dataType for each in row]:
        return None
    return PlainRows(tuple(row.names), tuple(columns.values()), (*early, *late))


@dataclass(frozen=True)
class PlainRows:
    """Makes rows of a record's key and value, and of the table's value."""

    names: tuple[str, ...]
    terms: tuple[Term, ...]
    conditions: tuple[Term, ...] = ()
    """A row of which one is not true is left out."""
    encode: Callable[[pa.StructArray], pa.BinaryArray] | None = None
    """Makes the values of rows that are no JSON."""

    @property
    def computes(self) -> bool:
        """Whether Spark's settings decide how a column is computed."""
        return any(isinstance(term, Computed) for term in self.terms)

    def row_of(self, key: bytes | None, value: bytes, table_value: bytes | None) -> bytes | None:
        """Make the value of one row, None if it is left out."""
        met = pa.array([table_value], pa.large_binary())
        rows = self.rows_of(objects([key]), objects([value]), met)
        assert rows is not None, "no column of one row has two gigabytes"
        if not rows[0].is_valid:
            return None
        written = json_of(rows) if self.encode is None else rows
        row: bytes = written[0].as_py()
        return row

    def rows_of(
        self, keys: Objects, values: Objects, table_values: pa.LargeBinaryArray
    ) -> pa.Array | None:
        """Make the fields of many rows, or their values, null where one is left out.

        Return None if a column of them is too long.
        """
        made = self._fields_of(keys, values, table_values)
        if made is None or self.encode is None:
            return made
        return pc.if_else(made.is_valid(), self.encode(made), None)

    def _fields_of(
        self, keys: Objects, values: Objects, table_values: pa.LargeBinaryArray
    ) -> pa.StructArray | None:
        columns = self._read(keys, values, table_values)
        if any(isinstance(column, pa.ChunkedArray) for column in columns.values()):
            return None
        kept = [pc.fill_null(computed(each, columns), fill_value=False) for each in self.conditions]
        if not kept:
            return self._made(columns)
        # A number of a row that is left out may be too large for its column.
        stays = reduce(pc.and_, kept)
        made = self._made({given: column.filter(stays) for given, column in columns.items()})
        places = pc.subtract(pc.cumulative_sum(stays.cast(pa.int64())), 1)
        return made.take(pc.if_else(stays, places, None))

    def _made(self, columns: Mapping[Given, pa.Array]) -> pa.StructArray:
        made = rows_in_columns(self.names, [computed(term, columns) for term in self.terms])
        assert made is not None, "no column is longer than those that it is made of"
        return made

    def _read(
        self, keys: Objects, values: Objects, table_values: pa.LargeBinaryArray
    ) -> dict[Given, pa.Array]:
        """Read the fields that are needed, each once."""
        terms = (*self.terms, *self.conditions)
        needed = dict.fromkeys(given for term in terms for given in given_in(term))
        stream, table = (
            [given.field for given in needed if given.side == side] for side in (STREAM, TABLE)
        )
        read = {
            STREAM: columns_of_written(values.tolist(), stream),
            TABLE: columns_of_repeated(table_values, table),
        }
        columns = {
            Given(side, field): column
            for side, fields in ((STREAM, stream), (TABLE, table))
            for field, column in zip(fields, read[side], strict=True)
        }
        return {**columns, KEY: texts_of(keys, _valid_text)}


def _columns_of(side: str, fields: StructType) -> dict[str, Term]:
    return {column_of(each.name): Given(side, each) for each in fields}


def _stepped(
    columns: Columns, steps: Sequence[Filter | Select]
) -> tuple[Columns, tuple[Term, ...]] | None:
    """Return the columns behind some steps, and all conditions; None if a step is not plain."""
    conditions: list[Term] = []
    for step in steps:
        if isinstance(step, Filter):
            holds = _condition(step, columns)
            if holds is None:
                return None
            conditions.append(holds)
            continue
        chosen = _selected(step, columns)
        if chosen is None:
            return None
        columns = chosen
    return columns, tuple(conditions)


def _condition(step: Filter, columns: Columns) -> Term | None:
    # Spark decides whether a number is computed before a filter leaves its row out.
    if any(isinstance(term, Computed) for term in columns.values()):
        return None
    return None if step.condition.column is not None else condition(step.condition.text, columns)


def _selected(step: Select, columns: Columns) -> Columns | None:
    chosen: dict[str, Term] = {}
    for each in step.expressions:
        one = columns if each.text == ALL else named(each.text, columns)
        if one is None or each.column is not None:
            return None
        chosen |= one
    return chosen


def _valid_text(key: bytes) -> str | None:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return None
