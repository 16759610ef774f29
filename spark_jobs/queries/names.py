"""What columns are called, as far as it can be told without Spark."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from pydantic import BaseModel

OWN = ("key", "time", "headers")
"""What every row has beside the columns of its value: the record's own key, time and headers."""
Schema = str | type[BaseModel]
_FIRST = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\s:`]+))")
_ALIAS = re.compile(r".*\bAS\s+`?(\w+)`?\s*", re.IGNORECASE | re.DOTALL)
_PLAIN = re.compile(r"\w+")


def names_of(schema: Schema) -> tuple[str, ...]:
    """The fields of a schema, in their order."""
    if isinstance(schema, str):
        return tuple(_names_in(schema))
    return tuple(field.alias or name for name, field in schema.model_fields.items())


def column_of(field: str) -> str:
    """What the column of a value's field is called; the plain names are the record's own."""
    return f"value_{field}" if field.lower() in OWN else field


def name_of(expression: str) -> str | None:
    """What the column of an expression is called, None where only Spark can tell."""
    alias = _ALIAS.fullmatch(expression)
    if alias is not None:
        return alias[1]
    text = expression.strip()
    return text if _PLAIN.fullmatch(text) else None


def twice(names: Iterable[str]) -> str | None:
    """A name that stands there twice for Spark, to which case says nothing; None if none does."""
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
