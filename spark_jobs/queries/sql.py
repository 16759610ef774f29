"""Turn SQL into the same descriptions: one SELECT over streams and tables that have names.

    FROM orders o JOIN prices FOR SYSTEM_TIME AS OF o.time AS p ON o.product = p.key    join_as_of
    FROM orders o JOIN customers c ON o.customer = c.key                                join_on
    FROM a JOIN b ON a.key = b.key                                                      join

    FROM payments p GROUP BY p.account, window(p.time, '1 hour')                        windows

Two streams meet within a window of time (`sql_within`). The temporal join is the standard's, which
Spark's SQL lacks. Expressions are Spark's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, cast

from sqlglot import TokenType, exp
from sqlglot.errors import SqlglotError

from headrace.contracts.errors import JobInvalid
from headrace.spark_jobs.queries.aggregates import Aggregate, Kind
from headrace.spark_jobs.queries.described import Query
from headrace.spark_jobs.queries.names import OWN, name_of
from headrace.spark_jobs.queries.sql_text import Clauses, Edits, Words, alias_of_all, is_column
from headrace.spark_jobs.queries.sql_window import statements_of, window_of
from headrace.spark_jobs.queries.sql_within import columns_of, meeting_of
from headrace.spark_jobs.queries.streams import Stream
from headrace.spark_jobs.queries.tables import Table
from headrace.spark_jobs.queries.windows import GroupableStream, MadeStream, Window
from headrace.spark_jobs.write.quoted import quoted

_DIALECT = "spark"
_CLAUSES = {"expressions", "from", "from_", "joins", "where", "group", "having", "kind"}
_CANNOT_TAKE_OUT = (exp.Distinct, exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.Order)
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
    said = {"grace": grace, "corrections": corrections or None, "history": history}
    for name, value in said.items():
        if isinstance(value, Query):
            _refuse(
                f"`{name}` is an option of `sql`, and not {value.title}; give that another name"
            )
    return selected(query, sources, said)


def selected(query: str, sources: Mapping[str, Query], said: Mapping[str, Any]) -> Query:
    """Describe the query of a SELECT over streams and tables by name.

    `said` are options of its join, None where they are not given.
    """
    waits = {name: value for name, value in said.items() if value is not None}
    return _Selection(query, sources, waits).query()


def _parsed(query: str) -> exp.Select:
    try:
        found = statements_of(query, _DIALECT)
    except SqlglotError as error:
        said = str(error).partition("\n")[0].removesuffix(".")
        message = f"this is not SQL: {said}"
        raise JobInvalid(message) from error
    if len(found) != 1 or not isinstance(found[0], exp.Select):
        message = "a query is one SELECT, and this is another statement, or several"
        raise JobInvalid(message)
    return found[0]


class _Selection:
    def __init__(self, query: str, sources: Mapping[str, Query], waits: Mapping[str, Any]) -> None:
        self._select = _parsed(query)
        self._clauses = Clauses(query, _DIALECT)
        self._sources = sources
        self._waits = waits
        self._aliases: dict[str, str] = {}
        """The alias of every table, in lower case; the row of the first one has the key."""
        self._keyed: set[str] = set()
        """The aliases whose key is the row's own."""
        self._are_pairs = False
        """Whether rows are of two streams that meet within a window."""

    def query(self) -> Query:
        """Describe the query, clause by clause."""
        self._refuse_clauses()
        query: Any = self._joined()
        if self._waits and not isinstance(query, MadeStream):
            _refuse(f"`{next(iter(self._waits))}` is of a stream that is joined, and none is here")
        where = self._select.args.get("where")
        if where is not None:
            query = query.filter(self._condition(TokenType.WHERE, where.this, {}))
        edits: Edits = {}
        is_grouped = any(self._select.args.get(name) for name in ("group", "having"))
        if is_grouped or any(each.find(exp.AggFunc) for each in self._items()):
            query, edits = self._grouped(query)
        items = [
            text
            for words, item in zip(
                self._clauses.parts(TokenType.SELECT, self._items()), self._items(), strict=True
            )
            for text in self._texts(words, item, edits)
        ]
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
        self._keyed = {*self._aliases}
        for join in self._select.args.get("joins") or []:
            query = self._join(query, join)
        return query

    def _named(self, table: exp.Expression, *also: str) -> Query:
        name = table.name
        query = self._sources.get(name)
        if not isinstance(table, exp.Table) or query is None:
            known = ", ".join(f"`{each}`" for each in self._sources) or "none"
            _refuse(f"`{table.sql(_DIALECT)}` is none of the query's streams and tables: {known}")
        named = ("this", "alias", *also)
        more = [one for one, said in table.args.items() if said and one not in named]
        if more or table.alias_column_names:
            _refuse(
                f"`{table.sql(_DIALECT)}` says more than which stream or table it is; write"
                f" `{name}`, and an alias if need be"
            )
        self._aliases[table.alias_or_name.lower()] = name
        return query

    def _join(self, left: Any, join: exp.Join) -> Query:
        text = join.sql(_DIALECT).strip()
        how = _HOW.get(join.side) if join.kind in {"", "INNER", "OUTER"} else None
        if how is None:
            _refuse(f"`{text}` is a join of another kind; write JOIN, LEFT JOIN or FULL JOIN")
        first = next(iter(self._aliases), "")
        met = self._sources.get(join.this.name)
        are_streams = isinstance(left, Stream) and isinstance(met, Stream)
        right = self._named(join.this, *(() if are_streams else ("version",)))
        alias = join.this.alias_or_name.lower()
        if isinstance(left, Stream) and isinstance(right, Stream):
            return self._within(left, right, join, how)
        on = self._met_by(join.args.get("on"), alias, text)
        if on is None and how == "inner":
            self._keyed.add(alias)
        version = join.this.args.get("version")
        if version is not None:
            self._refuse_other_time(version, first, text)
            return cast("Query", left.join_as_of(right, on=on, how=how, **self._waits))
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
        for name in self._waits.keys() & {"corrections", "history"}:
            _refuse(f"`{name}` is of a stream joined as of a table, and `{text}` is not")
        grace = self._waits.get("grace")
        self._are_pairs = True
        return left.join_within(right, within=meeting.within_ms, on=on, how=how, grace=grace)

    def _met_by(self, on: Any, alias: str, text: str) -> str | None:
        """Return the left column that meets the right one's key; None for the left key."""
        sides: list[Any] = [on.left, on.right] if isinstance(on, exp.EQ) else []
        columns = [side for side in sides if is_column(side)]
        keys = [each for each in columns if each.table.lower() == alias]
        others = [each for each in columns if each.table.lower() != alias]
        if len(keys) != 1 or len(others) != 1 or keys[0].name.lower() != "key":
            _refuse(f"`{text}` must meet by the key: write `ON left.column = {alias}.key`")
        other = others[0]
        if other.table:
            written = other.sql(_DIALECT)
            self._source_named(other.table, written).refuse_missing(other.name, written)
        if other.name.lower() != "key":
            return str(other.name)
        if other.table and other.table.lower() not in self._keyed:
            _refuse(
                f"`{text}` meets by `{other.sql(_DIALECT)}`, which is not kept behind its own join;"
                " write the column that met it"
            )
        return None

    def _refuse_other_time(self, version: exp.Expression, first: str, text: str) -> None:
        time = version.args.get("expression")
        if (
            not is_column(time)
            or time.name.lower() != "time"
            or time.table.lower() not in {"", first}
        ):
            _refuse(
                f"`{text}` looks up at another time than the record's own; write `{first}.time`"
            )

    def _grouped(self, table: Any) -> tuple[Any, Edits]:
        """Return the grouped table, and its aggregates' names for their calls in the query."""
        group, having = (self._select.args.get(name) for name in ("group", "having"))
        grouped_by = [] if group is None else group.expressions
        if group is None or not grouped_by:
            _refuse("aggregates and HAVING need a GROUP BY: a group's row is found by its key")
        if any(said for name, said in group.args.items() if name != "expressions"):
            _refuse(f"`{group.sql(_DIALECT).strip()}` makes groups of groups; name columns alone")
        by = [
            self._window(words, each) or self._text(words, each, {})
            for words, each in zip(
                self._clauses.parts(TokenType.GROUP_BY, grouped_by), grouped_by, strict=True
            )
        ]
        clauses = [*self._items(), *([having] if having is not None else [])]
        self._refuse_of_rows(clauses, {each.lower() for each in by if isinstance(each, str)})
        aggregates: dict[Aggregate, str] = {}
        edits: dict[int, tuple[int, str]] = {}
        for clause in clauses:
            for found in clause.find_all(exp.AggFunc):
                table, aggregate, end = self._aggregate(table, found)
                aggregates[aggregate] = aggregate.name
                is_item = isinstance(found.parent, exp.Select)
                name = _quoted(aggregate.name)
                edits[found.meta["start"]] = end, f"{name} AS {name}" if is_item else name
        query: Any = table.group_by(*by).agg(*aggregates)
        if having is not None:
            query = query.filter(self._condition(TokenType.HAVING, having.this, edits))
        return query, edits

    def _refuse_of_rows(self, clauses: list[Any], by: set[str]) -> None:
        """Refuse a row's own key or time beside a group, which has its own."""
        for column in (each for clause in clauses for each in clause.find_all(exp.Column)):
            field = column.name.lower()
            is_of_row = self._is_of_alias(column) and len(column.parts) == 2  # noqa: PLR2004 (a dot)
            is_folded = column.find_ancestor(exp.AggFunc) is not None
            if is_of_row and field in OWN and not is_folded and not by == {field} == {"key"}:
                _refuse(
                    f"`{column.sql(_DIALECT)}` is of one row, and a group has many; write `{field}`"
                    " for the group's own, or group by it under another name"
                )

    def _window(self, words: Words, found: Any) -> Window | None:
        """Return a window of the row's own time; refuse one of another time."""
        window = window_of(found)
        if window is None:
            return None
        time, size = window
        self._text(words, time, {})
        return size

    def _aggregate(self, table: Any, found: Any) -> tuple[Any, Aggregate, int]:
        """Return the table, with the column that is folded, the aggregate, and its call's end."""
        kind = _KINDS.get(type(found))
        of = found.this
        cannot = (of, found.parent)
        if (
            kind is None
            or of is None
            or found.expressions
            or of.find(exp.AggFunc)
            or any(isinstance(each, _CANNOT_TAKE_OUT) for each in cannot)
        ):
            written = found.sql(_DIALECT)
            _refuse(
                f"`{written}` cannot take a row out again; count, sum, min, max, avg and"
                " collect_list can"
            )
        words, end = self._clauses.call(found.meta["start"])
        if isinstance(of, exp.Star):
            if kind != "count":
                _refuse(
                    f"`{found.sql(_DIALECT)}` is of no column, as only `count` may be; name one"
                )
            return table, Aggregate(kind, None, "count"), end
        text = self._text(words, of, {})
        if isinstance(of, exp.Column) and len(of.parts) == 1 + self._is_of_alias(of):
            return table, Aggregate(kind, of.name, f"{kind}_{of.name}"), end
        if not isinstance(table, Table | GroupableStream):
            _refuse(
                f"`{found.sql(_DIALECT)}` computes behind a join; select it before, as a column"
            )
        name = f"_{len(table.steps)}"
        selected = table.select("*", f"{text} AS {name}")
        return selected, Aggregate(kind, name, f"{kind}{name}"), end

    def _condition(self, clause: TokenType, parsed: Any, edits: Edits) -> str:
        (words,) = self._clauses.parts(clause, [parsed])
        return self._text(words, parsed, edits)

    def _texts(self, words: Words, item: exp.Expression, edits: Edits) -> list[str]:
        """Return an item of the SELECT; `o.*` is what `*` has of `o`."""
        alias = alias_of_all(item)
        if alias not in self._aliases:
            return [self._text(words, item, edits)]
        columns = self._sources[self._aliases[alias]].columns
        if columns is None:
            _refuse(f"`{alias}.*` is columns that Spark alone knows; name them")
        left_out = OWN if len(self._aliases) > 1 else ()
        return [_quoted(name, is_alone=True) for name in columns if name.lower() not in left_out]

    def _text(self, words: Words, parsed: exp.Expression, edits: Edits) -> str:
        """Return words without the aliases before their columns, and with `AS` before a name."""
        if isinstance(parsed, exp.Alias):
            end = -2 if words[-2].token_type is TokenType.ALIAS else -1
            text = self._text(words[:end], parsed.this, edits)
            return f"{_quoted(text) if name_of(text) == text else text} AS {_quoted(parsed.alias)}"
        first = next(iter(self._aliases), "")
        bare: dict[int, tuple[int, str]] = {}
        for column in parsed.find_all(exp.Column):
            parts = column.parts
            if len(parts) == 1:
                continue
            name, field, written = parts[0].name, parts[1].name, column.sql(_DIALECT)
            if self._is_of_alias(column) and not is_column(column):
                _refuse(f"`{written}` is all columns, which stand alone in SELECT; name some")
            if not self._is_of_alias(column) and self._has_struct(name):
                continue
            self._source_named(name, written).refuse_missing(field, written)
            if self._are_pairs and field.lower() == "time":
                _refuse(
                    f"`{written}` is not kept behind the join: a row of two streams has the later"
                    " of their times, which is `time`; write that"
                )
            if name.lower() != first and field.lower() in OWN:
                _refuse(
                    f"`{written}` is not kept behind the join; what it met by, and the row's own"
                    f" `{field}`, are those of `{first}`"
                )
            bare[parts[0].meta["start"]] = parts[1].meta["start"] - 1, ""
        if isinstance(parsed, exp.Column) and len(parsed.parts) == 1 + self._is_of_alias(parsed):
            return _quoted(parsed.name, is_alone=True)
        return self._clauses.text(words, {**bare, **edits})

    def _is_of_alias(self, column: Any) -> bool:
        return len(column.parts) > 1 and column.parts[0].name.lower() in self._aliases

    def _source_named(self, alias: str, written: str) -> Query:
        name = self._aliases.get(alias.lower())
        if name is None:
            _refuse(f"`{written}` is of no table that the query names")
        return self._sources[name]

    def _has_struct(self, name: str) -> bool:
        """Return whether a name before a dot may be a column of its own."""
        of_each = [self._sources[each].columns for each in self._aliases.values()]
        return any(
            columns is None or name.lower() in {one.lower() for one in columns}
            for columns in of_each
        )


def _quoted(name: str, *, is_alone: bool = False) -> str:
    # Within an expression Spark takes letters of ASCII alone for a name.
    is_plain = name_of(name) == name and (is_alone or (name.isascii() and name.isidentifier()))
    return name if is_plain else quoted(name)


def _refuse(sentence: str) -> NoReturn:
    raise JobInvalid(sentence)
