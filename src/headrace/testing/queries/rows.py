"""The columns that a user sees, and a query's steps over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import types as spark

from headrace.contracts.errors import JobInvalid, SparkNeeded
from headrace.contracts.record import Record
from headrace.spark_jobs.queries.described import Expression, Filter, Select
from headrace.spark_jobs.queries.names import OWN, column_of, twice
from headrace.spark_jobs.queries.topologies import kind_at
from headrace.spark_jobs.queries.types import Columns, KeptText, Place
from headrace.spark_jobs.write.quoted import quoted
from headrace.testing.queries.casts import NoAnswer, cast_of
from headrace.testing.queries.expressions import Compiler
from headrace.testing.queries.json_values import kept_text, read_ours, write
from headrace.testing.queries.kinds import STRING, TIMESTAMP
from headrace.testing.queries.typed import Row, Typed

_ALL = "*"
_MS_IN_MICROS = 1_000


@dataclass(frozen=True)
class _Filtered:
    condition: Typed
    text: str


@dataclass(frozen=True)
class _Selected:
    columns: Mapping[str, Typed]
    text: str


@dataclass(frozen=True)
class Seen:
    """Columns that a user sees, and the steps that lead to them from decoded values."""

    kinds: Mapping[str, spark.DataType] = field(default_factory=dict)
    """The columns that are written into a row's value."""
    steps: tuple[_Filtered | _Selected | tuple[str, Columns, spark.StructType], ...] = ()

    @property
    def schema(self) -> spark.StructType:
        """Those columns, and their types."""
        return spark.StructType([spark.StructField(*one) for one in self.kinds.items()])

    def decoded(self, part: str, schema: spark.StructType, columns: Columns | None = None) -> Seen:
        """Add the columns of a part of a row, such as its value."""
        places = columns
        if places is None:
            places = {column_of(name): (name,) for name in schema.names}
        found = {name: kind_at(schema, place) for name, place in places.items()}
        return Seen({**self.kinds, **found}, (*self.steps, (part, places, schema)))

    def stepped(self, steps: Iterable[Filter | Select]) -> Seen:
        """Add steps; SparkNeeded names an expression that only Spark evaluates."""
        seen = self
        for step in steps:
            seen = seen._filtered(step) if isinstance(step, Filter) else seen._selected(step)
        return seen

    def _compiler(self, step: Filter | Select) -> Compiler:
        own = {"key": STRING, "time": TIMESTAMP}
        return Compiler({**self.kinds, **own}, str(step))

    def _filtered(self, step: Filter) -> Seen:
        condition = self._compiler(step).condition(_text_of(step.condition, step))
        return Seen(self.kinds, (*self.steps, _Filtered(condition, step.condition.text)))

    def _selected(self, step: Select) -> Seen:
        compiler = self._compiler(step)
        columns: dict[str, Typed] = {}
        names: list[str] = []
        for each in step.expressions:
            for text in self.kinds if each.text == _ALL else [_text_of(each, step)]:
                found = compiler.named(quoted(text) if each.text == _ALL else text)
                name = found.name.lower() if found.name.lower() in OWN else found.name
                names.append(name)
                columns[name] = found.typed
        doubled = twice(names)
        if doubled is not None:
            message = f"`{step}` has two columns `{doubled}`; give one another name by `AS`"
            raise JobInvalid(message)
        step.refuse_other_own([*self.kinds], names)
        kinds = {name: typed.kind for name, typed in columns.items()}
        return Seen(kinds, (*self.steps, _Selected(columns, str(step))))

    def run(self, record: Record, parts: Mapping[str, bytes | None]) -> Row | None:
        """Return the columns of a row, and its own; None if it has no value, or a filter drops it.

        NoAnswer names an expression without an answer for this row.
        """
        if record.value is None:
            return None
        own: Row = {"key": _text_of_key(record.key), "time": record.timestamp_ms * _MS_IN_MICROS}
        row = dict(own)
        for step in self.steps:
            if isinstance(step, tuple):
                row |= _read_part(parts[step[0]], *step[1:])
                continue
            try:
                if isinstance(step, _Selected):
                    chosen = {name: typed.run(row) for name, typed in step.columns.items()}
                    row = {**own, **chosen}
                elif not step.condition.run(row):
                    return None
            except NoAnswer as error:
                message = f"`{step.text}`: {error}"
                raise NoAnswer(message) from error
        return row

    def written(self, row: Row) -> bytes:
        """Write the columns that a user sees as a value."""
        return write({name: (row[name], kind) for name, kind in self.kinds.items()})

    def key_of(self, row: Row, column: str) -> bytes | None:
        """Return a column as the bytes of a key."""
        name, kind = next(one for one in self._all() if one[0].lower() == column.lower())
        value = row[name]
        if value is None:
            return None
        text = cast_of(kind, STRING)
        if text is None:
            message = f"`{column}` is a {kind.simpleString().upper()}, whose text only Spark knows"
            raise SparkNeeded(message)
        return str(text(value)).encode()

    def _all(self) -> Iterable[tuple[str, spark.DataType]]:
        yield from self.kinds.items()
        yield "key", STRING


def _text_of_key(key: bytes | None) -> str | None:
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        return None


def _read_part(value: bytes | None, columns: Columns, schema: spark.StructType) -> Row:
    parsed = None if value is None else read_ours(value, schema)
    return {name: _at(parsed, place) for name, place in columns.items()}


def _at(parsed: Any, place: Place) -> Any:
    for step in place.path if isinstance(place, KeptText) else place:
        if parsed is None:
            return None
        parsed = parsed[step]
    if not isinstance(place, KeptText) or parsed is None:
        return parsed
    if place.sum_type is None:
        return kept_text(parsed, place.kind)
    return _average(parsed, place.sum_type, place.kind)


def _average(text: str, sum_type: spark.DataType, kind: spark.DataType) -> Any:
    """Divide an average as Spark does."""
    rows_type = sum_type
    if isinstance(sum_type, spark.DecimalType):
        rows_type = spark.DecimalType(19, 0)
    total, rows = (
        kept_text(part, each)
        for part, each in zip(text.split("/"), (sum_type, rows_type), strict=True)
    )
    if total is None:
        return None
    columns = Compiler({"total": sum_type, "rows": rows_type}, "avg")
    divided = columns.named("total / rows AS mean").typed
    cast = cast_of(divided.kind, kind)
    assert cast is not None
    try:
        return cast(divided.run({"total": total, "rows": rows}))
    except NoAnswer:
        return None


def _text_of(expression: Expression, step: Filter | Select) -> str:
    if expression.column is not None:
        message = (
            f"`{step}` has a column of pyspark's, which only Spark's Java evaluates; write it as"
            ' text, such as `"quantity * price_cents AS total_cents"`'
        )
        raise SparkNeeded(message)
    return expression.text
