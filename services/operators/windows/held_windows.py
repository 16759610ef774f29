"""Tumbling and hopping windows whose results only the suppress right behind stores.

A suppress that waits for windows to close holds the last result of each key and window for as long
as the window takes records: its value, and its latest timestamp. The window needs nothing else. So
it looks there and puts no row of its own, which halves the rows and the changelog.

A state that began with rows of the windows' own goes on with them. A window whose result has left
is closed, whatever its grace is by now.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headrace.contracts.errors import RecordUndecodable
from headrace.contracts.policies import (
    AggregatePolicy,
    AnyOperator,
    Hopping,
    SuppressPolicy,
    Tumbling,
)
from headrace.contracts.record import Record
from headrace.contracts.window import plain_key, window_of
from headrace.services.operators.functions import Function
from headrace.services.operators.operator import Batch, View
from headrace.services.operators.rows import make_record
from headrace.services.operators.suppress import Suppress
from headrace.services.operators.updates import Update, read_updates
from headrace.services.operators.windows.frame import Arrivals, Frame, Grown, Outside, Taken
from headrace.services.operators.windows.time_windows import (
    TimeWindows,
    has_rows,
    place_of,
    result_row,
)

_NEVER_OPEN_MS = -1


def may_share(policy: AnyOperator, behind: AnyOperator | None) -> bool:
    """Return whether the operator right behind may be the only one to store an operator's results.

    Results that can be looked up for longer than a window takes records have rows of their own.
    """
    return (
        isinstance(policy, AggregatePolicy)
        and isinstance(policy.window, Tumbling | Hopping)
        and policy.retention_ms is None
        and isinstance(behind, SuppressPolicy)
        and behind.until == "window-closes"
        and behind.window == policy.window
    )


def shares(policy: AnyOperator, view: View, behind: AnyOperator | None) -> bool:
    """Return whether it is the only one, over this state."""
    return may_share(policy, behind) and not has_rows(view)


def give_back(view: View, suppress_view: View) -> None:
    """Put rows of the windows' own, since the suppress with their results is about to move away."""
    if has_rows(view):
        return
    rows: dict[bytes, bytes | None] = {}
    for update in read_updates(suppress_view):
        key, value, timestamp_ms, headers, *_ = update.record
        window = window_of(headers)
        assert window is not None, "updates that name no window are not held"
        place = place_of(view, window.start_ms, plain_key(key or b"", window))
        rows[place] = result_row(value, timestamp_ms)
    view.put_many(rows)


class HeldWindows(TimeWindows):
    """Windows that may overlap, a record at a time."""

    def __init__(
        self, policy: Tumbling | Hopping, view: View, function: Function, suppress: Suppress
    ) -> None:
        """Look results up in this suppress."""
        super().__init__(policy, None, view, function)
        self._suppress = suppress
        self._held: Mapping[bytes, Update] = {}
        """Updates held before this batch, by key."""
        self._results: dict[bytes, Record] = {}
        """Results of this batch that are not held yet, by key."""

    def _closed_ms(self, time_ms: int) -> int:
        released_ms = self._suppress.released_through_ms
        return max(super()._closed_ms(time_ms), released_ms - self._size_ms)

    def recall(self, records: list[Record], time_ms: int) -> None:
        """Load all held results of every record's windows."""
        del time_ms
        self._held = self._suppress.reach(self._keys(records))
        self._results = {}

    def _keys(self, records: list[Record]) -> Iterator[bytes]:
        for record in records:
            if record[0] is not None:
                for start_ms in self._starts(record[2]):
                    yield record[0] + self._frames.at(start_ms).key_suffix

    def _grow(self, frame: Frame, record: Record, content: Any) -> Grown:
        key, timestamp_ms = (record[0] or b"") + frame.key_suffix, record[2]
        latest = self._results.get(key)
        if latest is None and key in self._held:
            latest = self._held[key].record
        if latest is None or latest[1] is None:
            old = self._function.initial()
        else:
            old, timestamp_ms = latest[1], max(timestamp_ms, latest[2])
        return Grown(old, self._function.add(old, content), timestamp_ms)

    def _put(self, frame: Frame, cause: Record, result: Record) -> None:
        del frame, cause
        self._results[result[0] or b""] = result

    def save(self, time_ms: int) -> None:
        """Do nothing: the suppress behind puts the results."""


class HeldTumblingWindows(HeldWindows):
    """Windows that do not overlap, so a record is in one alone; worth a shorter way."""

    def take(self, arrivals: Arrivals, time_ms: int, into: Batch) -> Taken:
        """Update the window that each record falls into, if it is open."""
        taken = Taken(time_ms)
        held, latest_of, size_ms = self._held.get, self._results, self._size_ms
        released_ms = self._suppress.released_through_ms
        _, initial, add, _ = self._function
        results: list[Record] = []
        causes: list[int] = []
        olds: list[bytes | None] = []
        start_ms = end_ms = open_until_ms = 0
        key: Any  # never null here
        _, suffix, window_headers = self._frames.at(0)
        for index, (record, cause, content) in enumerate(zip(*arrivals, strict=True)):
            key, _, timestamp_ms, headers, topic, partition, offset = record
            reached_ms = time_ms
            if timestamp_ms > reached_ms:
                reached_ms = timestamp_ms
            if not start_ms <= timestamp_ms < end_ms:
                start_ms = timestamp_ms - timestamp_ms % size_ms
                end_ms, open_until_ms = start_ms + size_ms, start_ms + self._open_ms
                if end_ms <= released_ms:
                    open_until_ms = _NEVER_OPEN_MS
                _, suffix, window_headers = self._frames.at(start_ms)
            if reached_ms >= open_until_ms:
                time_ms = reached_ms
                taken.outside.append(Outside(index, 1, time_ms))
                continue
            key += suffix
            latest = latest_of.get(key)
            if latest is None and (update := held(key)) is not None:
                latest = update.record
            try:
                if latest is None or (old := latest[1]) is None:
                    old = initial()
                elif latest[2] > timestamp_ms:
                    timestamp_ms = latest[2]
                new = add(old, content)
            except RecordUndecodable as problem:
                taken.dead.append((index, problem))
                continue
            time_ms = reached_ms
            headers = headers + window_headers if headers else window_headers
            result = make_record((key, new, timestamp_ms, headers, topic, partition, offset))
            latest_of[key] = result
            results.append(result)
            causes.append(cause)
            olds.append(old)
        into.extend(results, causes, olds)
        taken.time_ms, taken.refused = time_ms, len(taken.outside)
        return taken
