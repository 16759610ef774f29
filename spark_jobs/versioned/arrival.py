"""The order in which the inputs of a task are taken, and how late they come."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from contracts.record import NO_TIME_MS, Record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_jobs.versioned.state import TaskState


class Arrival(NamedTuple):
    """A record and the number of the input it came in by."""

    input: int
    record: Record


def merge(inputs: Sequence[Sequence[Record]]) -> list[Arrival]:
    """One order for several inputs, each given by offset: the head with the lowest timestamp first.

    On ties the input that stands first goes first, so tables stand before streams. An input is
    never reordered within itself: a late record waits until it is the head.
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


class Lateness(NamedTuple):
    """How far behind the task's stream time records came (rule A6)."""

    records: int
    total_ms: int
    max_ms: int


def observe_lateness(state: TaskState, arrivals: Sequence[Arrival]) -> None:
    """Add a batch, every input and null keys included, to the task's lateness."""
    if not arrivals:
        return
    numbers = state.numbers
    times = np.array([record[2] for _, record in arrivals], np.int64)
    began_ms = numbers.get("task:time_ms", NO_TIME_MS)
    reached = np.maximum.accumulate(np.concatenate([[began_ms], times]))
    late = np.maximum(reached[:-1] - times, 0)
    numbers["task:time_ms"] = int(reached[-1])
    numbers["task:late_max_ms"] = max(int(late.max()), numbers.get("task:late_max_ms", 0))
    state.count("task:late_total_ms", int(late.sum()))
    state.count("task:records", len(arrivals))


def lateness(state: TaskState) -> Lateness:
    """The task's lateness since its state began."""
    names = ("task:records", "task:late_total_ms", "task:late_max_ms")
    return Lateness(*(state.numbers.get(name, 0) for name in names))


def dropped_records(state: TaskState) -> int:
    """What Kafka Streams counts as dropped: null keys and values, expired, out of order."""
    return sum(count for name, count in state.numbers.items() if ":dropped:" in name)
