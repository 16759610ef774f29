"""Compile a description into a job over the topologies: its options, its inputs, its results.

A table's own steps run on its records before they reach a task, since a table is made of its
records. A stream's steps run behind its join, so that late and dead records stay as they came.
Everything else happens in tasks, on bytes that are not decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal, cast

from pydantic import create_model
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)
from pyspark.sql import types as spark
from pyspark.sql.types import StructType

from headrace.contracts.errors import JobInvalid
from headrace.spark_jobs.jobs.cold import FallBack
from headrace.spark_jobs.jobs.config import Input, InputTopics, JobConfig, TableFolder
from headrace.spark_jobs.operators.columns import RESULTS_SCHEMA
from headrace.spark_jobs.operators.frames import Spread
from headrace.spark_jobs.operators.operate import operate
from headrace.spark_jobs.operators.topology import (
    AggregateStep,
    ForeignKeyStep,
    JoinStep,
    LookUp,
    Topic,
)
from headrace.spark_jobs.queries.aggregates import KeyAt, Regrouped, folding, joined
from headrace.spark_jobs.queries.described import Query
from headrace.spark_jobs.queries.expressions import (
    Visible,
    empty_frame,
    struct_of,
    visible_rows,
)
from headrace.spark_jobs.queries.names import OWN, column_of
from headrace.spark_jobs.queries.streams import JoinedStream, Stream
from headrace.spark_jobs.queries.tables import GroupedTable, JoinedTable, Table
from headrace.spark_jobs.queries.types import folded, read_as, result_of, type_of
from headrace.spark_jobs.read.decode import JsonValue
from headrace.spark_jobs.shapes import CHANGED, COLD, CORRECTED, JOINED
from headrace.spark_jobs.versioned.tables import Plain, Versioned

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from headrace.spark_jobs.jobs.inputs import Inputs
    from headrace.spark_jobs.operators.topology import Step
    from headrace.spark_jobs.queries.aggregates import Path
    from headrace.spark_jobs.queries.expressions import Columns, Place

_TABLE, _STREAM = "table", "stream"
KEY_HEADER = "headrace.query.key"
"""The header that keeps the key of a record that looks up by a column, until it leaves."""
_HEADERS = "array<struct<key:string,value:binary>>"
_RECORDS = (
    "input INT, topic STRING, partition INT, offset BIGINT, timestamp_ms BIGINT, key BINARY,"
    f" value BINARY, headers {_HEADERS}, aside STRING"
)
_RESULTS = RESULTS_SCHEMA.replace("headers string", f"headers {_HEADERS}")


class QueryConfig(JobConfig):
    """The options of a query, as a job's file would have them.

    The expressions of a query are no option in the checkpoint. If they were, a user who mends an
    expression that has no answer for a row would have to finish that micro-batch with the broken
    one.
    """

    release: Literal["stream-time", "progress"] | None = None
    corrections: bool = False
    cold_history: TableFolder | None = None


@dataclass(frozen=True)
class Encoded:
    """A table as bytes in a task, and the places of its columns in them."""

    step: Step
    schema: StructType
    columns: Columns


class QueryJob:
    """A query as a job."""

    def __init__(self, query: Query) -> None:
        """Refuse what can be refused without Spark."""
        if isinstance(query, Stream):
            message = (
                f"{query.title} alone needs no job: nothing is looked up; join it as of a table, or"
                " filter it in its pipeline"
            )
            raise JobInvalid(message)
        self.query = query
        self._row: StructType | None = None
        self._tables: dict[str, Visible] = {}
        self.sources = dict(zip(_names_of(query), query.sources, strict=True))
        inputs: dict[str, Any] = dict.fromkeys(self.sources, (Input, ...))
        topics = create_model("Topics", __base__=InputTopics, **inputs)
        fields: dict[str, Any] = {"inputs": (topics, ...)}
        self.Config: type[JobConfig] = create_model("Config", __base__=QueryConfig, **fields)

    def described(self) -> dict[str, Any]:
        """Return the job's options that the description decides, as a file would have them."""
        inputs = {
            name: {"topic": one.topic, "pipeline": one.pipeline}
            for name, one in self.sources.items()
        }
        said: dict[str, Any] = {"job": "query", "inputs": inputs}
        query = self.query
        if isinstance(query, JoinedStream):
            said["release"] = "progress" if query.grace_ms is None else "stream-time"
            said["corrections"] = query.corrections
            if query.history is not None:
                said["cold-history"] = {"folder": query.history}
        return said

    @cached_property
    def schemas(self) -> Mapping[str, StructType]:
        """The schema of each input's values."""
        return {name: struct_of(one) for name, one in self.sources.items()}

    @property
    def VALUES(self) -> Mapping[str, JsonValue]:  # noqa: N802 (as every job calls it)
        """By input, the format of its values."""
        return {name: JsonValue(schema) for name, schema in self.schemas.items()}

    @property
    def Row(self) -> StructType:  # noqa: N802 (as every job calls it)
        """The columns of a row."""
        if self._row is None:
            self.prepare(SparkSession.active())
        assert self._row is not None
        return self._row

    def prepare(self, session: SparkSession) -> None:
        """Check that the query can be computed, and find its columns, before anything is read."""
        records = empty_frame(session, _RECORDS)
        for name in self.sources:
            if name != _STREAM:
                self._tables[name] = self._table_rows(records, name)
        self._row = self._results(empty_frame(session, _RESULTS), None).schema
        self._keyed(records)

    def transform(self, inputs: Inputs, config: JobConfig) -> DataFrame:
        """Compute the query over the records of its inputs."""
        return self.rows(self.results(inputs, config.tasks))

    def results(self, inputs: Inputs, tasks: int) -> DataFrame:
        """Apply the topology to the inputs."""
        self.prepare(inputs.records.sparkSession)
        query, spread = self.query, Spread(tasks=tasks)
        records = self._keyed(self._tables_written(inputs.records))
        if not isinstance(query, JoinedStream):
            return operate(self._encoded(query).step, records, spread)
        look_up = LookUp(
            f"join_as_of({query.table.source.topic})",
            self._topic(query.table),
            stream=self._number(_STREAM),
            join=query.how,
            grace_ms=query.grace_ms,
            release="progress" if query.grace_ms is None else "stream-time",
            corrects=query.corrections,
            asks_cold=query.history is not None,
        )
        return operate(look_up, records, spread, inputs.hearing)

    def fall_back(self, _config: object) -> FallBack | None:
        """Return where to join a record that is older than its table remembers."""
        query = self.query
        if not isinstance(query, JoinedStream) or query.history is None:
            return None
        return FallBack(query.history, _TABLE, query.how, self.rows)

    def rows(self, results: DataFrame, which: Column | None = None) -> DataFrame:
        """Set the query's rows as values of all results, or only of those that a column selects."""
        is_table = not isinstance(self.query, JoinedStream)
        return self._results(results, which).written(keeps_dropped=is_table)

    def columns(self, results: DataFrame) -> DataFrame:
        """Return the query's columns alone."""
        return self._results(results, None).alone()

    def _results(self, results: DataFrame, which: Column | None) -> Visible:
        chosen = F.col("verdict").isin(JOINED, CORRECTED, CHANGED) if which is None else which
        query = self.query
        if isinstance(query, JoinedStream):
            if query.on is not None:
                results = _with_own_keys(results)
            rows = visible_rows(results, chosen).decoded("value", self.schemas[_STREAM])
            rows = rows.stepped(query.stream.steps)
            rows = rows.decoded("table_value", *self._table_value())
            return rows.stepped(query.steps)
        encoded = self._encoded(query)
        rows = visible_rows(results, chosen).decoded("value", encoded.schema, encoded.columns)
        if isinstance(query, Table):
            # The table's steps already ran on its records.
            return replace(rows, names=self._tables[_TABLE].names)
        return rows.stepped(query.steps)

    def _number(self, name: str) -> int:
        return list(self.sources).index(name)

    def _is_input(self, name: str) -> Column:
        """Whether a record is a readable one of an input."""
        return (F.col("input") == self._number(name)) & F.col("aside").isNull()

    def _table_rows(self, records: DataFrame, name: str) -> Visible:
        rows = visible_rows(records, self._is_input(name)).decoded("value", self.schemas[name])
        return rows.stepped(self._table_of(name).steps)

    def _tables_written(self, records: DataFrame) -> DataFrame:
        """Rewrite the records of tables so that they have only the tables' columns, in one form."""
        for name in self.sources:
            if name != _STREAM and self._is_rewritten(name):
                records = self._table_rows(records, name).written(keeps_dropped=True)
        return records

    def _is_rewritten(self, name: str) -> bool:
        return bool(self._table_of(name).steps) or not isinstance(self.query, JoinedStream)

    def _keyed(self, records: DataFrame) -> DataFrame:
        """Give the records of the stream the key by which they look up."""
        query = self.query
        if not isinstance(query, JoinedStream) or query.on is None:
            return records
        rows = visible_rows(records, self._is_input(_STREAM))
        rows = rows.decoded("value", self.schemas[_STREAM]).stepped(query.stream.steps)
        type_of(rows.schema, query.on, "join_as_of")
        return rows.with_keys(query.on, KEY_HEADER)

    def _table_of(self, name: str) -> Table:
        return next(each for each in tables_of(self.query) if each.source == self.sources[name])

    def _table_value(self) -> tuple[StructType, Columns]:
        """Return the schema of the table that a stream looks up in, and its columns."""
        if not self._is_rewritten(_TABLE):
            schema = self.schemas[_TABLE]
            return schema, {column_of(name): (name,) for name in schema.names}
        schema = self._tables[_TABLE].schema
        return schema, {name: (name,) for name in schema.names if name.lower() not in OWN}

    def _topic(self, table: Table) -> Topic:
        source = table.source
        name = next(name for name, each in self.sources.items() if each == source)
        kept = None if source.retention_ms is None else Versioned(source.retention_ms)
        called = source.topic
        if self._is_rewritten(name):
            called = _with_digest(called, self._tables[name].schema.simpleString())
        return Topic(called, self._number(name), kept or Plain())

    def _encoded(self, table: Query) -> Encoded:
        if isinstance(table, Table):
            step = self._topic(table)
            schema = self._tables[list(self.sources)[step.input]].schema
            names = [name for name in schema.names if name.lower() not in OWN]
            return Encoded(step, schema, {name: (name,) for name in names})
        if isinstance(table, JoinedTable):
            return self._joined(table)
        assert isinstance(table, GroupedTable)
        return self._grouped(table)

    def _joined(self, table: JoinedTable) -> Encoded:
        left, right = self._encoded(table.left), self._encoded(table.right)
        schema = StructType().add("l", left.schema).add("r", right.schema)
        columns = _behind("l", left.columns) | _behind("r", right.columns)
        named = f"({left.step.name}, {right.step.name})"
        if table.on is None:
            how = cast("Literal['inner', 'left', 'outer']", table.how)
            step = JoinStep(f"join{named}", left.step, right.step, joined, how)
            return Encoded(step, schema, columns)
        type_of(_flat(left), table.on, "join_on")
        key_of = KeyAt(_path(left, table.on))
        how_on = cast("Literal['inner', 'left']", table.how)
        return Encoded(
            ForeignKeyStep(
                _with_digest(f"join_on{named}", table.on),
                left.step,
                right.step,
                key_of,
                joined,
                how_on,
            ),
            schema,
            columns,
        )

    def _grouped(self, table: GroupedTable) -> Encoded:
        parent = self._encoded(table.table)
        flat = _flat(parent)
        types = [type_of(flat, name, "group_by") for name in table.by]
        numbers = [folded(each, flat) for each in table.aggregates]
        taken = [None if a.column is None else _path(parent, a.column) for a in table.aggregates]
        step = AggregateStep(
            _with_digest(f"group_by({parent.step.name})", table.by, table.aggregates),
            parent.step,
            Regrouped(tuple(_path(parent, name) for name in table.by), tuple(taken)),
            folding(len(table.by), numbers),
        )
        groups = {
            name: read_as("g", place, kind)
            for place, (name, kind) in enumerate(zip(table.by, types, strict=True))
            if name.lower() not in OWN
        }
        results = {
            each.name: result_of(place, each, flat) for place, each in enumerate(table.aggregates)
        }
        texts = spark.ArrayType(spark.StringType())
        schema = StructType().add("g", texts).add("a", texts)
        return Encoded(step, schema, {**groups, **results})


