"""Turn SQL into the same descriptions: one SELECT over streams and tables that have names.

    FROM orders o JOIN prices FOR SYSTEM_TIME AS OF o.time AS p ON o.product = p.key    join_as_of
    FROM orders o JOIN customers c ON o.customer = c.key                                join_on
    FROM a JOIN b ON a.key = b.key                                                      join

Two streams meet within a window (`sql_within`). The temporal join is the standard's, which Spark's
SQL lacks. Expressions are Spark's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, TypeGuard, cast

from sqlglot import exp, parse
from sqlglot.errors import SqlglotError

from headrace.contracts.errors import JobInvalid
from headrace.spark_jobs.queries.aggregates import Aggregate, Kind
from headrace.spark_jobs.queries.described import Query
from headrace.spark_jobs.queries.names import OWN
from headrace.spark_jobs.queries.sql_within import columns_of, meeting_of
from headrace.spark_jobs.queries.streams import Stream
from headrace.spark_jobs.queries.tables import Table

_DIALECT = "spark"
_CLAUSES = {"expressions", "from", "from_", "joins", "where", "group", "having", "kind"}
_KINDS: Mapping[type[exp.Expression], Kind] = {
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Min: "min",
    exp.Max: "max",
    exp.Avg: "avg",
    exp.ArrayAgg: "collect",
}
_HOW = {"": "inner", "LEFT": "left", "FULL": "outer"}


def sql(
    query: str,
    *,
    grace: str | int | None = None,
    corrections: bool = False,
    history: str | None = None,
    **sources: Query,
) -> Query:
    """Describe the query of a SELECT over streams and tables that have these names.

    `grace`, `corrections` and `history` are those of `join_as_of`, or the `grace` of `join_within`.
    """
    waits = {"grace": grace, "corrections": corrections, "history": history}
    return _Selection(_parsed(query), sources, waits).query()


def _parsed(query: str) -> exp.Select:
    try:
        found = parse(query, read=_DIALECT)
    except SqlglotError as error:
        said = str(error).partition("\n")[0].removesuffix(".")
        message = f"this is not SQL: {said}"
        raise JobInvalid(message) from error
    if len(found) != 1 or not isinstance(found[0], exp.Select):
        message = "a query is one SELECT, and this is another statement, or several"
        raise JobInvalid(message)
    return found[0]


class _Selection:
    def __init__(
        self, select: exp.Select, sources: Mapping[str, Query], waits: Mapping[str, Any]
    ) -> None:
        self._select = select
        self._sources = sources
        self._waits = waits
        self._aliases: dict[str, str] = {}
        """The alias of every table, in lower case; the row of the first one has the key."""

    def query(self) -> Query:
        """Describe the query, clause by clause."""
        self._refuse_clauses()
        query: Any = self._joined()
        where = self._select.args.get("where")
        if where is not None:
            query = query.filter(self._text(where.this))
        group = self._select.args.get("group")
        if group is not None or any(each.find(exp.AggFunc) for each in self._items()):
            query = self._grouped(query, group)
        items = [self._text(each) for each in self._items()]
        return cast("Query", query if items == ["*"] else query.select(*items))

    def _items(self) -> list[exp.Expression]:
        return cast("list[exp.Expression]", self._select.expressions)

    def _refuse_clauses(self) -> None:
        for name, clause in self._select.args.items():
            if clause and name not in _CLAUSES:
                written = name.removesuffix("_").upper()
                _refuse(f"`{written}` has no meaning over rows that never end; leave it out")
        if self._select.find(exp.Subquery) or self._select.find(exp.Window):
            _refuse("subqueries and windows are not taken; write one SELECT over topics")

    def _joined(self) -> Query:
        begins = self._select.args.get("from_") or self._select.args.get("from")
        if begins is None:
            _refuse("the query has no FROM; name a stream or a table there")
        query = self._named(begins.this)
        for join in self._select.args.get("joins") or []:
            query = self._join(query, join)
        return query

    def _named(self, table: exp.Expression) -> Query:
        name = table.name
        query = self._sources.get(name)
        if not isinstance(table, exp.Table) or query is None:
            known = ", ".join(f"`{each}`" for each in self._sources) or "none"
            _refuse(f"`{table.sql(_DIALECT)}` is none of the query's streams and tables: {known}")
        self._aliases[table.alias_or_name.lower()] = name
        return query

    def _join(self, left: Any, join: exp.Join) -> Query:
        text = join.sql(_DIALECT).strip()
        how = _HOW.get(join.side) if join.kind in {"", "INNER", "OUTER"} else None
        if how is None:
            _refuse(f"`{text}` is a join of another kind; write JOIN, LEFT JOIN or FULL JOIN")
        first = next(iter(self._aliases), "")
        right = self._named(join.this)
        alias = join.this.alias_or_name.lower()
        if isinstance(left, Stream) and isinstance(right, Stream):
            return self._within(left, right, join, how)
        on = self._met_by(join.args.get("on"), alias, text)
        version = join.this.args.get("version")
        if version is not None:
            self._refuse_other_time(version, first, text)
            waits = {name: value for name, value in self._waits.items() if value}
            return cast("Query", left.join_as_of(right, on=on, how=how, **waits))
        if isinstance(left, Stream):
            _refuse(
                f"`{text}` joins a stream, which looks up as of its own time; write"
                f" `{join.this.name} FOR SYSTEM_TIME AS OF {first}.time AS {alias}`"
            )
        if on is None:
            return cast("Query", left.join(right, how=how))
        return cast("Query", left.join_on(right, on, how=how))

    def _within(self, left: Stream, right: Stream, join: exp.Join, how: Any) -> Query:
        """Describe two streams whose records meet if they have one key and their times are near."""
        first, alias = next(iter(self._aliases), ""), join.this.alias_or_name.lower()
        text = join.sql(_DIALECT).strip()
        meeting = meeting_of(join.args.get("on"), first, alias)
        on = None if meeting is None else columns_of(meeting.keys, first, alias)
        if meeting is None or on is None:
            _refuse(
                f"`{text}` joins two streams, whose records meet by one column of each while their"
                f" times are near; write `ON {first}.key = {alias}.key AND {alias}.time BETWEEN"
                f" {first}.time - INTERVAL 10 MINUTES AND {first}.time + INTERVAL 10 MINUTES`"
            )
        for name in ("corrections", "history"):
            if self._waits[name]:
                _refuse(f"`{name}` is of a stream joined as of a table, and `{text}` is not")
        grace = self._waits["grace"]
        return left.join_within(right, within=meeting.within_ms, on=on, how=how, grace=grace)

    def _met_by(self, on: Any, alias: str, text: str) -> str | None:
        """Return the left column that meets the right one's key; None for the left key."""
        sides: list[Any] = [on.left, on.right] if isinstance(on, exp.EQ) else []
        columns = [side for side in sides if _is_column(side)]
        keys = [each for each in columns if each.table.lower() == alias]
        others = [each for each in columns if each.table.lower() != alias]
        if len(keys) != 1 or len(others) != 1 or keys[0].name.lower() != "key":
            _refuse(f"`{text}` must meet by the key: write `ON left.column = {alias}.key`")
        return None if others[0].name.lower() == "key" else str(others[0].name)

    def _refuse_other_time(self, version: exp.Expression, first: str, text: str) -> None:
        time = version.args.get("expression")
        if (
            not _is_column(time)
            or time.name.lower() != "time"
            or time.table.lower() not in {"", first}
        ):
            _refuse(
                f"`{text}` looks up at another time than the record's own; write `{first}.time`"
            )

    def _grouped(self, table: Any, group: exp.Expression | None) -> Query:
        by = [self._text(each) for each in (group.expressions if group is not None else [])]
        if not by:
            _refuse("aggregates need a GROUP BY, for each group's row is found by its key")
        having = self._select.args.get("having")
        clauses = [*self._items(), *([having] if having is not None else [])]
        aggregates: dict[Aggregate, str] = {}
        for clause in clauses:
            for found in list(clause.find_all(exp.AggFunc)):
                table, aggregate = self._aggregate(table, found)
                aggregates[aggregate] = aggregate.name
                if found.parent is None or isinstance(found.parent, exp.Select):
                    found.replace(exp.alias_(exp.column(aggregate.name), aggregate.name))
                else:
                    found.replace(exp.column(aggregate.name))
        query: Any = table.group_by(*by).agg(*aggregates)
        return cast("Query", query if having is None else query.filter(self._text(having.this)))

    def _aggregate(self, table: Any, found: exp.Expression) -> tuple[Any, Aggregate]:
        kind = _KINDS.get(type(found))
        of = found.this
        if kind is None or isinstance(of, exp.Distinct) or found.expressions:
            written = found.sql(_DIALECT)
            _refuse(
                f"`{written}` cannot take a row out again; count, sum, min, max, avg and"
                " collect_list can"
            )
        if isinstance(of, exp.Star):
            return table, Aggregate(kind, None, "count")
        if _is_column(of):
            return table, Aggregate(kind, of.name, f"{kind}_{of.name}")
        text = self._text(of)
        if not isinstance(table, Table):
            _refuse(
                f"`{found.sql(_DIALECT)}` computes behind a join; select it before, as a column"
            )
        name = f"_{len(table.steps)}"
        return table.select("*", f"{text} AS {name}"), Aggregate(kind, name, f"{kind}{name}")

    def _text(self, found: exp.Expression) -> str:
        """Return an expression without the aliases before its columns."""
        first = next(iter(self._aliases), "")
        bare = found.copy()
        for column in [bare, *bare.find_all(exp.Column)]:
            if not isinstance(column, exp.Column) or not column.table:
                continue
            alias = column.table.lower()
            if alias not in self._aliases:
                _refuse(f"`{column.sql(_DIALECT)}` is of no table that the query names")
            self._sources[self._aliases[alias]].refuse_missing(column.name, column.sql(_DIALECT))
            if alias != first and column.name.lower() in OWN:
                _refuse(
                    f"`{column.sql(_DIALECT)}` is not kept behind the join; what it met by, and the"
                    f" row's own `{column.name}`, are those of `{first}`"
                )
            column.set("table", None)
        return bare.sql(_DIALECT)


def _is_column(found: Any) -> TypeGuard[exp.Column]:
    return isinstance(found, exp.Column) and not isinstance(found.this, exp.Star)


def _refuse(sentence: str) -> NoReturn:
    raise JobInvalid(sentence)
