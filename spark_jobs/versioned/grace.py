"""Stream records that wait for the table, and the order in which they leave (KIP-923, rule D3)."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from headrace.contracts.errors import StateCorrupt
from headrace.spark_jobs.versioned.layout import (
    HeldRow,
    decode_held,
    decode_slices,
    encode_held,
    encode_slices,
)
from headrace.spark_jobs.versioned.records import Records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from headrace.contracts.record import Record
    from headrace.spark_jobs.versioned.state import TaskState

ARRIVAL_MAX = (1 << 32) - 1


class HeldRecords:
    """Held records, cut into slices of time, each of them one row.

    A record goes to slice `timestamp // slice_ms`. Only the slices that get or lose records are
    read and written, so a long grace costs no more per batch than a short one.
    """

    def __init__(self, state: TaskState, name: str, slice_ms: int) -> None:
        numbers = state.numbers
        self._rows = state.rows
        self._numbers = numbers
        self._name = name
        self.count = numbers.get(f"{name}:records", 0)
        self.bytes = numbers.get(f"{name}:bytes", 0)
        self.arrivals = numbers.get(f"{name}:arrivals", 0)
        """How many records were ever held; the arrival number of the last one."""
        # Records that are held already were cut by the width of that time.
        self._slice_ms = numbers.get(f"{name}:slice_ms", slice_ms) if self.count else slice_ms
        row = state.rows.get(f"{name}/slices")
        self._order = [] if row is None else decode_slices(row)
        self._unread = set(self._order)
        self._slices: dict[int, list[HeldRow]] = {}
        self._changed: set[int] = set()
        state.add(self)

    def hold(self, rows: Sequence[HeldRow]) -> None:
        """Hold records; their keys and values are not null."""
        width_ms = self._slice_ms
        for row in rows:
            number = row[1].timestamp_ms // width_ms
            self._slice(number).append(row)
            self._changed.add(number)
        self.count += len(rows)
        self.bytes += _weight(rows)

    def release(self, until_ms: int) -> list[HeldRow]:
        """Release all records up to and including a time, in no order."""
        released: list[HeldRow] = []
        heapify(self._order)
        while self._order and self._order[0] * self._slice_ms <= until_ms:
            number = heappop(self._order)
            rows = self._slice(number)
            kept = [row for row in rows if row[1].timestamp_ms > until_ms]
            if len(kept) < len(rows):
                released += [row for row in rows if row[1].timestamp_ms <= until_ms]
                self._changed.add(number)
            if kept:
                self._slices[number] = kept
                self._order.append(number)
                break
            del self._slices[number]
        self.count -= len(released)
        self.bytes -= _weight(released)
        return released

    def between(self, from_ms: int, until_ms: int) -> list[HeldRow]:
        """Return the records between two times, both included, in no order; they stay."""
        width_ms = self._slice_ms
        first, last = from_ms // width_ms, until_ms // width_ms
        return [
            row
            for number in [each for each in self._order if first <= each <= last]
            for row in self._slice(number)
            if from_ms <= row[1].timestamp_ms <= until_ms
        ]

    def save(self) -> None:
        """Write out the slices that changed, and the list of slices."""
        numbers = self._numbers
        numbers[f"{self._name}:records"] = self.count
        numbers[f"{self._name}:bytes"] = self.bytes
        numbers[f"{self._name}:arrivals"] = self.arrivals
        numbers[f"{self._name}:slice_ms"] = self._slice_ms
        if not self._changed:
            return
        for number in sorted(self._changed):
            if rows := self._slices.get(number):
                rows.sort(key=lambda row: (row[1].timestamp_ms, row[0]))
                self._rows.put(f"{self._name}/{number}", encode_held(rows))
            else:
                self._rows.remove(f"{self._name}/{number}")
        self._rows.put(f"{self._name}/slices", encode_slices(self._unread | self._slices.keys()))
        self._changed.clear()

    def _slice(self, number: int) -> list[HeldRow]:
        rows = self._slices.get(number)
        if rows is not None:
            return rows
        if number in self._unread:
            self._unread.remove(number)
            rows = self._read(number)
        else:
            self._order.append(number)
            rows = []
        self._slices[number] = rows
        return rows

    def _read(self, number: int) -> list[HeldRow]:
        row = self._rows.get(f"{self._name}/{number}")
        if row is None:
            message = (
                f"the row `{self._name}/{number}` of held records is gone, though it is listed;"
                " start the query from an older or a new checkpoint"
            )
            raise StateCorrupt(message)
        return decode_held(row)


@dataclass(slots=True)
class Leaving:
    """Records that leave, in columns."""

    steps: NDArray[np.int64]
    """The place, in the batch, of the arrival that releases each of them."""
    arrivals: NDArray[np.int64]
    """Their arrival numbers among all records that were ever held."""
    records: Records

    @classmethod
    def of(cls, rows: Sequence[HeldRow], steps: NDArray[np.int64]) -> Leaving:
        """Take records that were held, and the step of each."""
        records = Records.of([record for _, record in rows])
        arrivals = np.array([arrival for arrival, _ in rows], np.int64)
        return cls(steps, arrivals, records)

    def __add__(self, other: Leaving) -> Leaving:
        """Join two, one after the other."""
        return Leaving(
            np.concatenate([self.steps, other.steps]),
            np.concatenate([self.arrivals, other.arrivals]),
            self.records + other.records,
        )

    def order(self) -> NDArray[np.int64]:
        """Return the places of the records in the order in which they leave.

        They leave by step, then by time, then by key bytes followed by four bytes of arrival, which
        is how Kafka Streams' buffer compares them.
        """
        times = self.records.times_ms
        order = np.lexsort((times, self.steps))
        same = (np.diff(self.steps[order]) == 0) & (np.diff(times[order]) == 0)
        if same.any():
            bounds = [0, *(np.flatnonzero(~same) + 1).tolist(), len(order)]
            for start, end in pairwise(bounds):
                if end - start > 1:
                    order[start:end] = self._by_key(order[start:end])
        return order

    def _by_key(self, places: NDArray[np.int64]) -> list[int]:
        arrivals = self.arrivals[places]
        first = int(np.min(arrivals)) & ~ARRIVAL_MAX
        # Arrivals beyond four bytes need a fifth, or equal keys would see the count start again.
        size = 4 if int(np.max(arrivals)) - first <= ARRIVAL_MAX else 5
        compared = {
            place: (key or b"") + (arrival - first).to_bytes(size, "big")
            for place, key, arrival in zip(
                places.tolist(), self.records.take(places).keys, arrivals.tolist(), strict=True
            )
        }
        return sorted(compared, key=compared.__getitem__)


def _weight(rows: Sequence[HeldRow]) -> int:
    """Return the bytes that Kafka Streams counts for held records (rule D7)."""
    return sum(_weight_of(record) for _, record in rows)


def _weight_of(record: Record) -> int:
    key, value, _, headers, topic, _, _ = record
    weight = 13 + 8 + 8 + 4 + len(key or b"") + len(value or b"") + len(topic)
    if not headers:
        return weight
    return weight + sum(len(name) + len(each or b"") for name, each in headers)
