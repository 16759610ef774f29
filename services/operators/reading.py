"""Read an operator's rows for people, as the operator wrote them, and change none.

A row stays until it is swept, even when its time is over. A row whose time is over is counted, but
not shown. The policy must be the one with which the rows were written: the state's stamp has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any, Literal, NamedTuple, Protocol

from headrace.contracts.policies import (
    AggregatePolicy,
    AnyOperator,
    DeduplicatePolicy,
    DistinctPolicy,
    FilterPolicy,
    MergePolicy,
    ReorderPolicy,
    SamplePolicy,
    Session,
    Sliding,
    SuppressPolicy,
    TablePolicy,
    Unlimited,
    Window,
    retention_needed_ms,
)
from headrace.contracts.record import NO_TIME_MS, Record
from headrace.contracts.topics import keeps_state
from headrace.contracts.window import UNLIMITED_END_MS, plain_key, window_of
from headrace.services.operators.merge import key_in, times_in
from headrace.services.operators.rows import decode_record, unpack_time
from headrace.services.operators.updates import decode_update
from headrace.services.operators.windows.sessions import decode_sessions
from headrace.services.operators.windows.sliding_windows import decode_windows

What = Literal["held", "id", "window", "value"]
"""A record that waits; an id that is known; a window; a row of a table."""
_HEADER_KEY, _SPACE = b"\x00", b"\x01"
_TIMED = 9
"""The position in a row's key behind its space and its time."""
_LENGTH_BYTES = 4
_held_header = Struct(">qq")
_signed = Struct(">q")


Fields = dict[str, int | bytes | None]


class Entry(NamedTuple):
    """One thing that an operator keeps."""

    what: What
    key: bytes | None
    fields: Fields
    """Its properties, by name."""


class Reading(NamedTuple):
    """A summary of all rows of one operator."""

    what: What | None
    """The kind of entries; None where the operator keeps nothing."""
    entries: int
    """How many entries there are."""
    first_ms: int | None
    """The earliest of their times."""
    last_ms: int | None
    rows: int
    """The number of rows, including those that wait to be swept."""
    stream_time_ms: int | None


