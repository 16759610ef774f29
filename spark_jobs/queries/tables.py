"""Tables: rows that change, read from topics, joined, and folded by group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from headrace.contracts.errors import JobInvalid
from headrace.spark_jobs.queries.aggregates import Aggregate
from headrace.spark_jobs.queries.described import (
    Columns,
    JoinHow,
    Query,
    Source,
    refuse_clash,
    refuse_ours,
    refuse_own,
    together,
)
from headrace.spark_jobs.queries.names import OWN, name_of, twice


@dataclass(frozen=True, kw_only=True)
class ReadTable(Query):
    """The methods of every table, read from a topic or computed."""

    def join(self, other: ReadTable, *, how: Literal["inner", "left", "outer"] = "inner") -> Any:
        """Join the rows of two tables with one key, again whenever one of the two changes."""
        return self._joined(other, None, how, ("inner", "left", "outer"))

    def join_on(self, other: ReadTable, on: str, *, how: JoinHow = "inner") -> Any:
        """Join each row with the row of another table whose key is in a column."""
        self.refuse_missing(on, "join_on")
        return self._joined(other, on, how, ("inner", "left"))

    def group_by(self, *columns: str) -> Groups:
        """Group rows by the values of columns, for `agg` to fold them."""
        if not columns:
            message = f"`group_by` of {self.title} names no column; name at least one"
            raise JobInvalid(message)
        refuse_unknown_groups(self, columns)
        self.refuse_steps("group_by")
        return Groups(self, columns)

    def join_as_of(self, *_other: object, **_options: object) -> NoReturn:
        """Refuse: the rows of a table have no time of their own."""
        message = f"{self.title} is a table; `join_as_of` stands on a stream: read it as one"
        raise JobInvalid(message)

    def _joined(self, other: object, on: str | None, how: Any, kinds: tuple[str, ...]) -> Any:
        step = "join" if on is None else "join_on"
        if not isinstance(other, ReadTable):
            message = f"`{step}` of {self.title} takes another table"
            raise JobInvalid(message)
        if how not in kinds:
            message = f"`{step}` of {self.title} with `how={how}`; write {' or '.join(kinds)}"
            raise JobInvalid(message)
        for side in (self, other):
            side.refuse_steps(step)
        refuse_clash(self, other, step)
        return JoinedTable(left=self, right=other, on=on, how=how)

    def refuse_steps(self, step: str) -> None:
        """Refuse a step between two steps of one query that would need a topic there."""
        if self.steps and not isinstance(self, Table):
            message = (
                f"`{self.steps[-1]}` stands between {self.title} and `{step}`; write it before the"
                " join, on the tables that are read, or behind it"
            )
            raise JobInvalid(message)


@dataclass(frozen=True, kw_only=True)
class Table(ReadTable):
    """A topic whose records tell the new row of a key."""

    source: Source

    @property
    def title(self) -> str:
        """Its name in messages."""
        return f"the table `{self.source.topic}`"

    @property
    def remembers(self) -> bool:
        """Whether it remembers its past, so that its newest row is the one of the latest time."""
        return self.source.retention_ms is not None

    @property
    def own_columns(self) -> Columns:
        """The fields of its values."""
        return self.source.columns

    @property
    def sources(self) -> tuple[Source, ...]:
        """The table's own topic."""
        return (self.source,)


@dataclass(frozen=True, kw_only=True)
class JoinedTable(ReadTable):
    """Two tables joined by their keys, or by a column of the left one."""

    left: ReadTable
    right: ReadTable
    on: str | None
    how: str

    @property
    def title(self) -> str:
        """Its name in messages."""
        return f"{self.left.title} joined with {self.right.title}"

    @property
    def own_columns(self) -> Columns:
        """The columns of both sides."""
        return together(self.left, self.right)

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources of both sides."""
        return (*self.left.sources, *self.right.sources)

    def lines(self) -> list[str]:
        """Describe its steps, a line each."""
        step = "join" if self.on is None else f"join_on({self.on})"
        lines = [*_lines_of(self.left), *_lines_of(self.right)]
        return [*lines, f"{step} {self.how}", *super().lines()]


@dataclass(frozen=True)
class Groups:
    """A table's rows, grouped by the values of columns."""

    table: ReadTable
    by: tuple[str, ...]

    def agg(self, *unnamed: Aggregate, **named: Aggregate) -> GroupedTable:
        """Fold the rows of each group; a keyword or `.alias` names each aggregate."""
        step = f"group_by({', '.join(self.by)})"
        aggregates = aggregates_of(self.table, step, self.by, unnamed, named)
        return GroupedTable(table=self.table, by=self.by, aggregates=aggregates)


@dataclass(frozen=True, kw_only=True)
class GroupedTable(ReadTable):
    """A row for each group: the columns it is grouped by, and its aggregates."""

    table: ReadTable
    by: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]

    @property
    def title(self) -> str:
        """Its name in messages."""
        return f"{self.table.title} grouped by {', '.join(f'`{each}`' for each in self.by)}"

    @property
    def own_columns(self) -> Columns:
        """The columns it is grouped by, and its aggregates."""
        return (*(each for each in self.by if each not in OWN), *(a.name for a in self.aggregates))

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources of the grouped table."""
        return self.table.sources

    def lines(self) -> list[str]:
        """Describe its steps, a line each."""
        folded = ", ".join(str(each) for each in self.aggregates)
        step = f"group_by({', '.join(self.by)}).agg({folded}); state: a row a group"
        return [*_lines_of(self.table), step, *super().lines()]


def refuse_unknown_groups(query: Query, columns: Sequence[object]) -> None:
    """Refuse to group by anything but the names of columns."""
    for column in columns:
        name = name_of(str(column))
        if name is None or name != column:
            message = f"`group_by` takes names of columns, not {column}; `select` computes them"
            raise JobInvalid(message)
        query.refuse_missing(name, "group_by")


def aggregates_of(
    query: Query,
    step: str,
    by: Sequence[str],
    unnamed: Sequence[Aggregate],
    named: Mapping[str, Aggregate],
) -> tuple[Aggregate, ...]:
    """Name the aggregates of a query's groups, and refuse those that cannot be computed."""
    for given in (*unnamed, *named.values()):
        if not isinstance(given, Aggregate):
            message = f"`{step}` folds by {given!r}; write an aggregate, such as `hr.sum('cents')`"
            raise JobInvalid(message)
    aggregates = [*unnamed, *(each.alias(name) for name, each in named.items())]
    if not aggregates:
        message = f"`{step}` has an empty `agg`; write one, such as `agg(orders=hr.count())`"
        raise JobInvalid(message)
    doubled = twice([*(each.name for each in aggregates), *by])
    if doubled is not None:
        message = f"`{step}` has two columns `{doubled}`; name one otherwise by `alias`"
        raise JobInvalid(message)
    for each in aggregates:
        if each.name.lower() in OWN:
            refuse_own(each.name, str(each))
        refuse_ours(each.name, f"`{step}`")
        if each.column is not None:
            query.refuse_missing(each.column, str(each))
    return tuple(aggregates)


def _lines_of(table: ReadTable) -> list[str]:
    if isinstance(table, Table):
        return [f"{table.source.topic}: {line}" for line in table.lines()]
    return table.lines()
