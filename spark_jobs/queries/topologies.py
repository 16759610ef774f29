"""Compile a description into a topology: which step keeps what, and where columns lie in its bytes.

This takes schemas and gives steps, without a session: the same for Spark and for tests without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal, cast

from pyspark.sql import types as spark
from pyspark.sql.types import StructType

from headrace.contracts.errors import JobInvalid
from headrace.spark_jobs.operators.topology import (
    OWN_NUMBERS,
    AggregateStep,
    ForeignKeyStep,
    JoinStep,
    LookUp,
    StreamJoin,
    Topic,
    WindowStep,
)
from headrace.spark_jobs.queries.aggregates import Folds, KeyAt, Regrouped, folding, joined
from headrace.spark_jobs.queries.described import refuse_doubled
from headrace.spark_jobs.queries.names import OWN, column_of
from headrace.spark_jobs.queries.streams import JoinedStream, PairedStream, Stream
from headrace.spark_jobs.queries.tables import GroupedTable, JoinedTable, Table
from headrace.spark_jobs.queries.types import (
    KeptText,
    folded,
    kinds_of,
    read_as,
    result_of,
    type_of,
)
from headrace.spark_jobs.queries.windows import BOUNDS, MadeStream, WindowedStream
from headrace.spark_jobs.versioned.tables import Plain, Versioned

if TYPE_CHECKING:
    from headrace.spark_jobs.jobs.config import Mode
    from headrace.spark_jobs.operators.topology import Step, Topology
    from headrace.spark_jobs.queries.aggregates import Aggregate, Path
    from headrace.spark_jobs.queries.described import Query, Source
    from headrace.spark_jobs.queries.types import Columns, Place

TABLE, STREAM = "table", "stream"
"""The names of the inputs of a stream that looks up in a table."""
LEFT, RIGHT = "left", "right"
"""The names of the inputs of two streams that meet within a window."""
RECORDS = "records"
"""The name of the input of a stream that is folded as it is read."""


@dataclass(frozen=True)
class Encoded:
    """A table as bytes in a task, and the places of its columns in them."""

    step: Step
    schema: StructType
    columns: Columns


@dataclass(frozen=True)
class Windows:
    """The step that folds rows by window, and the places of columns in its results."""

    step: WindowStep
    schema: StructType
    columns: Columns


@dataclass(frozen=True)
class Plan:
    """A query over inputs whose schemas are known."""

    query: Query
    sources: Mapping[str, Source]
    """Its inputs by name."""
    schemas: Mapping[str, StructType]
    """The schema of each input's values."""
    tables: Mapping[str, StructType]
    """The columns of each input that is a table, behind its own steps."""
    met_as: str | None = None
    """The texts by which records meet: `texts_of` their columns, if they are not the keys."""

    @property
    def made(self) -> Query:
        """The query, or the stream whose rows it folds by window."""
        return self.query.stream if isinstance(self.query, WindowedStream) else self.query

    @property
    def join(self) -> str:
        """The name of the step by which a stream meets others."""
        return "join_within" if isinstance(self.made, PairedStream) else "join_as_of"

    @property
    def folds_join(self) -> bool:
        """Whether the rows of a join are folded by window."""
        return self.made is not self.query and not isinstance(self.made, Stream)

    def topology(self, mode: Mode = "append") -> Topology:
        """Return the steps of the query, up to the rows that it folds by window.

        A sink that keeps the last row of each key gets no version of a table behind a newer one.
        """
        query, met_as = self.made, None if self.met_as is None else _number_of(self.met_as)
        if isinstance(query, Table):
            return replace(self._topic(query), newest_alone=mode == "upsert")
        if isinstance(query, PairedStream):
            name = f"join_within({query.right.source.topic})"
            return StreamJoin(
                name if query.on is None else _with_digest(name, query.on),
                (self._number(LEFT), self._number(RIGHT)),
                joined,
                query.within_ms,
                query.how,
                query.grace_ms,
                says_progress=self.folds_join,
                columns=(self._columns_of(LEFT), self._columns_of(RIGHT)),
                meets_as=met_as,
            )
        if not isinstance(query, JoinedStream):
            return self.encoded(query).step
        return LookUp(
            f"join_as_of({query.table.source.topic})",
            self._topic(query.table),
            stream=self._number(STREAM),
            join=query.how,
            grace_ms=query.grace_ms,
            release="progress" if query.grace_ms is None else "stream-time",
            corrects=query.corrections,
            asks_cold=query.history is not None,
            says_progress=self.folds_join,
            meets_by=_number_of((query.on or "key").lower()),
            meets_as=met_as,
        )

    def windows(self, rows: StructType) -> Windows:
        """Return the step that folds these rows by window, and where columns lie in its results."""
        query = self.query
        assert isinstance(query, WindowedStream)
        types = [type_of(rows, name, "group_by") for name in query.by]
        numbers = tuple(folded(each, rows) for each in query.aggregates)
        taken = tuple(
            None if each.column is None else (_spelt(rows.names, each.column),)
            for each in query.aggregates
        )
        by = tuple((_spelt(rows.names, name),) for name in query.by)
        made = self.topology().name if self.folds_join else query.stream.sources[0].topic
        step = WindowStep(
            _with_digest(f"windows({made})", query.by, query.aggregates),
            0,
            query.window.size_ms,
            Regrouped(by, taken, _number_of(kinds_of(types, query.aggregates, rows))),
            Folds(len(by), numbers),
            query.sources[-1].topic,
            query.stream.lag_ms,
            is_behind=self.folds_join,
        )
        schema, groups, results = _folded_columns(query.by, types, query.aggregates, rows)
        times = {
            name: read_as("g", len(by) + place, spark.TimestampType())
            for place, name in enumerate(BOUNDS)
        }
        return Windows(step, schema, {**groups, **times, **results})

    def _number(self, name: str) -> int:
        return list(self.sources).index(name)

    def is_rewritten(self, name: str) -> bool:
        """Return whether an input's records get the columns of its steps before they are kept."""
        return bool(self.reader_of(name).steps) or not isinstance(self.query, MadeStream)

    def reader_of(self, name: str) -> Table | Stream:
        """Return the table or the stream that reads an input."""
        return next(each for each in readers_of(self.query) if each.source == self.sources[name])

    def value_of(self, name: str) -> tuple[StructType, Columns]:
        """Return the schema of the values that are kept of an input, and their columns."""
        if not self.is_rewritten(name):
            schema = self.schemas[name]
            return schema, {column_of(name): (name,) for name in schema.names}
        schema = self.tables[name]
        return schema, {name: (name,) for name in schema.names if name.lower() not in OWN}

    def met(self, stream: Iterable[str]) -> tuple[StructType, Columns]:
        """Return `value_of` the table in which a stream of these columns looks up."""
        query = self.made
        assert isinstance(query, JoinedStream)
        schema, columns = self.value_of(TABLE)
        own = (name for name in stream if name.lower() not in OWN)
        refuse_doubled((*own, *columns), query.stream, query.table, self.join)
        return schema, columns

    def _columns_of(self, name: str) -> int:
        """Return a number for the columns that are kept of an input; below zero if all are."""
        schema, _ = self.value_of(name)
        columns = sorted((each.name, each.dataType.simpleString()) for each in schema.fields)
        return _number_of(repr(columns)) * (1 if self.is_rewritten(name) else -1)

    def meets_by(self) -> dict[str, str]:
        """Return the column by which each input meets the other, where it is not the key."""
        query = self.made
        if isinstance(query, JoinedStream) and query.on is not None:
            return {STREAM: query.on}
        if isinstance(query, PairedStream) and query.on is not None:
            sides = zip((LEFT, RIGHT), query.on, strict=True)
            return {name: column for name, column in sides if column.lower() != "key"}
        return {}

    def pair(self) -> tuple[StructType, Columns]:
        """Return the schema of a pair of two streams' values, and its columns."""
        query = self.made
        assert isinstance(query, PairedStream)
        (left, lefts), (right, rights) = self.value_of(LEFT), self.value_of(RIGHT)
        refuse_doubled((*lefts, *rights), query.left, query.right, self.join)
        schema = StructType().add("l", left).add("r", right)
        return schema, _behind("l", lefts) | _behind("r", rights)

    def _topic(self, table: Table) -> Topic:
        source = table.source
        name = next(name for name, each in self.sources.items() if each == source)
        kept = None if source.retention_ms is None else Versioned(source.retention_ms)
        called = f"{source.topic} of a topic" if source.topic in OWN_NUMBERS else source.topic
        if self.is_rewritten(name):
            called = _with_digest(called, self.tables[name].simpleString())
        return Topic(called, self._number(name), kept or Plain())

    def encoded(self, table: Query) -> Encoded:
        """Return a table's step, and where its columns lie."""
        if isinstance(table, Table):
            step = self._topic(table)
            schema = self.tables[list(self.sources)[step.input]]
            names = [name for name in schema.names if name.lower() not in OWN]
            return Encoded(step, schema, {name: (name,) for name in names})
        if isinstance(table, JoinedTable):
            return self._joined(table)
        assert isinstance(table, GroupedTable)
        return self._grouped(table)

    def _joined(self, table: JoinedTable) -> Encoded:
        left, right = self.encoded(table.left), self.encoded(table.right)
        step = "join" if table.on is None else "join_on"
        refuse_doubled((*left.columns, *right.columns), table.left, table.right, step)
        schema = StructType().add("l", left.schema).add("r", right.schema)
        columns = _behind("l", left.columns) | _behind("r", right.columns)
        named = f"({left.step.name}, {right.step.name})"
        if table.on is None:
            how = cast("Literal['inner', 'left', 'outer']", table.how)
            of_keys = JoinStep(f"join{named}", left.step, right.step, joined, how)
            return Encoded(of_keys, schema, columns)
        type_of(flat(left), table.on, step)
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
        parent = self.encoded(table.table)
        columns = flat(parent)
        types = [type_of(columns, name, "group_by") for name in table.by]
        numbers = [folded(each, columns) for each in table.aggregates]
        taken = [None if a.column is None else _path(parent, a.column) for a in table.aggregates]
        step = AggregateStep(
            _with_digest(f"group_by({parent.step.name})", table.by, table.aggregates),
            parent.step,
            Regrouped(tuple(_path(parent, name) for name in table.by), tuple(taken)),
            folding(len(table.by), numbers),
        )
        schema, groups, results = _folded_columns(table.by, types, table.aggregates, columns)
        return Encoded(step, schema, {**groups, **results})


