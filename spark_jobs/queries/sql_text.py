"""The clauses of a SELECT in the user's own words.

sqlglot writes expressions anew, and not always as they were: it drops the format of `to_char`. So
Spark gets the words that the user wrote, without what they say of aliases and aggregates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard

from sqlglot import Token, TokenType, exp, tokenize

from headrace.contracts.errors import JobInvalid

_CLAUSES = {
    TokenType.SELECT,
    TokenType.FROM,
    TokenType.WHERE,
    TokenType.GROUP_BY,
    TokenType.HAVING,
    TokenType.SEMICOLON,
}
_OPENS = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE}
_CLOSES = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE}
Words = Sequence[Token]
Edits = Mapping[int, tuple[int, str]]
"""By the place where some words begin: the place where they end, and the text instead."""


class Clauses:
    """The words of one SELECT that sqlglot has parsed, by clause."""

    def __init__(self, query: str, dialect: str) -> None:
        """Take a query of one SELECT without subqueries."""
        self._query = query
        # `1L` is three words that stand in one place.
        self._words = [*_at_places_of_their_own(tokenize(query, read=dialect))]
        self._depths = [*_depths(self._words)]

    def parts(self, clause: TokenType, parsed: Sequence[Any]) -> list[Words]:
        """Return the words of a clause, cut at its commas: one part for each that was parsed."""
        if not parsed:
            return []
        numbers = self._within(clause)
        commas = [
            number
            for number in numbers
            if self._words[number].token_type is TokenType.COMMA and not self._depths[number]
        ]
        starts, ends = [numbers.start, *(each + 1 for each in commas)], [*commas, numbers.stop]
        cut = [self._words[start:end] for start, end in zip(starts, ends, strict=True)]
        found: list[Words] = [words for words in cut if words]
        if found and found[0][0].token_type is TokenType.ALL:
            found[0] = found[0][1:]
        if len(found) != len(parsed):
            message = f"`{self.text(self._words[numbers.start : numbers.stop], {})}` cannot be read"
            raise JobInvalid(message)
        return found

    def text(self, words: Words, edits: Edits) -> str:
        """Return words as they were written, but for the edits, with a blank for a longer gap."""
        parts: list[str] = []
        end = -1
        for word in words:
            if word.start <= end:
                continue
            if parts and word.start > end + 1:
                parts.append(" ")
            end, text = edits.get(word.start, (word.end, self._query[word.start : word.end + 1]))
            parts.append(text)
        return "".join(parts)

    def call(self, start: int) -> tuple[Words, int]:
        """Return the words between the brackets of a call that begins there, and its end."""
        (name,) = (number for number, word in enumerate(self._words) if word.start == start)
        outside = self._depths[name]
        behind = range(name + 2, len(self._words))
        close = next(number for number in behind if self._depths[number] == outside)
        return self._words[name + 2 : close], self._words[close].end

    def _within(self, clause: TokenType) -> range:
        starts = [number for number in range(len(self._words)) if self._begins_clause(number)]
        for start, end in zip(starts, [*starts[1:], len(self._words)], strict=True):
            if self._words[start].token_type is clause:
                return range(start + 1, end)
        return range(0)

    def _begins_clause(self, number: int) -> bool:
        kind = self._words[number].token_type
        if self._depths[number] or kind not in _CLAUSES:
            return False
        # `a IS DISTINCT FROM b` is an expression.
        before = self._words[number - 1].token_type if number else None
        return kind is not TokenType.FROM or before is not TokenType.DISTINCT


def is_column(found: Any) -> TypeGuard[exp.Column]:
    """Return whether this is one column, and not all of them."""
    return isinstance(found, exp.Column) and not isinstance(found.this, exp.Star)


def alias_of_all(found: Any) -> str | None:
    """Return the alias of an `o.*` that leaves out and renames no column, in lower case."""
    is_all = isinstance(found, exp.Column) and found.this == exp.Star()
    return found.table.lower() if is_all and len(found.parts) == 2 else None  # noqa: PLR2004 (a dot)


def _at_places_of_their_own(words: Words) -> Iterator[Token]:
    end = -1
    for word in words:
        if word.start > end:
            yield word
            end = word.end


def _depths(words: Words) -> Iterator[int]:
    """Yield how many brackets stand open around each word; a bracket stands outside of itself."""
    depth = 0
    for word in words:
        depth -= word.token_type in _CLOSES
        yield depth
        depth += word.token_type in _OPENS