def tables_of(query: Query) -> Iterator[Table]:
    """Yield the tables that a query reads."""
    if isinstance(query, Table):
        yield query
    for name in ("table", "left", "right"):
        inner = getattr(query, name, None)
        if isinstance(inner, Query):
            yield from tables_of(inner)


def _names_of(query: Query) -> list[str]:
    """Return the names of a query's inputs in a job's options."""
    if isinstance(query, JoinedStream):
        return [_TABLE, _STREAM]
    tables = len(query.sources)
    return [_TABLE] if tables == 1 else [f"{_TABLE}{number + 1}" for number in range(tables)]


def _with_own_keys(results: DataFrame) -> DataFrame:
    """Restore the records' own keys in results that looked up by a column."""
    # A cold result keeps that column as its key, since the cold history is looked up by it.
    found = F.filter("headers", lambda header: header["key"] == KEY_HEADER)
    others = F.filter("headers", lambda header: header["key"] != KEY_HEADER)
    has = (F.coalesce(F.size(found), F.lit(0)) > 0) & (F.col("verdict") != COLD)
    return results.withColumns(
        {
            "key": F.when(has, F.try_element_at(found, F.lit(-1))["value"]).otherwise(F.col("key")),
            "headers": F.when(has, others).otherwise(F.col("headers")),
        }
    )


