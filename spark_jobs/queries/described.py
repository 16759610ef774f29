"""Queries as descriptions: frozen values, without Spark until they run.

A description that cannot work raises an error in its own line, in a sentence that names the step.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self, cast

from headrace.contracts.errors import DurationInvalid, JobInvalid
from headrace.contracts.problem_text import listed, meant
from headrace.contracts.time import format_duration_ms, parse_duration_ms
from headrace.extras import load
from headrace.spark_jobs.queries.names import (
    OURS,
    OWN,
    Schema,
    column_of,
    name_of,
    names_of,
    twice,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from headrace.spark_jobs.read.registry import RegistryAccess

_FRAME = "headrace.spark_jobs.queries.frame:dataframe"
_BACKFILL = "headrace.spark_jobs.queries.frame:backfill"
_COLUMNS_IN = "headrace.spark_jobs.queries.mentioned:columns_in"
JoinHow = Literal["inner", "left"]
ALL = "*"
Columns = tuple[str, ...] | None
"""The columns of a value; None where only Spark knows them."""


@dataclass(frozen=True)
class Expression:
    """A computed column, in Spark's SQL or as a column of pyspark."""

    text: str
    column: Any = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, given: object, step: str) -> Expression:
        """Take an expression as the user wrote it: text, or a column."""
        if isinstance(given, str) and given.strip():
            return cls(given.strip())
        if type(given).__module__.startswith("pyspark.sql.") and hasattr(given, "alias"):
            return cls(str(given).removeprefix("Column<'").removesuffix("'>"), given)
        message = f"`{step}` takes names, expressions in SQL, and columns, not {given!r}"
        raise JobInvalid(message)


@dataclass(frozen=True)
class Filter:
    """Keeps only rows of which this is true."""

    condition: Expression

    def __str__(self) -> str:
        """Return its name in messages."""
        return f"filter({self.condition.text})"


@dataclass(frozen=True)
class Select:
    """Keeps these columns, and no others."""

    expressions: tuple[Expression, ...]

    def __str__(self) -> str:
        """Return its name in messages."""
        return f"select({', '.join(each.text for each in self.expressions)})"

    def columns_of(self, before: Columns) -> Columns:
        """Return the columns that it makes of those before it."""
        columns: list[str] = []
        for each in self.expressions:
            name = name_of(each.text)
            if each.text == ALL and before is not None:
                columns += before
            elif name is not None:
                columns.append(name)
            else:
                return None
        return tuple(columns)

    def refuse_other_own(self, before: Sequence[str], names: Sequence[str]) -> None:
        """Refuse a name of the record's own for another column; `names` are those of all it makes.

        `before` are the columns that `*` has.
        """
        texts = [
            text
            for each in self.expressions
            for text in (before if each.text == ALL else [each.text])
        ]
        for name, text in zip(names, texts, strict=True):
            if name.lower() in OWN and text.strip("`").lower() != name.lower():
                refuse_own(name, str(self))


