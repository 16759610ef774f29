"""Check the types of a schema in Spark's DDL without Spark, which reads it only when it runs.

Only what Spark is sure to refuse is a problem here; Spark has the last word on everything else.
"""

from __future__ import annotations

import re
from difflib import get_close_matches

from headrace.contracts.problem_text import listed, show

_PLAIN = (
    *("BOOLEAN", "TINYINT", "BYTE", "SMALLINT", "SHORT", "INT", "INTEGER", "BIGINT", "LONG"),
    *("FLOAT", "REAL", "DOUBLE", "DECIMAL", "DEC", "NUMERIC", "STRING", "CHAR", "CHARACTER"),
    *("VARCHAR", "BINARY", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "INTERVAL"),
    *("VOID", "VARIANT"),
)
_NESTED = {"ARRAY": 1, "MAP": 2, "STRUCT": 0}
"""How many types stand between the brackets; in a struct they have names."""
_TYPES = (*_PLAIN, *_NESTED)
_COMMON = ("STRING", "BIGINT", "DOUBLE", "DECIMAL(18, 2)", "BOOLEAN", "TIMESTAMP", "ARRAY<...>")
_BEHIND_A_TYPE = {"NOT", "COMMENT", "COLLATE", "DEFAULT", "GENERATED", "TO"}
"""Words that go on behind a type; what follows them is Spark's to read."""
_TOKEN = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\w+|[^\w\s]")
_BARE = re.compile(r"\w+")


class _Wrong(Exception):
    """Says in a clause what is wrong."""


def problem_of(ddl: str) -> str | None:
    """Return what is wrong with the types of a schema, None if nothing is known to be."""
    reader = _Reader(_TOKEN.findall(ddl))
    try:
        reader.whole()
    except _Wrong as wrong:
        return str(wrong)
    return None


class _Reader:
    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._at = 0

    def whole(self) -> None:
        """Read a schema to its end."""
        self._columns(end="")
        if self._next():
            message = f"{show(self._next())} closes nothing; remove it"
            raise _Wrong(message)

    def _columns(self, end: str) -> None:
        """Read names and types up to the bracket that ends them."""
        while self._next() not in {"", end}:
            name = self._taken()
            if self._next() == ":":
                self._taken()
            self._type(name)
            self._rest(name)
            if self._next() != ",":
                return
            self._taken()
            if self._next() in {"", end}:
                message = f"no column stands behind the comma after {show(name)}; remove the comma"
                raise _Wrong(message)

    def _type(self, column: str) -> None:
        word = self._next()
        if not _BARE.fullmatch(word):
            message = f"{show(column)} has no type; write such as `{column} BIGINT`"
            raise _Wrong(message)
        if word.upper() not in _TYPES:
            raise _Wrong(_unknown(word))
        self._taken()
        if word.upper() in _NESTED and self._next() == "<":
            self._inner(word.upper(), column)
        elif self._next() == "(":
            self._skip_brackets()

    def _inner(self, word: str, column: str) -> None:
        self._taken()
        number = _NESTED[word]
        for place in range(number):
            if place and self._next() == ",":
                self._taken()
            self._type(column)
        if not number:
            self._columns(end=">")
        if self._next() != ">":
            message = f"the `{word}` of {show(column)} has no `>` behind it"
            raise _Wrong(message)
        self._taken()

    def _rest(self, column: str) -> None:
        """Skip what may stand behind a type."""
        word, before = self._next(), self._tokens[self._at - 1]
        may_follow = word.upper() in _BEHIND_A_TYPE or before.upper() == "INTERVAL"
        if word not in {"", ",", ">"} and not may_follow:
            message = (
                f"{show(word)} stands behind the type of {show(column)}; put a comma between"
                " columns"
            )
            raise _Wrong(message)
        while self._next() not in {"", ",", ">"}:
            if self._next() == "(":
                self._skip_brackets()
            else:
                self._taken()

    def _skip_brackets(self) -> None:
        depth = 0
        while self._next():
            depth += {"(": 1, ")": -1}.get(self._taken(), 0)
            if not depth:
                return

    def _next(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _taken(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1]


def _unknown(word: str) -> str:
    near = get_close_matches(word.upper(), _TYPES, n=1)
    if near:
        return f"{show(word)} is no type of a column; did you mean `{near[0]}`?"
    return f"{show(word)} is no type of a column; write such as {listed(_COMMON)}"