def _folded_columns(
    by: Sequence[str],
    types: Sequence[spark.DataType],
    aggregates: Sequence[Aggregate],
    columns: StructType,
) -> tuple[StructType, Columns, Columns]:
    """Return the schema of a group's value, and where its own columns and its aggregates lie."""
    groups = {
        name: read_as("g", place, kind)
        for place, (name, kind) in enumerate(zip(by, types, strict=True))
        if name.lower() not in OWN
    }
    results = {each.name: result_of(place, each, columns) for place, each in enumerate(aggregates)}
    texts = spark.ArrayType(spark.StringType())
    return StructType().add("g", texts).add("a", texts), groups, results


def readers_of(query: Query) -> Iterator[Table | Stream]:
    """Yield the tables and streams that a query reads."""
    if isinstance(query, Table | Stream):
        yield query
    for name in ("table", "stream", "left", "right"):
        inner = getattr(query, name, None)
        if inner is not None:
            yield from readers_of(inner)


def inputs_of(query: Query) -> dict[str, Source]:
    """Return a query's inputs by the names that they have in a job's options.

    Refuse a query that reads a topic twice: an input is known by its topic.
    """
    topics = [source.topic for source in query.sources]
    doubled = next((topic for topic in topics if topics.count(topic) > 1), None)
    if doubled is not None:
        message = f"`{doubled}` is the input of a query twice; name another topic"
        raise JobInvalid(message)
    made = query.stream if isinstance(query, WindowedStream) else query
    if isinstance(made, JoinedStream):
        names = [TABLE, STREAM]
    elif isinstance(made, PairedStream):
        names = [LEFT, RIGHT]
    elif isinstance(made, Stream):
        names = [RECORDS]
    else:
        tables = len(query.sources)
        names = [TABLE] if tables == 1 else [f"{TABLE}{number + 1}" for number in range(tables)]
    return dict(zip(names, query.sources, strict=True))


def flat(encoded: Encoded) -> StructType:
    """Return the columns of a table, with their types."""
    fields = [
        spark.StructField(name, kind_at(encoded.schema, place))
        for name, place in encoded.columns.items()
    ]
    return StructType([*fields, spark.StructField("key", spark.StringType())])


def kind_at(schema: StructType, place: Place) -> spark.DataType:
    """Return the type at a place in a parsed value."""
    if isinstance(place, KeptText):
        return place.kind
    kind: spark.DataType = schema
    for name in place:
        assert isinstance(kind, StructType)
        kind = kind[cast("str", name)].dataType
    return kind


def _with_digest(step: str, *what: object) -> str:
    """Name a step with a digest, since a step that does something else cannot use its state."""
    return f"{step}#{blake2b(repr(what).encode(), digest_size=4).hexdigest()}"


def _number_of(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=6).digest())


def _behind(side: str, columns: Columns) -> dict[str, Place]:
    return {
        name: (side, *place)
        if isinstance(place, tuple)
        else replace(place, path=(side, *place.path))
        for name, place in columns.items()
    }


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