@dataclass(frozen=True, kw_only=True)
class Query:
    """The methods of every stream and table."""

    steps: tuple[Filter | Select, ...] = ()

    def filter(self, condition: object) -> Self:
        """Keep only rows of which a condition is true; a table deletes all others."""
        step = Filter(Expression.of(condition, "filter"))
        self._refuse_unknown(step.condition, step)
        return replace(self, steps=(*self.steps, step))

    def select(self, *columns: object) -> Self:
        """Keep these columns; `key`, `time` and `headers` are the record's own and always there."""
        step = Select(tuple(Expression.of(each, "select") for each in columns))
        names = [name_of(each.text) for each in step.expressions]
        if not names:
            message = f"`select` of {self.title} names no column; name one, or leave it out"
            raise JobInvalid(message)
        doubled = twice(name for name in names if name is not None)
        if doubled is not None:
            message = f"`{step}` has two columns `{doubled}`; give one another name by `AS`"
            raise JobInvalid(message)
        for name, each in zip(names, step.expressions, strict=True):
            if name is not None and name.lower() in OWN and each.text != name:
                refuse_own(name, str(step))
            refuse_ours(name, f"`{step}`")
            # A name given in a select may be used behind its comma.
            self._refuse_unknown(each, step, also=[other for other in names if other != name])
        return replace(self, steps=(*self.steps, step))

    def _refuse_unknown(
        self, expression: Expression, step: Filter | Select, also: Iterable[str | None] = ()
    ) -> None:
        """Refuse an expression that names a column that is not there, if the columns are known."""
        if expression.column is not None or expression.text == ALL:
            return
        given = {each.lower() for each in also if each is not None}
        text = expression.text
        names = [text]
        if name_of(text) != text:
            names = load(_COLUMNS_IN, extra="spark", needed_for=f"`{step}`")(text)
        for name in names:
            if name.lower() not in given or name == text:
                self.refuse_missing(name, str(step))

    @property
    def title(self) -> str:
        """Its name in messages."""
        raise NotImplementedError

    @property
    def own_columns(self) -> Columns:
        """Its columns before its steps."""
        raise NotImplementedError

    @property
    def sources(self) -> tuple[Source, ...]:
        """The topics that it reads, tables first."""
        raise NotImplementedError

    @property
    def columns(self) -> Columns:
        """Its columns; None where only Spark knows them."""
        columns = self.own_columns
        for step in self.steps:
            if isinstance(step, Select):
                columns = step.columns_of(columns)
        return columns

    def refuse_missing(self, name: object, step: str) -> None:
        """Refuse a name that is none of its columns, if they are known."""
        if not isinstance(name, str):
            message = (
                f"`{step}` of {self.title} takes the name of a column, not {name!r}; `select`"
                " computes one"
            )
            raise JobInvalid(message)
        columns = self.columns
        known = {each.lower() for each in (*(columns or ()), *OWN)}
        if columns is not None and name.lower() not in known:
            near = meant((name,), (*columns, *OWN))
            guess = f"; did you mean `{near[-1]}`?" if near else ""
            message = (
                f"`{step}` names a column `{name}`, and {self.title} has {listed(columns)}{guess}"
            )
            raise JobInvalid(message)

    def lines(self) -> list[str]:
        """Describe its steps, a line each."""
        return [str(step) for step in self.steps]

    def dataframe(
        self,
        spark: SparkSession,
        *,
        servers: str,
        kafka: Mapping[str, Any] | None = None,
        tasks: int = 16,
    ) -> DataFrame:
        """Return its columns as a streaming DataFrame of your session, without tombstones.

        `kafka` has the options of a job's file with that name: how to log in.
        """
        make = load(_FRAME, extra="spark", needed_for="`dataframe`")
        return cast("DataFrame", make(self, spark, servers=servers, kafka=kafka or {}, tasks=tasks))

    def backfill(
        self, spark: SparkSession, *, servers: str, kafka: Mapping[str, Any] | None = None
    ) -> DataFrame:
        """Return its columns over all that its topics have now, as a DataFrame at rest.

        Every version of a table counts, however old, and no record is late.
        """
        make = load(_BACKFILL, extra="spark", needed_for="`backfill`")
        return cast("DataFrame", make(self, spark, servers=servers, kafka=kafka or {}))

    def explain(self) -> str:
        """Describe what it reads, computes and keeps; this connects to nothing."""
        return "\n".join([*(str(each) for each in self.sources), *self.lines()])


def refuse_own(name: str, step: str) -> NoReturn:
    """Refuse to give a computed column a name of the record's own."""
    message = (
        f"`{step}` calls a column `{name}`, which is the record's own {name.lower()} and cannot be"
        " another; give it another name"
    )
    raise JobInvalid(message)


def refuse_ours(name: str | None, where: str) -> None:
    """Refuse a column with a name of those that stand beside the user's."""
    if name is None or not name.lower().startswith(OURS):
        return
    message = (
        f"{where} has a column `{name}`, and names that begin with `_headrace` or `_hr_` are"
        " headrace's; give it another name"
    )
    raise JobInvalid(message)


@dataclass(frozen=True)
class Source:
    """A topic, and the schema of its values."""

    kind: Literal["stream", "table"]
    topic: str
    schema: Schema
    pipeline: str | None
    retention_ms: int | None = None
    registry: RegistryAccess | None = None
    """Where the schemas of its values are, if each names its own by a number."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of its values."""
        return tuple(column_of(name) for name in names_of(self.schema))

    def __str__(self) -> str:
        """Describe it in a line."""
        by = f"written by `{self.pipeline}`" if self.pipeline else "written by no pipeline"
        kept = "the latest row of each key"
        if self.retention_ms is not None:
            kept = f"the versions of the last {format_duration_ms(self.retention_ms)}"
        said = f"{self.kind} {self.topic}, {by}"
        schema = self.schema if isinstance(self.schema, str) else self.schema.__name__
        if self.registry is not None:
            said += f", in the schemas of {self.registry.url}"
        return f"{said}: {schema}" + (f"; state: {kept}" if self.kind == "table" else "")


def together(left: Query, right: Query) -> Columns:
    """Return the columns of two queries side by side."""
    if left.columns is None or right.columns is None:
        return None
    rights = (each for each in right.columns if each.lower() not in OWN)
    return (*(each for each in left.columns if each.lower() not in OWN), *rights)


def refuse_clash(left: Query, right: Query, step: str) -> None:
    """Refuse two columns of one name, if the columns are known."""
    refuse_doubled(together(left, right) or (), left, right, step)


def refuse_doubled(names: Iterable[str], left: Query, right: Query, step: str) -> None:
    """Refuse a name that is twice among the columns of two queries side by side."""
    doubled = twice(names)
    if doubled is not None:
        message = (
            f"`{step}`: {left.title} and {right.title} both have a column `{doubled}`; give one"
            f" another name before, by `select({doubled} AS ...)`"
        )
        raise JobInvalid(message)


def milliseconds(given: str | int, option: str, where: str) -> int:
    """Parse a duration as the user wrote it."""
    try:
        return parse_duration_ms(given)
    except DurationInvalid as error:
        message = f"`{option}` of {where}: {error}"
        raise JobInvalid(message) from error
