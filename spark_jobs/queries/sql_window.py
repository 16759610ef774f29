"""Read from SQL the window by which a stream is grouped: `window(time, '1 hour')`.

sqlglot takes `window` at the beginning of a GROUP BY for the clause WINDOW.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from sqlglot import Dialect, Token, TokenType, exp

from headrace.contracts.errors import JobInvalid
from headrace.spark_jobs.queries.sql_within import interval_ms
from headrace.spark_jobs.queries.windows import Window


def statements_of(query: str, dialect: str) -> list[Any]:
    """Parse statements in which `window(` is a call, wherever it stands."""
    sql = Dialect.get_or_raise(dialect)
    words = sql.tokenize(query)
    for place, (word, behind) in enumerate(pairwise(words)):
        if word.token_type is TokenType.WINDOW and behind.token_type is TokenType.L_PAREN:
            where = word.line, word.col, word.start, word.end, word.comments
            words[place] = Token(TokenType.VAR, word.text, *where)
    return sql.parser().parse(words, query)


def window_of(found: Any) -> tuple[exp.Column, Window] | None:
    """Return the time and the window that an expression of a GROUP BY names, None if it is none.

    The caller checks whose time it is.
    """
    if not isinstance(found, exp.Anonymous) or found.name.lower() != "window":
        return None
    time, size = (*found.expressions, None, None)[:2]
    size_ms = None
    if len(found.expressions) == 2 and isinstance(time, exp.Column):  # noqa: PLR2004 (time, size)
        size_ms = interval_ms(size) if time.name.lower() == "time" else None
    if not size_ms or not isinstance(time, exp.Column):
        message = (
            f"`{found.sql('spark')}` is no window of a stream; write the row's own time and a size,"
            " such as `window(time, '1 hour')`"
        )
        raise JobInvalid(message)
    return time, Window(size_ms)
