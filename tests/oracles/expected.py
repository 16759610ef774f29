"""An oracle's results for a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.contracts.record import Headers, Record
    from headrace.contracts.window import WindowBounds


def of_each(wait_ms: int | Sequence[int], count: int) -> Sequence[int]:
    """Return a grace, interval or limit for each input, where a restart may have changed it."""
    return [wait_ms] * count if isinstance(wait_ms, int) else wait_ms


class Output(NamedTuple):
    """One record that leaves, and the index of the input that made it leave."""

    cause: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers
    old: bytes | None = None
    """The value that it replaces, behind a table or an aggregate; None elsewhere."""
    window: WindowBounds | None = None


class Update(NamedTuple):
    """One update on its way to `suppress`."""

    cause: int
    record: Record
    old: bytes | None
    window: WindowBounds | None


@dataclass(slots=True)
class Expected:
    """All that leaves, and what became of the rest."""

    outputs: list[Output] = field(default_factory=list)
    left: list[Record] = field(default_factory=list)
    """The records behind the outputs, with their origin; none where outputs are new records."""
    late: list[int] = field(default_factory=list)
    """Inputs that were too old to be taken in."""
    dead: list[int] = field(default_factory=list)
    """Inputs that nothing can be made of."""
    failure: int | None = None
    """The input at which a buffer that must shut down was full."""
    held: list[tuple[int, int]] = field(default_factory=list)
    """Entries and bytes held after each input."""
    refused: int = 0
    """Windows that a record came too late for, one count a window."""

    def leave(self, cause: int, record: Record, old: bytes | None = None) -> None:
        """Let a record go as itself."""
        self.left.append(record)
        self.outputs.append(
            Output(cause, record.key, record.value, record.timestamp_ms, record.headers, old)
        )
