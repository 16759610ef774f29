"""Find the columns that an expression names, without Spark."""

from __future__ import annotations

from typing import Any

from sqlglot import exp, parse
from sqlglot.errors import SqlglotError

_WORDS = {
    *("user", "current_user", "session_user", "current_catalog", "current_schema"),
    *("current_date", "current_timestamp", "localtimestamp", "grouping__id"),
    *("year", "quarter", "month", "week", "day", "dayofyear", "hour", "minute", "second"),
    *("millisecond", "microsecond"),
}
"""Words of Spark's own that stand where columns do."""


def selected(expression: str) -> list[Any]:
    """Parse an expression, as statements of which the first one selects it.

    By itself, one that begins with `comment` or `show` would be a command.
    """
    return parse(f"SELECT {expression}", read="spark")


def columns_in(expression: str) -> list[str]:
    """Return the columns that an expression names, in its order; none if only Spark reads it.

    A field of a struct is the column of the struct. The parameters of a lambda are no columns.
    """
    try:
        found = selected(expression)
    except (SqlglotError, ValueError):
        return []
    if len(found) != 1 or not isinstance(found[0], exp.Select):
        return []
    columns = [each for each in found[0].dfs() if isinstance(each, exp.Column)]
    names = [each.parts[0].name for each in columns if not isinstance(each.this, exp.Star)]
    return [name for name in dict.fromkeys(names) if name.lower() not in _WORDS]
