"""KIP-328's buffer by brute force: a list of entries, sorted and weighed whole at every update.

A limit or grace may change between two updates: what was due once has left, and an update whose
place is there leaves at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from headrace.contracts.policies import Session, Sliding, Unlimited, Window
from headrace.contracts.record import NO_TIME_MS, Record
from headrace.contracts.window import WINDOW_HEADER
from tests.oracles.expected import Expected, Update, of_each

if TYPE_CHECKING:
    from collections.abc import Sequence


class Bounds(NamedTuple):
    """How much may be held; a full buffer emits early, or fails."""

    records: int | None = None
    bytes: int | None = None
    emit_early: bool = False


UNBOUNDED = Bounds()


@dataclass(slots=True)
class _Entry:
    key: bytes
    due_base_ms: int
    prior: bytes | None
    old: bytes | None
    record: Record

    def weight_bytes(self) -> int:
        record = self.record
        old = b"" if self.old is None or self.old == self.prior else self.old
        values = len(self.prior or b"") + len(old) + len(record.value or b"")
        headers = sum(
            len(name) + len(value or b"") for name, value in record.headers if name != WINDOW_HEADER
        )
        return 8 + len(self.key) + values + 8 + 8 + len(record.topic) + 4 + headers


class _Rules(NamedTuple):
    final: bool
    limits_ms: Sequence[int]
    """Of each update."""
    strictly: bool
    """A window whose end is part of it can still change when its limit is just reached."""

    def due_base_ms(self, update: Update) -> int | None:
        if not self.final:
            return update.record.timestamp_ms
        return None if update.window is None else update.window.end_ms

    def due_through_ms(self, time_ms: int, limit_ms: int) -> int:
        return time_ms - limit_ms - self.strictly


def until_time_limit(
    updates: Sequence[Update], limit_ms: int | Sequence[int], bounds: Bounds = UNBOUNDED
) -> Expected:
    """The last update of each key, a while after the first one."""
    limits_ms = of_each(limit_ms, len(updates))
    return _suppress(updates, _Rules(final=False, limits_ms=limits_ms, strictly=False), bounds)


def until_window_closes(
    updates: Sequence[Update],
    window: Window,
    bounds: Bounds = UNBOUNDED,
    graces_ms: Sequence[int] | None = None,
) -> Expected:
    """The last update of each window, when it can no longer change; each may have its grace."""
    grace_ms = 0 if isinstance(window, Unlimited) else window.grace_ms
    gap_ms = window.gap_ms if isinstance(window, Session) else 0
    graces_ms = of_each(grace_ms, len(updates)) if graces_ms is None else graces_ms
    limits_ms = [each_ms + gap_ms for each_ms in graces_ms]
    strictly = isinstance(window, Session | Sliding)
    return _suppress(updates, _Rules(final=True, limits_ms=limits_ms, strictly=strictly), bounds)


def _suppress(updates: Sequence[Update], rules: _Rules, bounds: Bounds) -> Expected:
    expected = Expected()
    entries: list[_Entry] = []
    time_ms = NO_TIME_MS
    through_ms: int | None = None
    for update, limit_ms in zip(updates, rules.limits_ms, strict=True):
        due_base_ms = rules.due_base_ms(update)
        if update.record.key is not None and due_base_ms is None:
            expected.dead.append(update.cause)
        elif update.record.key is not None and due_base_ms is not None:
            time_ms = max(time_ms, update.record.timestamp_ms)
            _put(entries, update, due_base_ms)
            entries.sort(key=lambda entry: (entry.due_base_ms, entry.key))
            due_ms = rules.due_through_ms(time_ms, limit_ms)
            through_ms = due_ms if through_ms is None else max(through_ms, due_ms)
            while entries and entries[0].due_base_ms <= through_ms:
                _leave(expected, update.cause, entries.pop(0), rules)
            while _is_over(entries, bounds) and bounds.emit_early:
                _leave(expected, update.cause, entries.pop(0), rules)
        expected.held.append((len(entries), sum(entry.weight_bytes() for entry in entries)))
        if _is_over(entries, bounds):
            expected.failure = update.cause
            break
    return expected


def _put(entries: list[_Entry], update: Update, due_base_ms: int) -> None:
    key = update.record.key or b""
    for entry in entries:
        if entry.key == key:
            entry.record, entry.old = update.record, update.old
            return
    entries.append(_Entry(key, due_base_ms, update.old, update.old, update.record))


def _leave(expected: Expected, cause: int, entry: _Entry, rules: _Rules) -> None:
    if rules.final and entry.record.value is None:
        return
    # A final result replaces nothing: what follows sees events.
    expected.leave(cause, entry.record, None if rules.final else entry.prior)


def _is_over(entries: list[_Entry], bounds: Bounds) -> bool:
    over_records = bounds.records is not None and len(entries) > bounds.records
    weight = sum(entry.weight_bytes() for entry in entries)
    return over_records or (bounds.bytes is not None and weight > bounds.bytes)
