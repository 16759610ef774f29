"""Read and write tables of records: a line a record, and behind an arrow the results.

`contracts/semantics/testing.md` describes the grammar.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Literal, NamedTuple

from headrace.contracts.errors import DurationInvalid, ScenarioInvalid
from headrace.contracts.problem_text import listed, show
from headrace.contracts.record import Headers, Record
from headrace.contracts.time import format_duration_ms, parse_duration_ms
from headrace.contracts.window import UNLIMITED_END_MS, plain_key, window_of

TOPIC = "input"
FAILED = "(failed)"
_ARROW = "->"
_LEAVES = re.compile(
    r"(late:|dead:)?([^\s\[]*?)(?:\[([^\s,]*),([^\s,]*)([\])]))?@(-?\w+)=(\S*)|\(failed\)"
)
_LACKS_TIME = re.compile(r"[^\s=]+=\S+")
"""Where a result stands this is one without its time; in a reason an equals sign stands alone."""
_EVENT = re.compile(r"\((\w+)(?: (\w+))?\)")
_DIGITS_MAX = 19
"""No time and no offset has more."""
OFFSET_MAX = (1 << 63) - 2
"""Kafka has a place for the one behind it, too, and for no later one."""
_COLUMNS = ("key", "time", "value", "offset", "partition", "header.NAME")
Happening = Literal[
    "commit", "restart", "crash", "rebalance", "idle", "wait", "clock", "duplicate", "progress"
]
_HAPPENINGS: dict[str, Happening] = {
    "commit": "commit",
    "restart": "restart",
    "crash": "crash",
    "rebalance": "rebalance",
    "idle": "idle",
    "wait": "wait",
    "clock": "clock",
    "duplicate": "duplicate",
}


_OF_QUERIES: dict[str, Happening] = {
    **{name: what for name, what in _HAPPENINGS.items() if what not in {"rebalance", "clock"}},
    "progress": "progress",
}
Topics = str | tuple[str, ...]
"""The source of a pipeline, or the topics of a query, of which a table may have a column."""


class Event(NamedTuple):
    """Something that happens between two records."""

    what: Happening
    amount: int = 0
    """Milliseconds to `wait`, of the `clock` or of `progress`; how many records `duplicate`."""


class Leaving(NamedTuple):
    """A result in the form of a table."""

    side: str
    """Empty, or the prefix of the late or dead-letter topic, or the way the run ends."""
    key: bytes | None = None
    window: tuple[int, int, bool] | None = None
    """Start, end, and whether the end is part of it."""
    timestamp_ms: int = 0
    value: bytes | None = None

    def __str__(self) -> str:
        """Write it as a table does."""
        if self.side == FAILED:
            return FAILED
        window = ""
        if self.window is not None:
            start_ms, end_ms, is_closed = self.window
            end = "ever" if end_ms == UNLIMITED_END_MS else _time(end_ms)
            window = f"[{_time(start_ms)},{end}{']' if is_closed else ')'}"
        at = f"@{_time(self.timestamp_ms)}={_text(self.value)}"
        return f"{self.side}{_text(self.key)}{window}{at}"


class Row(NamedTuple):
    """One line: a record or an event, and its results."""

    what: Record | Event
    leaves: tuple[Leaving, ...] | None = None
    """None if the table has no arrow."""
    line: int = 0
    """The line in the page, for messages."""
    text: str = ""


def read_table(
    text: str, *, topic: Topics = TOPIC, file: str = "table", line: int = 1
) -> list[Row]:
    """Read the rows of a table; ScenarioInvalid names the line that cannot be read, and why."""
    return list(_Reader(topic, file).rows(text.splitlines(), line))


class _Reader:
    """Reads one table; offsets count up in each partition."""

    def __init__(self, topic: Topics, file: str) -> None:
        is_query = isinstance(topic, tuple)
        self._topic = only_topic(topic)
        self._columns_known = (*_COLUMNS, "topic") if is_query else _COLUMNS
        self._happenings = _OF_QUERIES if is_query else _HAPPENINGS
        self._file = file
        self._line = 0
        self._ends: dict[tuple[str, int], int] = {}

    def rows(self, lines: Sequence[str], first_line: int) -> Iterator[Row]:
        columns: list[str] | None = None
        has_arrow = False
        for self._line, written in enumerate(lines, start=first_line):
            line = written.strip()
            if not line or not line.strip("|-: "):
                continue
            if not is_text(line):
                sentence = f"{show(line)} holds a character that stands in no text"
                raise self._invalid(sentence)
            before, arrow, after = _parted(line)
            if columns is None:
                columns, has_arrow = self._columns(before), bool(arrow)
                continue
            if line.startswith("#"):
                continue
            if has_arrow and not arrow and not _EVENT.fullmatch(line.strip("| ")):
                sentence = f"there is no `->` in {show(line)}; put it behind the record"
                raise self._invalid(sentence)
            leaves = self._leaving(after) if has_arrow else None
            yield Row(self._what(before, columns), leaves, self._line, _cells_text(before))

    def _leaving(self, text: str) -> tuple[Leaving, ...]:
        """Return the results; refuse one in the reason, where nobody would compare it."""
        words = text.replace("|", " ").split()
        matches = [_LEAVES.fullmatch(word) for word in words]
        results = [*takewhile(lambda match: match is not None, matches)]
        reason = words[len(results) :]
        for place, word in enumerate(reason):
            if "@" in word or (place == 0 and _LACKS_TIME.fullmatch(word)):
                sentence = (
                    f"{show(word)} behind `->` is no record that leaves; write KEY@TIME=VALUE in"
                    " front of the reason, and no `@` in the reason"
                )
                raise self._invalid(sentence)
        try:
            return tuple(_leaving(match) for match in results if match is not None)
        except DurationInvalid as error:
            raise self._invalid(str(error)) from error

    def _columns(self, head: str) -> list[str]:
        if not head.startswith(("#", "|")):
            sentence = f"{show(head)} is not a head; begin with `# key time value`"
            raise self._invalid(sentence)
        columns = _cells(head.lstrip("#"))
        for column in columns:
            if column not in self._columns_known and not column.startswith("header."):
                known = listed(self._columns_known)
                sentence = f"{show(column)} is not a column; known are {known}"
                raise self._invalid(sentence)
            if columns.count(column) > 1:
                sentence = f"the column {show(column)} stands here twice; remove one"
                raise self._invalid(sentence)
        if self._topic is None and "topic" not in columns:
            sentence = "several topics are read here, so the head needs a column `topic`"
            raise self._invalid(sentence)
        return columns

    def _what(self, text: str, columns: list[str]) -> Record | Event:
        event = _EVENT.fullmatch(text.strip("| "))
        if event is not None:
            return self._event(event[1], event[2])
        cells = _cells(text)
        if len(cells) != len(columns):
            sentence = (
                f"{show(text.strip())} has {len(cells)} cells, and the head {len(columns)}:"
                f" {' '.join(columns)}"
            )
            if not text.startswith("|") and len(cells) > len(columns):
                sentence += "; if a cell has spaces, put all between bars, such as `| a | 1s |`"
            raise self._invalid(sentence)
        return self._record(dict(zip(columns, cells, strict=True)))

    def _event(self, name: str, amount: str | None) -> Event:
        what = self._happenings.get(name)
        if what is None:
            raise self._invalid(does_not_happen(name, list(self._happenings)))
        if what in {"wait", "clock", "progress"} and amount is None:
            sentence = f"`({name})` has no time; write one, such as `({name} 30s)`"
            raise self._invalid(sentence)
        if what in {"wait", "clock", "progress"}:
            return Event(what, self._time_ms(str(amount)))
        if what == "duplicate":
            return Event(what, self._number(amount or "1"))
        if amount is not None:
            sentence = f"`({name})` takes no amount; remove {show(amount)}"
            raise self._invalid(sentence)
        return Event(what)

    def _record(self, cells: dict[str, str]) -> Record:
        headers: Headers = tuple(
            (column.removeprefix("header."), _bytes(cell))
            for column, cell in cells.items()
            if column.startswith("header.")
        )
        partition = self._number(cells.get("partition", "0"))
        topic = cells.get("topic", self._topic or "")
        end = self._ends.get((topic, partition), 0)
        self._ends[topic, partition] = end + 1
        written = cells.get("offset", str(end))
        return Record(
            _bytes(cells.get("key", "null")),
            _bytes(cells.get("value", "null")),
            self._time_ms(cells.get("time", "0")),
            headers,
            topic,
            partition,
            None if written == "none" else self._number(written),
        )

    def _number(self, cell: str) -> int:
        if not cell.isdecimal() or len(cell) > _DIGITS_MAX:
            sentence = f"{show(cell)} is not a whole number"
            raise self._invalid(sentence)
        if int(cell) > OFFSET_MAX:
            sentence = f"{show(cell)} is more than any offset or partition"
            raise self._invalid(sentence)
        return int(cell)

    def _time_ms(self, cell: str) -> int:
        try:
            return time_ms(cell)
        except DurationInvalid as error:
            raise self._invalid(str(error)) from error

    def _invalid(self, sentence: str) -> ScenarioInvalid:
        return ScenarioInvalid(f"{self._file}:{self._line}: {sentence}")


def does_not_happen(name: str, known: Sequence[str]) -> str:
    """Return the sentence about an event that is not among those that are known."""
    return f"{show(f'({name})')} does not happen; known are {listed(known)}"


def _parted(line: str) -> tuple[str, str, str]:
    """Split a line into the text before the arrow, the arrow, and the text behind it."""
    before, arrow, after = f"{line} ".partition(f"{_ARROW} ")
    return before.strip(), arrow, after.strip()


def _cells(text: str) -> list[str]:
    """Split cells between bars, or words."""
    text = text.strip()
    if text.startswith("|"):
        return [cell.strip() for cell in text.strip("|").split("|")]
    return text.split()


def _cells_text(text: str) -> str:
    return " ".join(_cells(text))


def _leaving(match: re.Match[str]) -> Leaving:
    if match.group() == FAILED:
        return Leaving(FAILED)
    side, key, start, end, closing, time, value = match.groups()
    window = None
    if closing is not None:
        end_ms = UNLIMITED_END_MS if end == "ever" else time_ms(end)
        window = (time_ms(start), end_ms, closing == "]")
    return Leaving(side or "", _bytes(key), window, time_ms(time), _bytes(value))


def only_topic(topic: Topics) -> str | None:
    """Return the topic of all records, None if each must say its own."""
    if isinstance(topic, str):
        return topic
    return topic[0] if len(topic) == 1 else None


def leaving(side: str, record: Record) -> Leaving:
    """Return a record in the form of a table, with the window taken out of its key."""
    key, value, timestamp_ms, headers, *_ = record
    bounds = window_of(headers)
    if bounds is None or key is None:
        return Leaving(side, key, None, timestamp_ms, _readable(value))
    window = (bounds.start_ms, bounds.end_ms, bounds.kind in {"session", "sliding"})
    return Leaving(side, plain_key(key, bounds), window, timestamp_ms, _readable(value))


def shown(records: Iterable[Record]) -> list[str]:
    """Write records as a table does: `KEY@TIME=VALUE`, or `KEY[START,END)@TIME=VALUE`."""
    return [str(leaving("", record)) for record in records]


def time_ms(cell: str) -> int:
    """Parse a time since zero; a cell without a unit counts milliseconds."""
    sign = -1 if cell.startswith("-") else 1
    digits = cell.removeprefix("-")
    is_number = digits.isdecimal() and len(digits) <= _DIGITS_MAX
    return sign * parse_duration_ms(int(digits) if is_number else digits)


def is_text(written: str) -> bool:
    """Return whether a text has bytes; half of a character from UTF-16 has none."""
    try:
        written.encode()
    except UnicodeEncodeError:
        return False
    return True


def _bytes(cell: str) -> bytes | None:
    if cell == "null":
        return None
    return b"" if cell == '""' else cell.encode()


def _readable(value: bytes | None) -> bytes | None:
    """Return a count in decimal; no text of a table begins with a zero byte."""
    if value is not None and len(value) == 8 and value[0] == 0:  # noqa: PLR2004 (bytes of a count)
        return b"%d" % int.from_bytes(value, "big")
    return value


def _text(content: bytes | None) -> str:
    if content is None:
        return "null"
    return content.decode(errors="backslashreplace") or '""'


def _time(time_in_ms: int) -> str:
    return f"{'-' if time_in_ms < 0 else ''}{format_duration_ms(abs(time_in_ms))}"
