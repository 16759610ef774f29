"""Sliding windows by brute force, with every rule of C3 spelled out.

A window exists once a record made it: the one that ends at the record (its left window), the one
that begins just after it (its right window, once anything stands in it), and, for records closer
to zero than the difference, the one window that begins at zero.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.contracts.record import NO_TIME_MS, Record
from headrace.contracts.window import WindowBounds
from tests.oracles.expected import Expected, Output

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.contracts.policies import Sliding

    Fold = Callable[[Sequence[Record]], bytes | None]


@dataclass(slots=True)
class _Window:
    key: bytes
    start_ms: int
    records: list[Record] = field(default_factory=list)

    @property
    def latest_ms(self) -> int:
        return max(record.timestamp_ms for record in self.records)


@dataclass(slots=True)
class _Run:
    fold: Fold
    policy: Sliding
    expected: Expected = field(default_factory=Expected)
    windows: list[_Window] = field(default_factory=list)
    grace_ms: int = 0
    """The current one: it may change between two records."""
    time_ms: int = NO_TIME_MS
    latest_start_ms: int = NO_TIME_MS
    """Of all windows ever put: windows too far behind it are not found any more."""

    def found(self, key: bytes, first_ms: int, last_ms: int) -> list[_Window]:
        forgotten_ms = self.latest_start_ms - 2 * self.policy.difference_ms - self.grace_ms
        return sorted(
            (
                window
                for window in self.windows
                if window.key == key
                and first_ms <= window.start_ms <= last_ms
                and window.start_ms > forgotten_ms
            ),
            key=lambda window: window.start_ms,
        )

    def end_ms(self, window: _Window) -> int:
        return window.start_ms + self.policy.difference_ms

    def add(self, cause: int, record: Record, window: _Window) -> bool:
        """Take the record into the window, unless it is closed; says whether it was open."""
        if self.end_ms(window) < self.time_ms - self.grace_ms:
            self.expected.refused += 1
            return False
        old = self.fold(window.records)
        window.records = [*window.records, record]
        self.put(cause, record, window, old)
        return True

    def put(self, cause: int, record: Record, window: _Window, old: bytes | None) -> None:
        same = (window.key, window.start_ms)
        self.windows = [other for other in self.windows if (other.key, other.start_ms) != same]
        self.windows.append(window)
        self.latest_start_ms = max(self.latest_start_ms, window.start_ms)
        bounds = WindowBounds("sliding", window.start_ms, self.end_ms(window))
        new, at_ms = self.fold(window.records), window.latest_ms
        self.expected.outputs.append(
            Output(cause, window.key, new, at_ms, record.headers, old, bounds)
        )


def aggregate(
    records: Sequence[Record], fold: Fold, policy: Sliding, graces_ms: Sequence[int]
) -> Expected:
    """Every update of every sliding window, in order."""
    run = _Run(fold, policy)
    for cause, (record, run.grace_ms) in enumerate(zip(records, graces_ms, strict=True)):
        if record.key is None or record.value is None or record.timestamp_ms < 0:
            continue
        run.time_ms = max(run.time_ms, record.timestamp_ms)
        outputs_before = len(run.expected.outputs)
        if record.timestamp_ms + policy.difference_ms < run.time_ms - run.grace_ms:
            run.expected.refused += 1
        elif record.timestamp_ms < policy.difference_ms:
            _near_zero(run, cause, record, record.key)
        else:
            _far_from_zero(run, cause, record, record.key)
        if len(run.expected.outputs) == outputs_before:
            run.expected.late.append(cause)
    return run.expected


def _far_from_zero(run: _Run, cause: int, record: Record, key: bytes) -> None:
    at_ms, difference_ms = record.timestamp_ms, run.policy.difference_ms
    found = run.found(key, max(0, at_ms - 2 * difference_ms), at_ms + 1)
    starts = {window.start_ms for window in found}
    around = [window for window in found if window.start_ms <= at_ms < run.end_ms(window)]
    own_left = [window for window in found if run.end_ms(window) == at_ms]
    before = [window for window in found if run.end_ms(window) < at_ms]
    own_right = list(around[-1].records) if around else []
    for window in reversed(around):
        run.add(cause, record, window)
    nearest = [*own_left, *before[-1:]]
    previous_ms = nearest[-1].latest_ms if nearest else None
    if own_left:
        was_there = own_left[0].latest_ms == at_ms
        run.add(cause, record, own_left[0])
        if was_there:
            return
    if previous_ms is not None:
        reaches_us = previous_ms + 1 + difference_ms >= at_ms
        if previous_ms + 1 not in starts and reaches_us:
            run.add(cause, record, _Window(key, previous_ms + 1))
    if not own_left:
        is_near = previous_ms is not None and previous_ms >= at_ms - difference_ms
        shared = list(before[-1].records) if is_near else []
        run.add(cause, record, _Window(key, at_ms - difference_ms, shared))
    if at_ms + 1 not in starts:
        _make_own_right(run, cause, record, key, own_right)


def _near_zero(run: _Run, cause: int, record: Record, key: bytes) -> None:
    at_ms = record.timestamp_ms
    found = run.found(key, 0, at_ms + 1)
    starts = {window.start_ms for window in found}
    at_zero = [window for window in found if window.start_ms == 0]
    around = [window for window in found if 0 < window.start_ms <= at_ms]
    own_right = list((around or at_zero)[-1].records) if around or at_zero else []
    for window in around:
        run.add(cause, record, window)
    if at_ms + 1 not in starts:
        _make_own_right(run, cause, record, key, own_right)
    if at_zero:
        previous_ms = at_zero[0].latest_ms
        if previous_ms < at_ms and previous_ms + 1 not in starts:
            run.add(cause, record, _Window(key, previous_ms + 1))
    run.add(cause, record, at_zero[0] if at_zero else _Window(key, 0))


def _make_own_right(
    run: _Run, cause: int, record: Record, key: bytes, records: list[Record]
) -> None:
    """The window that begins just after the record: what already stood around it, after it."""
    if records and max(seen.timestamp_ms for seen in records) > record.timestamp_ms:
        run.put(cause, record, _Window(key, record.timestamp_ms + 1, records), None)
