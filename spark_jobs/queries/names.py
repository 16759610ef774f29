"""Find the names of columns, as far as possible without Spark."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from pydantic import BaseModel

OWN = ("key", "time", "headers")
"""The columns of every row beside those of its value: the record's own key, time and headers."""
OURS = ("_headrace", "_hr_")
"""How the names of columns begin that stand beside the user's while rows are computed."""
Schema = str | type[BaseModel]
_FIRST = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\s:`]+))")
_ALIAS = re.compile(r".*\bAS\s+`?(\w+)`?\s*", re.IGNORECASE | re.DOTALL)
_PLAIN = re.compile(r"\w+")
_LITERAL = re.compile(r"true|false|null|\d+(?:e\d+)?(?:[lsydf]|bd)?", re.IGNORECASE)
"""Words that Spark reads as a value, and not as the name of a column."""


def names_of(schema: Schema) -> tuple[str, ...]:
    """Return the fields of a schema, in their order."""
    if isinstance(schema, str):
        return tuple(_names_in(schema))
    return tuple(field.alias or name for name, field in schema.model_fields.items())


def column_of(field: str) -> str:
    """Return the column of a value's field; the names of the record's own get a prefix."""
    return f"value_{field}" if field.lower() in OWN else field


def name_of(expression: str) -> str | None:
    """Return the column name of an expression, None where only Spark knows it."""
    alias = _ALIAS.fullmatch(expression)
    if alias is not None:
        return alias[1]
    text = expression.strip()
    is_name = _PLAIN.fullmatch(text) and not _LITERAL.fullmatch(text)
    return text if is_name else None


def twice(names: Iterable[str]) -> str | None:
    """Return a name that stands there twice, ignoring case as Spark does; None if none does."""
    counted = Counter(name.lower() for name in names)
    return next((name for name, times in counted.items() if times > 1), None)


def _names_in(ddl: str) -> Iterator[str]:
    for part in _parts(ddl):
        found = _FIRST.match(part)
        if found is not None:
            yield found[1].replace("``", "`") if found[1] else found[2]


def _parts(ddl: str) -> Iterator[str]:
    """Cut at commas, but not inside of brackets, quotes or backticks."""
    depth, start, quote = 0, 0, ""
    for place, sign in enumerate(ddl):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "`'\"":
            quote = sign
        elif sign in "<(":
            depth += 1
        elif sign in ">)":
            depth -= 1
        elif sign == "," and not depth:
            yield ddl[start:place]
            start = place + 1
    yield ddl[start:]
