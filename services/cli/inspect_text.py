"""What was found in a state, for people and for machines."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from contracts.record import NO_TIME_MS
from services.cli.state_size import format_bytes
from services.operators.reading import Entry, Reading

_NAME_STYLE = "bold"
_YEAR_10_000_MS = 253_402_300_800_000
_PLURALS = {"held": "held", "id": "ids", "window": "windows", "value": "values"}


class OperatorState(NamedTuple):
    """What one operator keeps in one partition."""

    name: str
    kind: str
    reading: Reading
    entries: list[Entry]
    """What it keeps of the key that was asked for."""


class State(NamedTuple):
    """The state of one partition of a hop."""

    hop: str
    partition: int
    position: int | None
    time_ms: int | None
    changelog_position: int
    purged: int
    operators: list[OperatorState]
    size_bytes: int | None = None
    """On disk, where it was read there."""
    changelog_first: int | None = None
    """Where its changelog begins, where it was read from that."""
    changelog_end: int | None = None

    @property
    def is_whole(self) -> bool:
        """Whether nobody else deleted from the changelog that it was read from."""
        return self.changelog_first is None or self.changelog_first <= self.purged


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
    console.print(Padding(_about(state), (0, 0, 0, 2)))
    if not state.is_whole:
        sentence = (
            f"its changelog was truncated: records before offset {state.changelog_first} are gone,"
            f" and are needed from {state.purged} on, so this is not all of it"
        )
        console.print(Padding(Text(sentence, style="red"), (0, 0, 0, 2)))
    console.print(Padding(_operators(state.operators), (0, 0, 1, 2)))
    for operator in state.operators:
        for entry in operator.entries:
            console.print(Padding(_entry(operator, entry), (0, 0, 0, 2)))
    if any(operator.entries for operator in state.operators):
        console.print()


def _about(state: State) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_row(
        "position", "nothing was committed yet" if state.position is None else str(state.position)
    )
    table.add_row("stream time", _time(state.time_ms))
    table.add_row("changelog", _changelog(state))
    if state.size_bytes is not None:
        table.add_row("on disk", format_bytes(state.size_bytes))
    return table


def _changelog(state: State) -> str:
    purged = f"purged before {state.purged}" if state.purged else "nothing purged"
    return f"up to offset {state.changelog_position}, {purged}"


def _operators(operators: list[OperatorState]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("operator", "kind", "keeps", "from", "to", "stream time", "rows"):
        table.add_column(name, justify="right" if name == "rows" else "left")
    for operator in operators:
        found = operator.reading
        keeps = "" if found.what is None else f"{found.entries} {_PLURALS[found.what]}"
        table.add_row(
            Text(operator.name),
            operator.kind,
            keeps,
            _time(found.first_ms),
            _time(found.last_ms),
            _time(found.stream_time_ms),
            str(found.rows),
        )
    return table


def _entry(operator: OperatorState, entry: Entry) -> Text:
    words = [f"{operator.name}: {entry.what}"]
    if entry.key is not None:
        words.append(f"key {_written(entry.key)}")
    for name, value in entry.fields.items():
        if name.endswith("_ms"):
            assert not isinstance(value, bytes)
            words.append(f"{name.removesuffix('_ms').replace('_', ' ')} {_time(value)}")
        else:
            words.append(f"{name} {_written(value)}")
    return Text(", ".join(words))


def _written(value: int | bytes | None) -> str:
    """A value as one would write it, `0x` before bytes that are no text."""
    if not isinstance(value, bytes):
        return "none" if value is None else str(value)
    text = value.decode("utf-8", "replace")
    return text if text.isprintable() and "\ufffd" not in text else f"0x{value.hex()}"


def _time(time_ms: int | None) -> str:
    if time_ms is None:
        return ""
    if not 0 <= time_ms < _YEAR_10_000_MS:
        return "none yet" if time_ms == NO_TIME_MS else f"{time_ms} ms"
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.isoformat(" ", "milliseconds").removesuffix("+00:00")
