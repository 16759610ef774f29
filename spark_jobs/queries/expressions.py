"""Evaluate a query's expressions by Spark on the rows of a stage.

A stage's frame has rows of other kinds too: counts, late and dead records. They stay unchanged in
one column beside those that a user sees; the user's expressions are not evaluated on them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from pyspark.errors import AnalysisException, ArithmeticException, ParseException
from pyspark.logger import PySparkLogger
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own pages call it)
from pyspark.sql.types import (
    ArrayType,
    CharType,
    DataType,
    DecimalType,
    MapType,
    StringType,
    StructType,
    VarcharType,
)

from headrace.contracts.errors import JobInvalid, SchemaRefused
from headrace.spark_jobs.queries.described import Expression, Filter, Select
from headrace.spark_jobs.queries.names import OWN, column_of, twice
from headrace.spark_jobs.queries.types import KeptText
from headrace.spark_jobs.read.decode import JsonValue
from headrace.spark_jobs.read.schema import schema_of
from headrace.spark_jobs.seams import is_deterministic
from headrace.spark_jobs.shapes import FIELDS
from headrace.spark_jobs.write.quoted import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column, DataFrame, SparkSession

    from headrace.spark_jobs.queries.described import Source
    from headrace.spark_jobs.queries.types import Columns, Place

_INNER, _CHOSEN, _ALIVE = "_headrace_row", "_headrace_chosen", "_headrace_alive"
_NAMES_A_ROW = ("key", "time")
_ROW, _PARSED, _GROUP = "_headrace_written", "_headrace_parsed", "_headrace_group"
_ALL = "*"
_LOGGERS_TOO = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
_JSON = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    # Spark's own forms end at milliseconds.
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


@dataclass(frozen=True)
class Visible:
    """The rows of a stage, with the columns that a user sees."""

    frame: DataFrame
    names: tuple[str, ...]
    """The columns that are written into a row's value."""

    @property
    def schema(self) -> StructType:
        """Those columns, and their types."""
        return StructType([self.frame.schema[name] for name in self.names])

    def decoded(self, value: str, schema: StructType, columns: Columns | None = None) -> Visible:
        """Add the columns of a value of the stage; by default those of its JSON."""
        # This is a column of its own, or Spark would parse it anew for each field.
        parsed = f"{_PARSED}_{value}"
        read = F.when(F.col(_ALIVE), JsonValue(schema).parse(F.col(_INNER)[value]))
        if columns is None:
            columns = {column_of(name): (name,) for name in schema.names}
        found = {name: _at(F.col(parsed), each) for name, each in columns.items()}
        return Visible(
            self.frame.withColumn(parsed, read).withColumns(found).drop(parsed),
            (*self.names, *found),
        )

    def given(self, struct: str, columns: Columns) -> Visible:
        """Add the columns of a struct that stands beside the value of the stage."""
        fields = F.when(F.col(_ALIVE), F.col(_INNER)[struct])
        found = {name: _at(fields, each) for name, each in columns.items()}
        return Visible(self.frame.withColumns(found), (*self.names, *found))

    def stepped(self, steps: Iterable[Filter | Select]) -> Visible:
        """Apply steps to the rows."""
        visible = self
        for step in steps:
            with _refusals_of(step):
                if isinstance(step, Filter):
                    visible = visible.filtered(step)
                else:
                    visible = visible.selected(step)
        return visible

    def value_of(self, column: str) -> Column:
        """Return a column of the rows that are alive, as the bytes of a key."""
        return F.when(F.col(_ALIVE), F.col(quoted(column)).cast("string").cast("binary"))

    def with_keys(self, column: str, header: str) -> DataFrame:
        """Give the stage's rows another key, and keep their own in a header."""
        inner = F.col(_INNER)
        headers = _with_key(inner, header)
        return self.changed(
            {
                "key": F.when(F.col(_CHOSEN), self.value_of(column)).otherwise(inner["key"]),
                "headers": F.when(F.col(_CHOSEN), headers).otherwise(inner["headers"]),
            }
        )

    def written(self, *, keeps_dropped: bool, keeps_fields: bool = False) -> DataFrame:
        """Write the columns that a user sees into the values of the stage's rows.

        A row that a filter left out gets no value, which deletes it, or is removed. With
        `keeps_fields`, the columns stay beside their JSON, so that no sink parses it again.
        """
        columns = F.struct(*(F.col(quoted(name)) for name in self.names))
        value = F.when(F.col(_ALIVE), F.to_json(columns, _JSON).cast("binary"))
        visible = replace(self, frame=self.frame.withColumn(_ROW, value))
        if not keeps_dropped:
            dropped = F.col(_CHOSEN) & ~F.col(_ALIVE)
            visible = replace(visible, frame=visible.frame.where(~dropped))
        inner = F.col(_INNER)
        value = F.when(F.col(_CHOSEN), F.col(_ROW)).otherwise(inner["value"])
        changed = {"value": value}
        if keeps_fields:
            before = inner[FIELDS] if FIELDS in visible.inner_names else F.lit(None)
            fields = F.when(F.col(_ALIVE), columns)
            changed[FIELDS] = F.when(F.col(_CHOSEN), fields).otherwise(before)
        return visible.changed(changed)

    def grouped(self, by: Sequence[str], header: str | None = None) -> DataFrame:
        """Write rows to be folded: as values all columns, and as keys what they are grouped by.

        Their own keys stay in a header of this name. Without one they have no headers, and a row
        that a filter left out is removed.
        """
        columns = F.struct(*(F.col(quoted(name)) for name in self.names))
        group = F.struct(*(F.col(quoted(name)) for name in by))
        written = {
            each: F.when(F.col(_ALIVE), F.to_json(one, _JSON).cast("binary"))
            for each, one in ((_ROW, columns), (_GROUP, group))
        }
        frame = self.frame.withColumns(written)
        if header is None:
            frame = frame.where(F.col(_ALIVE) | ~F.col(_CHOSEN))
        inner, is_chosen = F.col(_INNER), F.col(_CHOSEN)
        headers = F.lit(None) if header is None else _with_key(inner, header)
        return replace(self, frame=frame).changed(
            {
                "key": F.when(is_chosen, F.col(_GROUP)).otherwise(inner["key"]),
                "value": F.when(is_chosen, F.col(_ROW)).otherwise(inner["value"]),
                "headers": F.when(is_chosen, headers).otherwise(inner["headers"]),
            }
        )

    def alone(self) -> DataFrame:
        """Return only the columns, of rows that are alive."""
        own = [F.col(name) for name in _NAMES_A_ROW if name not in self.names]
        columns = [F.col(quoted(name)) for name in self.names]
        return self.frame.where(F.col(_ALIVE)).select(*own, *columns)

    def changed(self, changed: dict[str, Column]) -> DataFrame:
        """Return the stage's rows with these columns changed or added."""
        kept = {name: F.col(_INNER)[name] for name in self.inner_names}
        return self.frame.select(*(one.alias(name) for name, one in (kept | changed).items()))

    @property
    def inner_names(self) -> list[str]:
        """The columns of the stage."""
        inner = self.frame.schema[_INNER].dataType
        assert isinstance(inner, StructType)
        return inner.names

    def filtered(self, step: Filter) -> Visible:
        """Leave alive only the rows of which a condition is true."""
        holds = F.when(F.col(_ALIVE), self._column(step.condition))
        _refuse_random(self.frame.select(holds), step)
        alive = F.coalesce(holds, F.lit(False))  # noqa: FBT003 (Spark's own way to say it)
        return replace(self, frame=self.frame.withColumn(_ALIVE, alive))

    def selected(self, step: Select) -> Visible:
        """Keep these columns and no others."""
        columns = [
            column
            for each in step.expressions
            for column in (self._all() if each.text == _ALL else [self._column(each)])
        ]
        names = self._checked(self.frame.select(*columns), step)
        own = {name.lower() for name in OWN}
        chosen = [
            F.when(F.col(_ALIVE), column).alias(name)
            for name, column in zip(names, columns, strict=True)
            if name.lower() not in own
        ]
        inner = [F.col(name) for name in (_INNER, _CHOSEN, _ALIVE, *OWN)]
        kept = tuple(name.lower() if name.lower() in own else name for name in names)
        return Visible(self.frame.select(*inner, *chosen), kept)

    def _checked(self, selected: DataFrame, step: Select) -> list[str]:
        names = selected.schema.names
        doubled = twice(names)
        if doubled is not None:
            message = f"`{step}` has two columns `{doubled}`; give one another name by `AS`"
            raise JobInvalid(message)
        step.refuse_other_own(self.names, names)
        _refuse_random(selected, step)
        return list(names)

    def _all(self) -> list[Column]:
        return [F.col(quoted(name)) for name in self.names]

    def _column(self, expression: Expression) -> Column:
        if expression.column is not None:
            column: Column = expression.column
            return column
        names = {name.lower() for name in (*self.names, *OWN)}
        if expression.text.lower() in names:
            return F.col(quoted(expression.text))
        return F.expr(expression.text)


