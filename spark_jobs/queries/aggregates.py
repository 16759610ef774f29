"""Fold the rows of a group into aggregates, exactly, and take a row out again when it changes.

A row comes as a list of texts, those of its group first, then one for each aggregate; null is null.
A group is kept as one JSON object:

    g   the texts of the group          n   how many rows it has; without one it is deleted
    a   each aggregate's text, or null  s   what each aggregate needs to take a row out again
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from functools import partial
from math import isnan
from typing import Any, Literal, NoReturn

from headrace.contracts.errors import JobInvalid
from headrace.spark_jobs.queries.names import name_of
from headrace.spark_jobs.versioned.totals import Aggregation, Form

Kind = Literal["count", "sum", "min", "max", "avg", "collect"]
Order = Literal["number", "double", "time", "text"]
Path = tuple[str | int, ...]
Texts = list[str | None]
State = dict[str, Any]
_KEEPS_VALUES = ("min", "max", "collect")
"""Aggregates whose state is each different value of a group, and how many rows have it."""
_TOTALS = ("sum", "avg")
"""Aggregates whose state is a total beside a number."""
_ZERO = Decimal(0)
_EXACT = Context(prec=1_000)
"""Sums are kept in as many digits as they have; a column may have fewer."""


@dataclass(frozen=True)
class Aggregate:
    """One number or text of each group."""

    kind: Kind
    column: str | None
    name: str

    def alias(self, name: str) -> Aggregate:
        """Return the same aggregate by another name."""
        return replace(self, name=name)

    def __str__(self) -> str:
        """Return its name in messages."""
        return f"{self.kind}({self.column or '*'}) AS {self.name}"


@dataclass(frozen=True)
class Folded:
    """An aggregate, and the order of its column."""

    kind: Kind
    order: Order
    """The order that decides about least and greatest."""
    counts_rows: bool
    """Whether all rows count, or only those with a value in the column."""


def count(column: str | None = None) -> Aggregate:
    """Count the rows; of a column, the rows in which it is not null."""
    return _aggregate("count", column, "count")


def sum_of(column: str) -> Aggregate:
    """Sum a column of whole numbers or decimals, null if the sum does not fit its type."""
    return _aggregate("sum", column)


def least(column: str) -> Aggregate:
    """Find the least value of a column; the state keeps each different value of a group."""
    return _aggregate("min", column)


def greatest(column: str) -> Aggregate:
    """Find the greatest value of a column; the state keeps each different value of a group."""
    return _aggregate("max", column)


def average(column: str) -> Aggregate:
    """Average a column of whole numbers or decimals."""
    return _aggregate("avg", column)


def collect(column: str) -> Aggregate:
    """Collect the values of a column in their order, without nulls; the state keeps all of them."""
    return _aggregate("collect", column)


def reduce(*_columns: object, **_options: object) -> NoReturn:
    """Refuse: rows must be taken out of a group again, which takes a second function."""
    message = (
        "`reduce` folds rows by a function of yours, and a table's row that changes must be taken"
        " out again, for which that function knows no way; fold a stream, whose records stay, in"
        " its pipeline by `aggregate: {function: module:name}`, or a table in a job of your own by"
        " `AggregateStep` and the two functions of `headrace.spark.reduce`, or write count, sum,"
        " min, max, avg or collect"
    )
    raise JobInvalid(message)


def _aggregate(kind: Kind, column: str | None, name: str | None = None) -> Aggregate:
    if column is not None and name_of(str(column)) != column:
        message = f"`{kind}` takes the name of a column, not {column!r}; `select` computes one"
        raise JobInvalid(message)
    return Aggregate(kind, column, name if column is None and name else f"{kind}_{column}")


@dataclass(frozen=True)
class Regrouped:
    """The group of a row and its texts for that group; a row with null in its group is in none.

    A path leads through a value's JSON; an empty one is the key. An aggregate of all rows has None.
    """

    by: tuple[Path, ...]
    taken: tuple[Path | None, ...]
    kinds: int | None = None
    """A number for the kinds of their columns; texts of other kinds cannot be folded together."""

    @property
    def options(self) -> Mapping[str, int]:
        """Note in a checkpoint the kinds, and that a group has another key than its rows.

        Rows are spread by the key that they have.
        """
        return {"regroups": 1} | ({} if self.kinds is None else {"kinds": self.kinds})

    def __call__(self, key: bytes, value: bytes) -> tuple[bytes, bytes] | None:
        """Return the group as a key, and the texts of group and aggregates as a value."""
        fields = _DECODER.decode(value.decode())
        group = [text_at(path, key, fields) for path in self.by]
        if None in group:
            return None
        brought = [None if path is None else text_at(path, key, fields) for path in self.taken]
        name = group[0] or "" if len(group) == 1 else _write(group)
        return name.encode(), _write([*group, *brought]).encode()


@dataclass(frozen=True)
class KeyAt:
    """The text of a column as a key; null if the column is null."""

    path: Path

    def __call__(self, key: bytes, value: bytes) -> bytes | None:
        """Return the key that a row points at."""
        text = text_at(self.path, key, _DECODER.decode(value.decode()))
        return None if text is None else text.encode()


def text_at(path: Path, key: bytes, fields: Any) -> str | None:
    """Return the JSON text at a path."""
    if not path:
        return key.decode()
    for step in path:
        if fields is None:
            return None
        fields = fields[step]
    if fields is None or isinstance(fields, str):
        return fields
    return _write(fields)


def joined(left: bytes | None, right: bytes | None) -> bytes:
    """Join two rows side by side, as they are."""
    return b'{"l":' + (left or b"null") + b',"r":' + (right or b"null") + b"}"


def folding(groups: int, aggregates: Sequence[Folded]) -> Aggregation:
    """Make the aggregation of rows into groups; the first texts of a row are its group."""
    folded = tuple(aggregates)
    # A group without rows has no aggregate, as a deleted row has no value.
    change: Callable[..., Any] = partial(_changed, groups, folded)
    form = Form(partial(_read_group, folded), partial(_write_group, folded))
    return Aggregation(partial(_nothing, folded), partial(change, 1), partial(change, -1), form)


@dataclass(frozen=True)
class Folds:
    """Fold the rows of a group in one window, which never change and are never taken out."""

    groups: int
    """How many texts of a row are its group."""
    aggregates: tuple[Folded, ...]

    def add(self, total: bytes | None, rows: Sequence[bytes]) -> bytes:
        """Add rows to a total, None for the first ones."""
        texts = [json.loads(row) for row in rows]
        group = _nothing(self.aggregates) if total is None else _read_group(self.aggregates, total)
        group.texts = texts[0][: self.groups]
        group.rows += len(rows)
        for place, (one, state) in enumerate(zip(self.aggregates, group.states, strict=True)):
            for row in texts:
                text = row[self.groups + place]
                if one.counts_rows or text is not None:
                    _change(one, state, text or "", 1)
            if one.kind in {"min", "max"} and state:
                # No other value is needed again.
                group.states[place] = {str(_text_of(one, state)): 1}
        kept = _states_as_texts(self.aggregates, group)
        return _write({"g": group.texts, "n": group.rows, "s": kept}).encode()

    def result(self, total: bytes, start: str, end: str) -> bytes:
        """Return the texts of the group, of the window's bounds, and of the aggregates."""
        group = _read_group(self.aggregates, total)
        said = _texts_of(self.aggregates, group)
        return _write({"g": [*group.texts, start, end], "a": said}).encode()


