"""Reads a scenario: operators in YAML, then a line a record with what leaves because of it.

The grammar stands in `contracts/semantics/chain.md`, for it is read by people first.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import yaml

from contracts.pipeline import PipelineSpec
from contracts.policies import AnyOperator
from contracts.record import Headers, Record
from contracts.time import parse_duration_ms
from contracts.topology import with_windows
from contracts.window import UNLIMITED_END_MS, plain_key, window_of

TOPIC = "input"
RESTART = "(restart)"
FAILED = "(failed)"
_BLOCK = re.compile(r"^```scenario\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LEAVES = re.compile(
    r"(late:|dead:)?([^\s@\[]*)(?:\[([^\s,]*),([^\s,]*)([\])]))?@(-?\w+)=(\S*)|\(failed\)"
)
At = tuple[int, Headers]
"""A record's timestamp and headers."""


class Leaving(NamedTuple):
    """What leaves, as a table says it."""

    side: str
    """Nothing, or the topic by the side, or how the run ends."""
    key: bytes | None = None
    window: tuple[int, int, bool] | None = None
    """Start, end, and whether the end is part of it."""
    timestamp_ms: int = 0
    value: bytes | None = None


class Row(NamedTuple):
    """One line: a record and what leaves because of it, or a restart."""

    record: Record | None
    """None for a restart."""
    leaves: list[Leaving]
    line: int
    """In the page, so that a failure can be found."""


class Scenario(NamedTuple):
    """One table."""

    operators: tuple[AnyOperator, ...]
    rows: list[Row]

    @property
    def restarts(self) -> bool:
        """Whether operators are thrown away on the way."""
        return any(row.record is None for row in self.rows)


def read_scenarios(page: str) -> list[tuple[int, Scenario]]:
    """All scenarios of a page with the lines they begin at."""
    found = []
    for block in _BLOCK.finditer(page):
        first_line = page.count("\n", 0, block.start(1)) + 1
        found.append((first_line, read_scenario(block[1], first_line)))
    return found


def read_scenario(text: str, first_line: int = 1) -> Scenario:
    """One scenario."""
    lines = text.splitlines()
    head = next(index for index, line in enumerate(lines) if line.startswith("#"))
    columns = lines[head].lstrip("#").partition("->")[0].split()
    rows: list[Row] = []
    for index, line in enumerate(lines[head + 1 :], start=head + 1):
        if line.strip():
            offset = sum(row.record is not None for row in rows)
            rows.append(_read_row(line, columns, offset, first_line + index))
    return Scenario(_read_operators("\n".join(lines[:head])), rows)


def _read_operators(text: str) -> tuple[AnyOperator, ...]:
    written = yaml.safe_load(text)
    pipeline = {
        "pipeline": "scenario",
        "source": {"topic": TOPIC},
        "operators": written if isinstance(written, list) else [written],
        "sink": {"topic": "cleaned"},
    }
    return with_windows(PipelineSpec.model_validate(pipeline).operators)


def _read_row(line: str, columns: list[str], offset: int, number: int) -> Row:
    if line.strip() == RESTART:
        return Row(None, [], number)
    before, arrow, after = line.partition("->")
    cells = before.split()
    if not arrow or len(cells) != len(columns):
        message = f"line {number}: `{line}` does not have the columns {' '.join(columns)}"
        raise ValueError(message)
    return Row(_read_record(dict(zip(columns, cells, strict=True)), offset), _leaves(after), number)


def _leaves(text: str) -> list[Leaving]:
    """The words that say what leaves; the first other word begins the reason."""
    leaves = []
    for word in text.split():
        if not _LEAVES.fullmatch(word):
            break
        leaves.append(_leaving(word))
    return leaves


def _read_record(cells: dict[str, str], offset: int) -> Record:
    headers: Headers = tuple(
        (column.removeprefix("header."), _bytes(cell))
        for column, cell in cells.items()
        if column.startswith("header.")
    )
    written = cells.get("offset", str(offset))
    return Record(
        _bytes(cells["key"]),
        _bytes(cells["value"]),
        _time_ms(cells["time"]),
        headers,
        TOPIC,
        0,
        None if written == "none" else int(written),
    )


def _bytes(cell: str) -> bytes | None:
    if cell == "null":
        return None
    return b"" if cell == '""' else cell.encode()


def _time_ms(cell: str) -> int:
    sign = -1 if cell.startswith("-") else 1
    return sign * parse_duration_ms(cell.removeprefix("-"))


def _leaving(word: str) -> Leaving:
    match = _LEAVES.fullmatch(word)
    if match is None:
        message = f"`{word}` does not say what leaves"
        raise ValueError(message)
    if word == FAILED:
        return Leaving(FAILED)
    side, key, start, end, closing, time, value = match.groups()
    window = None
    if closing is not None:
        end_ms = UNLIMITED_END_MS if end == "ever" else _time_ms(end)
        window = (_time_ms(start), end_ms, closing == "]")
    return Leaving(side or "", _bytes(key), window, _time_ms(time), _bytes(value))


def leaving(side: str, key: bytes | None, value: bytes | None, at: At) -> Leaving:
    """A record as a table would say it, with its window taken out of its key."""
    timestamp_ms, headers = at
    bounds = window_of(headers)
    if bounds is None or key is None:
        return Leaving(side, key, None, timestamp_ms, _readable(value))
    window = (bounds.start_ms, bounds.end_ms, bounds.kind in {"session", "sliding"})
    return Leaving(side, plain_key(key, bounds), window, timestamp_ms, _readable(value))


def _readable(value: bytes | None) -> bytes | None:
    """A count in decimal; no text of a table begins with a zero byte."""
    if value is not None and len(value) == 8 and value[0] == 0:
        return b"%d" % int.from_bytes(value, "big")
    return value