def _with_key(inner: Column, header: str) -> Column:
    """Return the headers of a stage's row, with its key in one more."""
    kept = F.struct(F.lit(header).alias("key"), inner["key"].alias("value"))
    none = F.array().cast("array<struct<key:string,value:binary>>")
    return F.concat(F.coalesce(inner["headers"], none), F.array(kept))


def _at(parsed: Column, place: Place) -> Column:
    """Return the column at a place in a parsed value."""
    for step in place.path if isinstance(place, KeptText) else place:
        parsed = parsed[step]
    if not isinstance(place, KeptText):
        return parsed
    if isinstance(place.kind, ArrayType):
        item = place.kind.elementType
        texts = F.from_json(parsed, ArrayType(StringType()))
        return F.transform(texts, lambda text: text.try_cast(item))
    if place.sum_type is None:
        return parsed.try_cast(place.kind)
    return _quotient(parsed, place.sum_type, place.kind)


def _quotient(text: Column, sum_type: DataType, kind: DataType) -> Column:
    """Divide an average: into a double for whole numbers, else into a decimal."""
    total, rows = F.split_part(text, F.lit("/"), F.lit(1)), F.split_part(text, F.lit("/"), F.lit(2))
    rows_type = DecimalType(19, 0) if isinstance(sum_type, DecimalType) else sum_type
    return F.try_divide(total.try_cast(sum_type), rows.try_cast(rows_type)).try_cast(kind)