@dataclass(slots=True)
class _Group:
    """A group while rows are folded into it."""

    texts: Texts
    rows: int
    states: list[State]
    """For each aggregate the state by which a row is taken out again; a total is a number here."""


def _nothing(aggregates: Sequence[Folded]) -> _Group:
    return _Group([], 0, [{} for _ in aggregates])


def _read_group(aggregates: Sequence[Folded], stored: bytes) -> _Group:
    kept = json.loads(stored)
    for one, state in zip(aggregates, kept["s"], strict=True):
        if one.kind in _TOTALS and "t" in state:
            state["t"] = Decimal(state["t"])
    return _Group(kept["g"], kept["n"], kept["s"])


def _write_group(aggregates: Sequence[Folded], group: _Group) -> bytes:
    said, kept = _texts_of(aggregates, group), _states_as_texts(aggregates, group)
    return _write({"g": group.texts, "n": group.rows, "a": said, "s": kept}).encode()


def _states_as_texts(aggregates: Sequence[Folded], group: _Group) -> list[State]:
    return [
        state | {"t": format(state["t"], "f")} if one.kind in _TOTALS and state else state
        for one, state in zip(aggregates, group.states, strict=True)
    ]


def _texts_of(aggregates: Sequence[Folded], group: _Group) -> Texts:
    return [_text_of(*pair) for pair in zip(aggregates, group.states, strict=True)]


def _changed(
    groups: int, aggregates: Sequence[Folded], sign: int, _name: bytes, row: bytes, group: _Group
) -> _Group | None:
    texts: Texts = json.loads(row)
    group.rows += sign
    if not group.rows:
        return None
    group.texts = texts[:groups]
    for one, state, text in zip(aggregates, group.states, texts[groups:], strict=True):
        if one.counts_rows or text is not None:
            _change(one, state, text or "", sign)
    return group


def _change(one: Folded, state: State, text: str, sign: int) -> None:
    if one.kind in _KEEPS_VALUES:
        state[text] = state.get(text, 0) + sign
        if not state[text]:
            del state[text]
        return
    state["n"] = state.get("n", 0) + sign
    if one.kind != "count":
        added = _EXACT.multiply(Decimal(text), sign)
        state["t"] = _EXACT.add(state.get("t", _ZERO), added)


def _text_of(one: Folded, state: State) -> str | None:
    """Return the text of an aggregate, for Spark: of an average its sum and its number."""
    if one.kind == "count":
        return str(state.get("n", 0))
    if one.kind == "collect":
        values = sorted(state, key=_ORDERS[one.order])
        return _ENCODER.encode([text for text in values for _ in range(state[text])])
    if one.kind in _KEEPS_VALUES:
        chosen = min if one.kind == "min" else max
        return chosen(state, key=_ORDERS[one.order]) if state else None
    if not state.get("n"):
        return None
    total = format(state["t"], "f")
    return f"{total}/{state['n']}" if one.kind == "avg" else total


def _double(text: str) -> tuple[bool, float]:
    """Order doubles as Spark does, with NaN behind all numbers."""
    number = float(text)
    return isnan(number), 0.0 if isnan(number) else number


def _time(text: str) -> tuple[int, str]:
    """Order dates and times, of which years beyond four digits have a sign before them."""
    year, _, rest = text[1:].partition("-")
    return int(text[0] + year), rest


_ORDERS: dict[Order, Callable[[str], Any]] = {
    "number": Decimal,
    "double": _double,
    "time": _time,
    "text": str.encode,
}


class _Number(str):
    """A number, exactly as its text was."""

    __slots__ = ()


def _write(found: Any) -> str:
    if isinstance(found, _Number):
        return str(found)
    return _ENCODER.encode(found)


_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
_DECODER = json.JSONDecoder(parse_float=_Number, parse_int=_Number)
