"""Compile a description into a job over the topologies: its options, its inputs, its results.

A table's own steps run on its records before they reach a task, since a table is made of its
records. The steps of two streams do so before they meet, since a record that a filter leaves out
meets none. The steps of a stream that looks up in a table run behind its join, so that late and
dead records stay as they came.
Everything else happens in tasks, on bytes that are not decoded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any

from pydantic import create_model
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)
from pyspark.sql.types import DataType, StructType

from headrace.contracts.errors import JobInvalid
from headrace.spark_jobs.jobs.bulk import join_as_of, join_within, latest
from headrace.spark_jobs.jobs.cold import FallBack
from headrace.spark_jobs.jobs.config import Input, InputTopics, JobConfig, Mode, updates_of
from headrace.spark_jobs.jobs.hot_keys import spread_of
from headrace.spark_jobs.jobs.registered import encode_rows_of
from headrace.spark_jobs.operators.behind import operate_behind
from headrace.spark_jobs.operators.columns import RESULTS_SCHEMA
from headrace.spark_jobs.operators.frames import InputProgress, Spread
from headrace.spark_jobs.operators.operate import operate, operate_for_sinks
from headrace.spark_jobs.operators.topology import LookUp
from headrace.spark_jobs.queries.expressions import (
    Visible,
    empty_frame,
    struct_of,
    visible_rows,
)
from headrace.spark_jobs.queries.names import column_of
from headrace.spark_jobs.queries.options import options_of
from headrace.spark_jobs.queries.plain import plain_rows
from headrace.spark_jobs.queries.refused import refuse_alone, refuse_history
from headrace.spark_jobs.queries.streams import JoinedStream, PairedStream, Stream
from headrace.spark_jobs.queries.tables import GroupedTable, JoinedTable, Table
from headrace.spark_jobs.queries.topologies import (
    LEFT,
    RECORDS,
    RIGHT,
    STREAM,
    TABLE,
    Plan,
    Windows,
    inputs_of,
)
from headrace.spark_jobs.queries.types import refuse_unlike, texts_of, type_of
from headrace.spark_jobs.queries.windows import MadeStream, WindowedStream
from headrace.spark_jobs.read.decode import JsonValue, RegisteredValue
from headrace.spark_jobs.shapes import CHANGED, COLD, CORRECTED, FIELDS, JOINED, READ

if TYPE_CHECKING:
    from pyspark.sql import Column

    from headrace.spark_jobs.jobs.inputs import Inputs
    from headrace.spark_jobs.queries.described import Query
    from headrace.spark_jobs.queries.plain import PlainRows
    from headrace.spark_jobs.queries.types import Columns
    from headrace.spark_jobs.versioned.changes import Updates

KEY_HEADER = "headrace.query.key"
"""The header that keeps the key of a record that looks up by a column, until it leaves."""
_HEADERS = "array<struct<key:string,value:binary>>"
_RECORDS = (
    "input INT, topic STRING, partition INT, offset BIGINT, timestamp_ms BIGINT, key BINARY,"
    f" value BINARY, headers {_HEADERS}, aside STRING"
)
_RESULTS = RESULTS_SCHEMA.replace("headers string", f"headers {_HEADERS}")


class QueryJob:
    """A query as a job."""

    def __init__(self, query: Query) -> None:
        """Refuse what can be refused without Spark."""
        refuse_alone(query)
        refuse_history(query)
        self.query = query
        self._row: StructType | None = None
        self._rows_to_fold: StructType | None = None
        self._tables: dict[str, Visible] = {}
        self._met_as: str | None = None
        self.sources = inputs_of(query)
        inputs: dict[str, Any] = dict.fromkeys(self.sources, (Input, ...))
        topics = create_model("Topics", __base__=InputTopics, **inputs)
        fields: dict[str, Any] = {"inputs": (topics, ...)}
        self.Config: type[JobConfig] = create_model("Config", __base__=options_of(query), **fields)

    @property
    def in_order(self) -> bool:
        """Whether a later row of a key holds later, although its time is before an earlier one.

        Tables join and group as their records arrive, and each result replaces the one before.
        """
        return isinstance(self.query, GroupedTable | JoinedTable)

    @property
    def of_one_task(self) -> bool:
        """Whether all rows of a key are of one task: a stream that meets by a column has others."""
        query = self.query
        return not isinstance(query, JoinedStream | PairedStream) or query.on is None

    @property
    def FOLDS_ROWS(self) -> bool:  # noqa: N802 (as every job calls it)
        """Whether it groups the rows of its stream by window."""
        return isinstance(self.query, WindowedStream)

    @property
    def LOOKS_UP_BY(self) -> str | None:  # noqa: N802 (as every job calls it)
        """The column by which its stream looks up in a table, None if it does something else."""
        made = self.query.stream if isinstance(self.query, WindowedStream) else self.query
        return (made.on or "key") if isinstance(made, JoinedStream) else None

    def described(self) -> dict[str, Any]:
        """Return the job's options that the description decides, as a file would have them."""
        inputs = {
            name: {"topic": one.topic, "pipeline": one.pipeline}
            for name, one in self.sources.items()
        }
        said: dict[str, Any] = {"job": "query", "inputs": inputs}
        query = self.query
        if isinstance(query, PairedStream | WindowedStream):
            said["release"] = "progress"
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
    def VALUES(self) -> Mapping[str, JsonValue | RegisteredValue]:  # noqa: N802 (as every job calls it)
        """By input, the format of its values."""
        registries = {name: one.registry for name, one in self.sources.items()}
        return {
            name: JsonValue(schema)
            if (access := registries[name]) is None
            else RegisteredValue(schema, access.asked())
            for name, schema in self.schemas.items()
        }

    @property
    def Row(self) -> StructType:  # noqa: N802 (as every job calls it)
        """The columns of a row."""
        if self._row is None:
            self.prepare(SparkSession.active())
        assert self._row is not None
        return self._row

    def prepare(self, session: SparkSession) -> None:
        """Check that the query can be computed, and find its columns, before anything is read."""
        frames = {
            name: empty_frame(session, _RECORDS).withColumn(READ, F.lit(None).cast(schema))
            for name, schema in self.schemas.items()
        }
        for name, frame in frames.items():
            if name != STREAM:
                self._tables[name] = self._table_rows(frame, name)
        results = empty_frame(session, _RESULTS)
        if isinstance(self.query, WindowedStream):
            self._rows_to_fold = self._to_fold(self._made_rows(results, _is_row())).schema
        self._row = self._results(results, None).schema
        self._taken(frames)

    def transform(self, inputs: Inputs, config: JobConfig) -> DataFrame:
        """Compute the query over the records of its inputs."""
        spread, mode = spread_of(config), config.sink.mode
        if inputs.leaving is None:
            return self.rows(self.results(inputs, spread, mode, updates_of(config)))
        rows, topology = self._plain(), self._plan().topology(mode)
        assert rows is not None, "only the rows of a plain query leave in bundles"
        assert isinstance(topology, LookUp), "a plain query looks up"
        kafka = config.sink.kafka
        if kafka is not None and kafka.registry is not None:
            encode = encode_rows_of(kafka.topic, kafka.registry, self.Row)
            rows = replace(rows, encode=encode)
        making = replace(topology, row_of=rows.row_of, rows_of=rows.rows_of)
        return operate_for_sinks(making, inputs.arriving, spread, inputs.progress)

    def results(
        self, inputs: Inputs, spread: Spread, mode: Mode = "append", updates: Updates = "each"
    ) -> DataFrame:
        """Apply the topology to the inputs; `mode` is that of the sink."""
        self.prepare(inputs.frames[0].sparkSession)
        taken = self._taken(dict(zip(self.sources, inputs.frames, strict=True)))
        records = reduce(DataFrame.unionByName, taken.values())
        progress = inputs.progress if isinstance(self.query, MadeStream) else None
        if not isinstance(self.query, WindowedStream):
            return operate(self._plan().topology(mode), records, spread, progress, updates)
        return self._windowed(records, spread, progress)

    @property
    def leaves_bundled(self) -> bool:
        """Whether tasks make all of its rows, which Spark's settings may forbid."""
        conf, rows = SparkSession.active().conf, self._plain()
        if rows is None or conf.get("spark.sql.caseSensitive") == "true":
            return False
        return not rows.computes or conf.get("spark.sql.ansi.enabled") == "true"

    def _plain(self) -> PlainRows | None:
        return plain_rows(self.query, self.schemas, self.Row)

    def _windowed(
        self, records: DataFrame, spread: Spread, progress: InputProgress | None
    ) -> DataFrame:
        query = self.query
        assert isinstance(query, WindowedStream)
        if self._plan().folds_join:
            joined = operate(self._plan().topology(), records, spread, progress)
            rows = self._to_fold(self._made_rows(joined, _is_row()))
            return operate_behind(self._windows().step, rows.grouped(query.by), spread)
        return _with_own_keys(operate(self._windows().step, records, spread, progress))

    def in_bulk(self, frames: Sequence[DataFrame]) -> DataFrame:
        """Compute the results over complete and readable records at once, without any state."""
        self.prepare(frames[0].sparkSession)
        taken = self._taken(dict(zip(self.sources, frames, strict=True)))
        query = self.query
        if isinstance(query, JoinedStream):
            rows = join_as_of(taken[STREAM], taken[TABLE], query.how)
            return rows.withColumn("verdict", F.lit(JOINED))
        if isinstance(query, PairedStream):
            rows = join_within(taken[LEFT], taken[RIGHT], query.within_ms, query.how)
            return rows.withColumn("verdict", F.lit(JOINED))
        if isinstance(query, Table):
            by_arrival = query.source.retention_ms is None
            rows = latest(taken[TABLE], by_arrival=by_arrival)
            return rows.withColumn("verdict", F.lit(CHANGED))
        message = (
            f"{query.title} is computed row by row as its inputs come; `backfill` takes a stream"
            " joined as of a table or within a window, or a table that is read"
        )
        raise JobInvalid(message)

    def rows_at_once(self, frames: Sequence[DataFrame], _config: JobConfig) -> DataFrame:
        """Compute the rows over complete records at once."""
        return self.rows(self.in_bulk(frames))

    def fall_back(self, _config: object) -> FallBack | None:
        """Return where to join a record that is older than its table remembers."""
        query = self.query
        if not isinstance(query, JoinedStream) or query.history is None:
            return None
        as_kept = self._as_kept if self._plan().is_rewritten(TABLE) else None
        return FallBack(query.history, TABLE, query.how, self.rows, as_kept)

    def _as_kept(self, versions: DataFrame) -> DataFrame:
        """Apply the table's steps to versions as they stand in its topic; these have no headers."""
        value = JsonValue(self.schemas[TABLE])
        read = versions.withColumns(
            {
                "headers": F.lit(None).cast(_HEADERS),
                "aside": F.lit(None).cast("string"),
                READ: value.known(value.look(F.col("value"))),
            }
        )
        return self._table_rows(read, TABLE).written(keeps_dropped=True)

    def rows(self, results: DataFrame, which: Column | None = None) -> DataFrame:
        """Set the query's rows as values of all results, or only of those that a column selects."""
        is_table = not isinstance(self.query, MadeStream)
        rows = self._results(results, which)
        return rows.written(keeps_dropped=is_table, keeps_fields=True)

    def columns(self, results: DataFrame) -> DataFrame:
        """Return the query's columns alone."""
        return self._results(results, None).alone()

    def _results(self, results: DataFrame, which: Column | None) -> Visible:
        chosen = _is_row() if which is None else which
        if not isinstance(self.query, WindowedStream):
            return self._made_rows(results, chosen)
        windows = self._windows()
        rows = visible_rows(results, chosen).decoded("value", windows.schema, windows.columns)
        return rows.stepped(self.query.steps)

    def _windows(self) -> Windows:
        assert self._rows_to_fold is not None
        return self._plan().windows(self._rows_to_fold)

    def _to_fold(self, rows: Visible) -> Visible:
        """Add the row's own columns to those that a user sees, if they are folded."""
        assert isinstance(self.query, WindowedStream)
        taken = self.query.own_taken - {name.lower() for name in rows.names}
        return replace(rows, names=(*rows.names, *sorted(taken)))

    def _made_rows(self, results: DataFrame, chosen: Column) -> Visible:
        """Give columns to the query's rows, or to those that it folds by window."""
        query = self._plan().made
        if isinstance(query, Stream):
            return self._tables[RECORDS]
        if isinstance(query, JoinedStream):
            if query.on is not None:
                results = _with_own_keys(results)
            rows = visible_rows(results, chosen).decoded("value", self.schemas[STREAM])
            rows = rows.stepped(query.stream.steps)
            rows = rows.decoded("table_value", *self._plan().met(rows.names))
            return rows.stepped(query.steps)
        if isinstance(query, PairedStream):
            if query.on is not None:
                results = _with_own_keys(results)
            pairs = visible_rows(results, chosen).decoded("value", *self._plan().pair())
            return pairs.stepped(query.steps)
        encoded = self._plan().encoded(query)
        rows = visible_rows(results, chosen).decoded("value", encoded.schema, encoded.columns)
        if isinstance(query, Table):
            # The table's steps already ran on its records.
            return replace(rows, names=self._tables[TABLE].names)
        return rows.stepped(query.steps)

    def _plan(self) -> Plan:
        tables = {name: rows.schema for name, rows in self._tables.items()}
        return Plan(self.query, self.sources, self.schemas, tables, self._met_as)

    def _table_rows(self, records: DataFrame, name: str) -> Visible:
        rows = visible_rows(records, _is_readable()).given(READ, _fields(self.schemas[name]))
        return rows.stepped(self._plan().reader_of(name).steps)

    def _taken(self, frames: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
        """Return the records of each input as the operator takes them.

        Each input is a frame of its own. Expressions that told inputs apart were copied into each
        other by Spark's optimizer, which took 40 seconds for a join of two streams.
        """
        columns = self._plan().meets_by()
        kinds: list[DataType] = []
        taken: dict[str, DataFrame] = {}
        for name, frame in frames.items():
            records = self._written(frame, name)
            if name in columns:
                rows = self._meeting(records, name)
                kinds.append(type_of(rows.schema, columns[name], self._plan().join))
                records = rows.with_keys(columns[name], KEY_HEADER)
            taken[name] = records.drop(READ, FIELDS)
        refuse_unlike(kinds, list(columns.values()))
        if kinds:
            session = next(iter(frames.values())).sparkSession
            zone = session.conf.get("spark.sql.session.timeZone") or ""
            self._met_as = texts_of(kinds, zone)
        return taken

    def _written(self, records: DataFrame, name: str) -> DataFrame:
        """Rewrite records that are kept so that they have only their columns, in one form."""
        if name == RECORDS and isinstance(self.query, WindowedStream):
            rows = self._to_fold(self._table_rows(records, name))
            return rows.grouped(self.query.by, KEY_HEADER)
        if name == STREAM or not self._plan().is_rewritten(name):
            return records
        return self._table_rows(records, name).written(keeps_dropped=True, keeps_fields=True)

    def _meeting(self, records: DataFrame, name: str) -> Visible:
        """Give columns to the records of a stream that meets by one of them."""
        rows = visible_rows(records, _is_readable())
        if name == STREAM:
            steps = self._plan().reader_of(name).steps
            return rows.given(READ, _fields(self.schemas[name])).stepped(steps)
        _, columns = self._plan().value_of(name)
        return rows.given(FIELDS if self._plan().is_rewritten(name) else READ, columns)


def _is_readable() -> Column:
    return F.col("aside").isNull()


def _fields(schema: StructType) -> Columns:
    """Return the columns of a value by the names that a user sees."""
    return {column_of(name): (name,) for name in schema.names}


def _is_row() -> Column:
    return F.col("verdict").isin(JOINED, CORRECTED, CHANGED)


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