def visible_rows(frame: DataFrame, chosen: Column) -> Visible:
    """Give columns to the chosen rows of a stage."""
    inner = frame.select(
        F.struct(*(F.col(name) for name in frame.columns)).alias(_INNER),
        F.coalesce(chosen, F.lit(False)).alias(_CHOSEN),  # noqa: FBT003 (as above)
    )
    row = F.col(_INNER)
    return Visible(
        inner.withColumn(_ALIVE, F.col(_CHOSEN) & row["value"].isNotNull()).withColumns(
            {
                # Bytes that are no text would become one text wherever they are written.
                "key": F.try_validate_utf8(row["key"].cast("string")),
                "time": F.timestamp_millis(row["timestamp_ms"]),
                "headers": row["headers"],
            }
        ),
        (),
    )


def struct_of(source: Source) -> StructType:
    """Return the schema of a topic's values."""
    if not isinstance(source.schema, str):
        return schema_of(source.schema)
    try:
        found = cast("StructType", StructType.fromDDL(source.schema))
    except (ParseException, AnalysisException, ArithmeticException) as error:
        message = f"the schema of `{source.topic}` is none: {_said_by(error)}"
        raise SchemaRefused(message) from error
    refuse_unreadable(found, source.topic)
    return found


def refuse_unreadable(kind: DataType, topic: str) -> None:
    """Refuse types that Spark's DDL has, and that Spark cannot read from JSON."""
    match kind:
        case StructType():
            inner = [field.dataType for field in kind.fields]
        case ArrayType():
            inner = [kind.elementType]
        case MapType():
            inner = [kind.keyType, kind.valueType]
        case _:
            inner = []
    advice = "STRING" if isinstance(kind, CharType | VarcharType) else None
    if isinstance(kind, MapType) and not isinstance(kind.keyType, StringType):
        advice = f"MAP<STRING, {kind.valueType.simpleString().upper()}>"
    if advice is not None:
        message = (
            f"the schema of `{topic}` has a {kind.simpleString().upper()}, which Spark cannot read"
            f" from JSON; write {advice}"
        )
        raise SchemaRefused(message)
    for each in inner:
        refuse_unreadable(each, topic)


def _refuse_random(frame: DataFrame, step: Filter | Select) -> None:
    if not is_deterministic(frame):
        message = (
            f"`{step}` gives other rows each time that it is computed, so nothing could be written"
            " exactly once; leave out what is random"
        )
        raise JobInvalid(message)


@contextmanager
def _refusals_of(step: Filter | Select) -> Iterator[None]:
    """Raise Spark's refusal as a sentence that names the step, and keep it out of the log."""
    loggers = [PySparkLogger.getLogger(name) for name in _LOGGERS_TOO]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    except (AnalysisException, ParseException) as error:
        message = f"`{step}` cannot be computed: {_said_by(error)}"
        raise JobInvalid(message) from error
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _said_by(error: Exception) -> str:
    lines: Sequence[str] = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = lines[0] if lines else type(error).__name__
    return said.partition(" SQLSTATE")[0].removesuffix(";")


def empty_frame(spark: SparkSession, schema: str) -> DataFrame:
    """Make a frame of these columns without rows, to try steps on it."""
    return spark.createDataFrame([], schema)