def _with_digest(step: str, *what: object) -> str:
    """Name a step with a digest, since a step that does something else cannot use its state."""
    return f"{step}#{blake2b(repr(what).encode(), digest_size=4).hexdigest()}"


def _behind(side: str, columns: Columns) -> dict[str, Place]:
    return {
        name: (side, *place) if isinstance(place, tuple) else _inside(side, place)
        for name, place in columns.items()
    }


def _inside(side: str, place: Callable[[Column], Column]) -> Callable[[Column], Column]:
    return lambda parsed: place(parsed[side])


def _flat(encoded: Encoded) -> StructType:
    """Return the columns of a table, with their types."""
    session = SparkSession.active()
    text = empty_frame(session, "value BINARY, timestamp_ms BIGINT, key BINARY, headers BINARY")
    rows = visible_rows(text, F.lit(True)).decoded(  # noqa: FBT003 (Spark's own way to say it)
        "value", encoded.schema, encoded.columns
    )
    return StructType([*rows.schema.fields, spark.StructField("key", spark.StringType())])


def _path(encoded: Encoded, name: str) -> Path:
    """Return the path of a column in the JSON of a value; an empty one is the key."""
    if name.lower() == "key":
        return ()
    place = encoded.columns[_spelt(encoded.columns, name)]
    if isinstance(place, tuple):
        return place
    message = f"`{name}` is computed by a `group_by`; write that to a topic, and read it from there"
    raise JobInvalid(message)


def _spelt(names: Iterable[str], name: str) -> str:
    return next(each for each in names if each.lower() == name.lower())
