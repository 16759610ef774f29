"""The order in which a task takes its inputs, and how late their records come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from heapq import heapify, heappop, heappush
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple, TypeVar, overload

import numpy as np

from headrace.contracts.record import NO_TIME_MS, Record
from headrace.spark_jobs.versioned.functions import StepFailed
from headrace.spark_jobs.versioned.records import Records

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.spark_jobs.versioned.state import TaskState

Each = TypeVar("Each")
_LONG_MAX = (1 << 63) - 1
COPIED = -8
"""The input of a copy: a record of the table whose key is hot, in a task that is not its key's own.

It is kept as the record is, and counted only in the key's own task.
"""


class Arrival(NamedTuple):
    """A record and the number of its input."""

    input: int
    record: Record


class Arrivals(Sequence[Arrival]):
    """Records in the order in which they are taken, and the input of each."""

    __slots__ = ("inputs", "records")

    def __init__(self, inputs: NDArray[np.int32], records: Records) -> None:
        self.inputs = inputs
        self.records = records

    @classmethod
    def of(cls, arrivals: Sequence[Arrival]) -> Arrivals:
        """Convert arrivals into columns."""
        if isinstance(arrivals, Arrivals):
            return arrivals
        inputs = np.array([number for number, _ in arrivals], np.int32)
        return cls(inputs, Records.of([record for _, record in arrivals]))

    def take(self, places: NDArray[np.intp]) -> Arrivals:
        """Return the arrivals at some places of these."""
        return Arrivals(self.inputs[places], self.records.take(places))

    def __len__(self) -> int:
        return len(self.inputs)

    def __iter__(self) -> Iterator[Arrival]:
        pairs = zip(self.inputs.tolist(), self.records, strict=True)
        return map(tuple.__new__, repeat(Arrival), pairs)

    @overload
    def __getitem__(self, at: int) -> Arrival: ...
    @overload
    def __getitem__(self, at: slice) -> Arrivals: ...
    def __getitem__(self, at: int | slice) -> Arrival | Arrivals:
        if isinstance(at, slice):
            return Arrivals(self.inputs[at], self.records[at])
        return Arrival(int(self.inputs[at]), self.records[at])


def merge(inputs: Sequence[Sequence[Record]]) -> list[Arrival]:
    """Merge several inputs, each in order of offset: the head with the lowest timestamp goes first.

    On ties the first input goes first, so tables stand before streams. An input is never reordered
    within itself: a late record waits until it is the head.
    """
    heads = [
        (records[0].timestamp_ms, number, 0) for number, records in enumerate(inputs) if records
    ]
    heapify(heads)
    merged: list[Arrival] = []
    while heads:
        _, number, place = heappop(heads)
        records = inputs[number]
        merged.append(Arrival(number, records[place]))
        if place + 1 < len(records):
            heappush(heads, (records[place + 1].timestamp_ms, number, place + 1))
    return merged


@contextmanager
def in_order(numbered: Iterable[tuple[int, Each]]) -> Iterator[Iterator[tuple[int, Each]]]:
    """Iterate over arrivals; if a step fails, its error gets the number of the arrival."""
    at = 0

    def each() -> Iterator[tuple[int, Each]]:
        nonlocal at
        for number, arrival in numbered:
            at = number
            yield number, arrival

    try:
        yield each()
    except StepFailed as failed:
        failed.place = at
        raise


class Lateness(NamedTuple):
    """How far behind the task's stream time records came (rule A6)."""

    records: int
    total_ms: int
    max_ms: int


def observe_lateness(state: TaskState, arrivals: Sequence[Arrival]) -> None:
    """Add a batch, every input and null keys included, to the task's lateness.

    Arrivals from other stages and copies do not count; their inputs are below zero.
    """
    arrivals = Arrivals.of(arrivals)
    times = arrivals.records.take(arrivals.inputs >= 0).times_ms
    if not len(times):
        return
    numbers = state.numbers
    began_ms = numbers.get("task:time_ms", NO_TIME_MS)
    highest = np.maximum.accumulate(np.concatenate([[began_ms], times]))
    late = np.maximum(highest[:-1] - times, 0)
    numbers["task:time_ms"] = int(highest[-1])
    latest_ms = int(late.max())
    numbers["task:late_max_ms"] = max(latest_ms, numbers.get("task:late_max_ms", 0))
    # One record of the far future makes all others so late that 64 bits hold no total.
    fits = latest_ms * len(late) <= _LONG_MAX
    total_ms = numbers.get("task:late_total_ms", 0) + int(late.sum() if fits else _LONG_MAX)
    numbers["task:late_total_ms"] = min(total_ms, _LONG_MAX)
    state.count("task:records", len(times))


def lateness(state: TaskState) -> Lateness:
    """Return the task's lateness since its state began."""
    names = ("task:records", "task:late_total_ms", "task:late_max_ms")
    return Lateness(*(state.numbers.get(name, 0) for name in names))


def dropped_records(state: TaskState) -> int:
    """Count the records that Kafka Streams calls dropped: null, expired, or out of order."""
    return sum(count for name, count in state.numbers.items() if ":dropped:" in name)
