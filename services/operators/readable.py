"""Read a value off every record of a batch, and set aside the records that cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress
from traceback import format_exception
from typing import Any, TypeVar

from headrace.contracts.decision import Reason
from headrace.contracts.errors import RecordFailed, RecordTooLarge, RecordUndecodable
from headrace.contracts.raised import clause_of
from headrace.contracts.record import Record
from headrace.services.operators.operator import Aside, Batch, Counts, Step

What = TypeVar("What")
_DETAIL_CHARACTERS_MAX = 1_000
_STACKTRACE_CHARACTERS_MAX = 4_000
"""The end of a stack trace says where the exception was raised, and which."""


def read_batch(
    batch: Batch, read: Callable[[Record], What], name: str, step: Step, counts: Counts
) -> tuple[list[Record], list[int], list[What]]:
    """Return readable records, their causes and values; the others leave the step as dead."""
    counts.taken += len(batch.records)
    try:
        return batch.records, batch.causes, list(map(read, batch.records))
    except RecordUndecodable:
        return _read_one_by_one(batch, read, name, step, counts)


def _read_one_by_one(
    batch: Batch, read: Callable[[Record], What], name: str, step: Step, counts: Counts
) -> tuple[list[Record], list[int], list[What]]:
    records: list[Record] = []
    causes: list[int] = []
    found: list[What] = []
    for record, cause in zip(batch.records, batch.causes, strict=True):
        try:
            found.append(read(record))
        except RecordUndecodable as problem:
            set_aside_dead(step, counts, dead_aside(cause, name, record, problem))
        else:
            records.append(record)
            causes.append(cause)
    return records, causes, found


def only(is_wanted: Sequence[bool], columns: Iterable[Sequence[Any]]) -> Iterator[list[Any]]:
    """Return the wanted places of each column."""
    return (list(compress(column, is_wanted)) for column in columns)


def set_aside_dead(step: Step, counts: Counts, aside: Aside) -> None:
    """Send a record to the dead-letter topic, and count it."""
    counts.dead += 1
    counts.failed += aside.reason is Reason.FAILED
    step.dead.append(aside)


def dead_aside(cause: int, operator: str, record: Record, problem: Exception) -> Aside:
    """Make a dead record of one that a step could not read, or failed on, with the exception."""
    if isinstance(problem, RecordTooLarge):
        return Aside(cause, operator, record, Reason.TOO_LARGE, str(problem))
    if isinstance(problem, RecordUndecodable) and not isinstance(problem, RecordFailed):
        return Aside(cause, operator, record, Reason.UNDECODABLE, _as_text(str(problem)))
    if isinstance(problem, RecordFailed):
        detail, raised = str(problem), problem.__cause__ or problem
    else:
        detail, raised = clause_of(problem), problem
    return Aside(
        cause,
        operator,
        record,
        Reason.FAILED,
        _as_text(detail[:_DETAIL_CHARACTERS_MAX]),
        _as_text(f"{type(raised).__module__}.{type(raised).__qualname__}"),
        _as_text("".join(format_exception(raised, chain=False))[-_STACKTRACE_CHARACTERS_MAX:]),
    )


def _as_text(said: str) -> str:
    """Replace lone surrogates, which a user's error may have and no header can."""
    return said.encode(errors="backslashreplace").decode()
