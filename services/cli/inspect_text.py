"""Texts that show a state to people and to machines."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from headrace.contracts.record import NO_TIME_MS
from headrace.services.cli.state_size import format_bytes
from headrace.services.operators.reading import Entry, Reading

_NAME_STYLE = "bold"
_INDENTED = (0, 0, 0, 2)
_YEAR_10_000_MS = 253_402_300_800_000
_PLURALS = {"held": "held", "id": "ids", "window": "windows", "value": "values"}


class OperatorState(NamedTuple):
    """The state of one operator in one partition."""

    name: str
    kind: str
    reading: Reading
    entries: list[Entry]
    """The entries of the key that was asked for."""


class State(NamedTuple):
    """The state of one partition of a hop."""

    hop: str
    partition: int
    position: int | None
    time_ms: int | None
    changelog_position: int
    """The first record of its changelog that is not part of it."""
    purged: int
    operators: list[OperatorState]
    size_bytes: int | None = None
    """On disk, where it was read there."""
    changelog_first: int | None = None
    """Where its changelog begins, where it was read from that."""
    changelog_end: int | None = None
    restored_at: int | None = None
    """Where it will be whole, while it is being restored."""

    @property
    def is_whole(self) -> bool:
        """Whether it is restored, and nobody else deleted from the changelog it was read from."""
        is_truncated = self.changelog_first is not None and self.changelog_first > self.purged
        return self.restored_at is None and not is_truncated


def as_json(state: State) -> dict[str, Any]:
    """A state for machines."""
    whole = state._asdict() | {"is_whole": state.is_whole}
    whole["stream_time_ms"] = whole.pop("time_ms")
    whole["operators"] = [_operator_as_json(operator) for operator in state.operators]
    return whole


def _operator_as_json(operator: OperatorState) -> dict[str, Any]:
    found = operator.reading
    return {
        "operator": operator.name,
        "kind": operator.kind,
        "stream_time_ms": found.stream_time_ms,
        "rows": found.rows,
        **{
            plural: found.entries if what == found.what else None
            for what, plural in _PLURALS.items()
        },
        "first_ms": found.first_ms,
        "last_ms": found.last_ms,
        "entries": [
            {"what": entry.what, "key": _plain(entry.key)}
            | {name: _plain(value) for name, value in entry.fields.items()}
            for entry in operator.entries
        ],
    }


def _plain(value: int | bytes | None) -> int | str | dict[str, str] | None:
    """Bytes as text, and those that are none in hexadecimal."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"hex": value.hex()}


def print_state(state: State, console: Console) -> None:
    """Print a state for people."""
    console.print(Text(f"{state.hop}/{state.partition}", style=_NAME_STYLE))
    lines = Table.grid(padding=(0, 2))
    for name, meaning in _about(state):
        lines.add_row(name, Text(meaning))
    for operator in state.operators:
        for name, meaning in _kept(operator):
            lines.add_row(Text(name, style=_NAME_STYLE), Text(meaning))
    console.print(Padding(lines, _INDENTED, expand=False))
    for operator in state.operators:
        for entry in operator.entries:
            console.print(Text(f"  {operator.name} {_entry(entry)}"), soft_wrap=True)
    console.print()


def _about(state: State) -> Iterator[tuple[str, str]]:
    yield "position", "nothing is committed yet" if state.position is None else str(state.position)
    yield "stream time", _time(state.time_ms)
    purged = f"purged before {state.purged}" if state.purged else "nothing purged"
    yield "changelog", f"up to offset {state.changelog_position}, {purged}"
    if state.size_bytes is not None:
        yield "on disk", format_bytes(state.size_bytes)
    if state.restored_at is not None:
        yield "restoring", f"up to offset {state.restored_at}; these rows are no state before"
    elif not state.is_whole:
        missing = (
            f"the changelog begins at offset {state.changelog_first}, and is needed from"
            f" {state.purged} on: this is not all that the state was"
        )
        yield "truncated", missing


def _kept(operator: OperatorState) -> Iterator[tuple[str, str]]:
    found = operator.reading
    if found.what is None:
        yield operator.name, f"{operator.kind}, keeps nothing"
        return
    yield (
        operator.name,
        f"{operator.kind}, {found.entries} {_PLURALS[found.what]} in {found.rows} rows",
    )
    if found.first_ms is not None:
        yield "", f"from {_time(found.first_ms)} to {_time(found.last_ms)}"
    if found.stream_time_ms is not None:
        yield "", f"stream time {_time(found.stream_time_ms)}"


def _entry(entry: Entry) -> str:
    words = [entry.what if entry.key is None else f"{entry.what} of key {_written(entry.key)}"]
    for name, value in entry.fields.items():
        if isinstance(value, int) and name.endswith("_ms"):
            words.append(f"{name.removesuffix('_ms').replace('_', ' ')} {_time(value)}")
        else:
            words.append(f"{name} {_written(value)}")
    return ", ".join(words)


def _written(value: int | bytes | None) -> str:
    """A value as one would write it, `0x` before bytes that are no text."""
    if not isinstance(value, bytes):
        return "none" if value is None else str(value)
    text = value.decode("utf-8", "replace")
    return text if text.isprintable() and "\ufffd" not in text else f"0x{value.hex()}"


def _time(time_ms: int | None) -> str:
    if time_ms is None or time_ms == NO_TIME_MS:
        return "none yet"
    if not 0 <= time_ms < _YEAR_10_000_MS:
        return f"{time_ms} ms"
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.isoformat(" ", "milliseconds").removesuffix("+00:00")