class View(Protocol):
    """Rows that can be read."""

    prefix: bytes

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """Return the row of each key, None where there is none."""

    def range(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over rows with start <= key < end, in order."""


Found = tuple[int | None, Any]
"""One thing in a row that is not over: its time, and the data that is needed to show it."""


class _Reader(NamedTuple):
    """How the rows of one operator are read."""

    what: What
    find: Callable[[bytes, bytes], list[Found]]
    """Returns the things in a row, given its key without prefix, and the row itself."""
    show: Callable[[bytes, Any], Entry]


def read_rows(policy: AnyOperator, view: View) -> Reading:
    """Count the entries of an operator."""
    if not keeps_state(policy):
        return Reading(None, 0, None, None, 0, None)
    time_ms, reader = _reader_of(policy, view)
    rows = entries = 0
    first_ms: int | None = None
    last_ms: int | None = None
    for key, row in _rows(view, b"", b"\xff"):
        rows += 1
        if key[:1] != _SPACE:
            continue
        for at_ms, _ in reader.find(key, row):
            entries += 1
            if at_ms is not None:
                first_ms = at_ms if first_ms is None else min(first_ms, at_ms)
                last_ms = at_ms if last_ms is None else max(last_ms, at_ms)
    return Reading(reader.what, entries, first_ms, last_ms, rows, time_ms)


def read_key(policy: AnyOperator, view: View, wanted: bytes) -> Iterator[Entry]:
    """Yield all entries of a record's key, or of an id."""
    if not keeps_state(policy):
        return
    _, reader = _reader_of(policy, view)
    for key, row in _rows(view, _SPACE, b"\x02"):
        # In every layout the key of a row contains the record's key, or the id.
        if wanted in key:
            for _, found in reader.find(key, row):
                entry = reader.show(key, found)
                if wanted in {entry.key, entry.fields.get("id")}:
                    yield entry


def _rows(view: View, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
    length = len(view.prefix)
    for key, row in view.range(view.prefix + start, view.prefix + end):
        yield key[length:], row


def _reader_of(policy: AnyOperator, view: View) -> tuple[int | None, _Reader]:
    """Return an operator's stream time, and a reader of its rows."""
    header = view.get_many([view.prefix + _HEADER_KEY])[0]
    match policy:
        case ReorderPolicy() | MergePolicy():
            time_ms, through_ms = (NO_TIME_MS, NO_TIME_MS) if header is None else times_in(header)
            return time_ms, _reorder(through_ms)
        case SuppressPolicy():
            time_ms, through_ms = _held_times(header)
            return time_ms, _suppress(through_ms)
        case DeduplicatePolicy():
            time_ms = _time(header)
            return time_ms, _deduplicate(policy, time_ms)
        case DistinctPolicy():
            time_ms = _time(header)
            return time_ms, _windows(policy.window, time_ms, 0, _no_result)
        case AggregatePolicy():
            time_ms = _time(header)
            show = _count if policy.function == "count" else _result
            return time_ms, _windows(policy.window, time_ms, policy.retention_ms or 0, show)
        case TablePolicy() | FilterPolicy() | SamplePolicy():
            return None, _Reader("value", _found_in_table, _show_value)


def _time(header: bytes | None) -> int:
    return NO_TIME_MS if header is None else unpack_time(header)


def _held_times(header: bytes | None) -> tuple[int, int]:
    """Return stream time, and the time through which everything was released."""
    return (NO_TIME_MS, NO_TIME_MS) if header is None else _held_header.unpack_from(header)


def _reorder(through_ms: int) -> _Reader:
    def find(key: bytes, row: bytes) -> list[Found]:
        at_ms = unpack_time(key, 1)
        return [(at_ms, row)] if at_ms > through_ms else []

    def show(key: bytes, row: bytes) -> Entry:
        return _held(decode_record(key_in(key[_TIMED:]), row))

    return _Reader("held", find, show)


def _suppress(through_ms: int) -> _Reader:
    def find(key: bytes, row: bytes) -> list[Found]:
        at_ms = unpack_time(key, 1)
        return [(at_ms, row)] if at_ms > through_ms else []

    def show(key: bytes, row: bytes) -> Entry:
        update = decode_update(1, key, row)
        return _held(update.record, waits_from_ms=update.due_ms)

    return _Reader("held", find, show)


def _held(record: Record, **more: int) -> Entry:
    fields: Fields = {"timestamp_ms": record.timestamp_ms, **more}
    fields |= {"offset": record.offset, "value": record.value}
    key, window = record.key, window_of(record.headers)
    if window is not None and key is not None:
        key = plain_key(key, window)
        fields |= {"start_ms": window.start_ms, "end_ms": window.end_ms}
    return Entry("held", key, fields)


def _deduplicate(policy: DeduplicatePolicy, time_ms: int) -> _Reader:
    def find(_key: bytes, row: bytes) -> list[Found]:
        at_ms = int(_signed.unpack_from(row)[0])
        return [(at_ms, row)] if at_ms >= time_ms - policy.interval_ms else []

    def show(key: bytes, row: bytes) -> Entry:
        has_offset = len(row) > _signed.size
        fields: Fields = {
            "timestamp_ms": _signed.unpack_from(row)[0],
            "offset": _signed.unpack_from(row, _signed.size)[0] if has_offset else None,
        }
        identity = key[_TIMED:]
        if policy.by == "id":
            return Entry("id", None, {"id": identity, **fields})
        if policy.by == "key":
            return Entry("id", identity, fields)
        end = _LENGTH_BYTES + int.from_bytes(identity[:_LENGTH_BYTES], "big")
        return Entry("id", identity[_LENGTH_BYTES:end], {"id": identity[end:], **fields})

    return _Reader("id", find, show)


Show = Callable[[bytes | None], Fields]


def _windows(window: Window | None, time_ms: int, retention_ms: int, result: Show) -> _Reader:
    """Return a reader of windows that can still change, or are kept to be looked up."""
    if window is None or isinstance(window, Unlimited):
        return _one_window(window, result)
    keep_ms = max(retention_ms, retention_needed_ms(window))
    if isinstance(window, Session):
        return _sessions(time_ms - keep_ms, result)
    if isinstance(window, Sliding):
        return _sliding(window, time_ms - keep_ms, result)
    size_ms = window.size_ms

    def find(key: bytes, row: bytes) -> list[Found]:
        at_ms = unpack_time(key, 1)
        return [(at_ms, row)] if at_ms > time_ms - keep_ms else []

    def show(key: bytes, row: bytes) -> Entry:
        start_ms = unpack_time(key, 1)
        bounds: Fields = {"start_ms": start_ms, "end_ms": start_ms + size_ms}
        return Entry("window", key[_TIMED:], bounds | result(row[_signed.size :]))

    return _Reader("window", find, show)


def _sessions(from_ms: int, result: Show) -> _Reader:
    def find(_key: bytes, row: bytes) -> list[Found]:
        sessions = decode_sessions(row)
        return [(session.start_ms, session) for session in sessions if session.end_ms >= from_ms]

    def show(key: bytes, session: Any) -> Entry:
        bounds: Fields = {"start_ms": session.start_ms, "end_ms": session.end_ms}
        return Entry("window", key[_TIMED:], bounds | result(session.aggregate))

    return _Reader("window", find, show)


def _sliding(window: Sliding, from_ms: int, result: Show) -> _Reader:
    def find(_key: bytes, row: bytes) -> list[Found]:
        windows = decode_windows(row)
        return [(start_ms, (start_ms, one)) for start_ms, one in windows if start_ms >= from_ms]

    def show(key: bytes, found: Any) -> Entry:
        start_ms, one = found
        bounds: Fields = {"start_ms": start_ms, "end_ms": start_ms + window.difference_ms}
        return Entry("window", key[_TIMED:], bounds | result(one.aggregate))

    return _Reader("window", find, show)


def _one_window(window: Unlimited | None, result: Show) -> _Reader:
    bounds: Fields = {}
    if window is not None:
        bounds = {"start_ms": window.start_ms, "end_ms": UNLIMITED_END_MS}

    def show(key: bytes, row: bytes) -> Entry:
        return Entry("window", key[_TIMED:], bounds | result(row[_signed.size :]))

    return _Reader("window", _found_in_table, show)


def _found_in_table(_key: bytes, row: bytes) -> list[Found]:
    return [(None, row)]


def _show_value(key: bytes, row: bytes) -> Entry:
    return Entry("value", key[1:], {"value": row})


def _no_result(_aggregate: bytes | None) -> Fields:
    return {}


def _count(aggregate: bytes | None) -> Fields:
    return {"count": int.from_bytes(aggregate or b"", "big", signed=True)}


def _result(aggregate: bytes | None) -> Fields:
    return {"value": aggregate}
