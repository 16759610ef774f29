"""Windows of a stream: each folds its records by group, and leaves once no other can come.

    record at T         belongs to window T // size, which ends at its number + 1 times the size
    window              leaves when all inputs have passed its end, its groups in order of bytes

Each open window is a table of its own, of aggregates by group. So a batch reads and writes only the
groups of its records, and a window that leaves takes its rows with it:

    NAME-N/ROW                 the aggregates of window N
    window:NAME:N              how many records window N has folded
    NAME:first-open            the first window that has not left

A record whose window has left is late: it is in none, and is handed back.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from headrace.spark_jobs.versioned.arrival import Arrivals, in_order
from headrace.spark_jobs.versioned.functions import as_group, as_value, of_step
from headrace.spark_jobs.versioned.layout import decode_versions, encode_versions
from headrace.spark_jobs.versioned.records import are_present
from headrace.spark_jobs.versioned.state import Buckets
from headrace.spark_jobs.versioned.table_rows import TableRows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from headrace.spark_jobs.versioned.layout import History
    from headrace.spark_jobs.versioned.state import TaskState

    Regroup = Callable[[bytes, bytes], tuple[bytes, bytes] | None]

_COUNTED = "window"
_YEAR_DIGITS = 4


def is_of_one_window(name: str) -> bool:
    """Return whether a number of a task is that of one window, which comes and goes."""
    kind, _, rest = name.partition(":")
    _, colon, number = rest.rpartition(":")
    return kind == _COUNTED and bool(colon) and number.removeprefix("-").isdecimal()


class WindowFolds(Protocol):
    """How the values of a group become one value of its window."""

    def add(self, total: bytes | None, values: Sequence[bytes]) -> bytes:
        """Add values to a total, None for the first ones."""

    def result(self, total: bytes, start: str, end: str) -> bytes:
        """Return the value that leaves; `start` and `end` are the window's, as `time_text`."""


class Closed(NamedTuple):
    """A group of a window that leaves."""

    group: bytes
    value: bytes | None
    time_ms: int
    """The last moment of the window."""


class WindowFold:
    """Folds the records of one input."""

    def __init__(
        self,
        state: TaskState,
        name: str,
        *,
        size_ms: int,
        lag_ms: int,
        regroup: Regroup,
        folds: WindowFolds,
    ) -> None:
        """Fold windows of this size; records may come `lag_ms` behind progress."""
        self._state = state
        self._name = name
        self._size_ms = size_ms
        self._lag_ms = lag_ms
        self._regroup = of_step(name, regroup, as_group)
        self._add = of_step(name, folds.add, as_value)
        self._result = of_step(name, folds.result, as_value)
        self._first_open_name = f"{name}:first-open"
        self._first_open = state.numbers.get(self._first_open_name)
        self._windows: dict[int, Buckets[History]] = {}
        state.add(self)

    @property
    def held(self) -> int:
        """How many records the open windows have folded."""
        return sum(self._state.numbers[self._counted(number)] for number in self._open())

    def process(self, arrivals: Arrivals) -> NDArray[np.intp]:
        """Fold the records of a batch; return the places of the late ones."""
        records = arrivals.records
        windows = records.times_ms // self._size_ms
        has_value = are_present(records.values)
        late = np.zeros(len(arrivals), np.bool_)
        if self._first_open is not None:
            late = has_value & (windows < self._first_open)
        folded: dict[int, dict[bytes, list[bytes]]] = defaultdict(lambda: defaultdict(list))
        ungrouped = 0
        with in_order(enumerate(arrivals)) as numbered:
            for place, (_, record) in numbered:
                if record.value is None or late[place]:
                    continue
                found = self._regroup(record.key or b"", record.value)
                if found is None:
                    ungrouped += 1
                else:
                    folded[int(windows[place])][found[0]].append(found[1])
        for number, groups in folded.items():
            self._fold(number, groups)
        self._state.count(f"{self._name}:taken", len(arrivals))
        self._state.count(f"{self._name}:ungrouped", ungrouped)
        self._state.count(f"{self._name}:dropped:null-value", int(np.sum(~has_value)))
        self._state.count(f"{self._name}:dropped:late", int(np.sum(late)))
        return np.flatnonzero(late)

    def advance(self, progress_ms: int) -> list[Closed]:
        """Note that all inputs have passed a time; return the groups of windows that leave."""
        first_open = (progress_ms - self._lag_ms) // self._size_ms
        if self._first_open is not None and first_open <= self._first_open:
            return []
        self._first_open = self._state.numbers[self._first_open_name] = first_open
        return [
            row for number in self._open() if number < first_open for row in self._close(number)
        ]

    def balance(self) -> int:
        """Return zero, unless a record was lost or invented."""
        return self._state.balance(self._name, self.held)

    def save(self) -> None:
        """Write out the windows that changed."""
        for window in self._windows.values():
            window.save()

    def _open(self) -> list[int]:
        prefix = self._counted("")
        found = (
            name.removeprefix(prefix) for name in self._state.numbers if name.startswith(prefix)
        )
        return sorted(map(int, found))

    def _counted(self, number: int | str) -> str:
        return f"{_COUNTED}:{self._name}:{number}"

    def _table(self, number: int) -> str:
        return f"{self._name}-{number}"

    def _fold(self, number: int, groups: dict[bytes, list[bytes]]) -> None:
        window = self._windows.get(number)
        if window is None:
            begins = self._counted(number) not in self._state.numbers
            table = TableRows(self._state, self._table(number), begins=begins)
            window = self._windows[number] = Buckets(table, decode_versions, encode_versions)
        end_ms = (number + 1) * self._size_ms
        for group, values in groups.items():
            bucket = window.to_change(group)
            before = bucket.get(group)
            total = self._add(None if before is None else before[1][0], values)
            bucket[group] = [end_ms - 1], [total]
        self._state.count(self._counted(number), sum(map(len, groups.values())))

    def _close(self, number: int) -> list[Closed]:
        # A window of this batch may have changes that no row has yet.
        if (window := self._windows.pop(number, None)) is not None:
            window.save()
        table = TableRows(self._state, self._table(number))
        totals: dict[bytes, bytes | None] = {}
        for row in filter(None, table.all_rows()):
            totals |= {group: values[0] for group, (_, values) in decode_versions(row).items()}
        table.remove()
        self._state.count(f"{self._name}:passed", self._state.numbers.pop(self._counted(number)))
        start_ms = number * self._size_ms
        end_ms = start_ms + self._size_ms
        bounds = time_text(start_ms), time_text(end_ms)
        closed = []
        for group, total in sorted(totals.items()):
            assert total is not None
            closed.append(Closed(group, self._result(total, *bounds), end_ms - 1))
        return closed


def time_text(time_ms: int) -> str:
    """Write a time as Spark writes it in JSON; a year beyond four digits has a sign."""
    text = str(np.datetime64(time_ms, "ms"))
    is_long = len(text.partition("-")[0]) > _YEAR_DIGITS
    return f"{'+' if is_long else ''}{text}000Z"
