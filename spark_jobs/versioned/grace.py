"""Stream records that wait for the table, and the order in which they leave (KIP-923, rule D3)."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headrace.contracts.errors import StateCorrupt
from headrace.spark_jobs.versioned.layout import (
    HeldColumns,
    decode_held_columns,
    decode_slices,
    encode_held_columns,
    encode_slices,
)
from headrace.spark_jobs.versioned.records import Columns, Records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from headrace.spark_jobs.versioned.state import TaskState

ARRIVAL_MAX = (1 << 32) - 1


class Held(NamedTuple):
    """Held records in columns."""

    arrivals: NDArray[np.int64]
    """Their arrival numbers among all records that were ever held."""
    records: Records

    @classmethod
    def together(cls, pieces: Sequence[Held]) -> Held:
        """Join many, one after the other."""
        if len(pieces) == 1:
            return pieces[0]
        arrivals = [np.zeros(0, np.int64), *(piece.arrivals for piece in pieces)]
        return cls(np.concatenate(arrivals), Records.together([one.records for one in pieces]))

    def take(self, places: NDArray[Any]) -> Held:
        """Return those at some places, or those for which a mask is true."""
        return Held(self.arrivals[places], self.records.take(places))


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
        self._bytes = numbers.get(f"{name}:bytes", 0)
        """Their bytes as they are stored."""
        self.arrivals = numbers.get(f"{name}:arrivals", 0)
        """How many records were ever held; the arrival number of the last one."""
        # Records that are held already were cut by the width of that time.
        self._slice_ms = numbers.get(f"{name}:slice_ms", slice_ms) if self.count else slice_ms
        row = state.rows.get(f"{name}/slices")
        self._order = [] if row is None else decode_slices(row)
        self._unread = set(self._order)
        # A slice is in pieces until it is released or written.
        self._slices: dict[int, list[Held]] = {}
        self._stored: dict[int, Held] = {}
        """The stored records of slices that were read or written."""
        self._changed: set[int] = set()
        state.add(self)

    @property
    def bytes(self) -> int:
        """Return the bytes that Kafka Streams counts for held records (rule D7)."""
        # Most records come and go between two saves, and are never weighed.
        changed = self._changed
        stored = [self._stored[number] for number in changed if number in self._stored]
        present = [piece for number in changed for piece in self._slices.get(number, ())]
        return self._bytes + _weight(present) - _weight(stored)

    def hold(self, arrivals: NDArray[np.int64], records: Records) -> None:
        """Hold records; their keys and values are not null."""
        if not len(records):
            return
        held = Held(arrivals, records)
        of_slices = records.times_ms // self._slice_ms
        for number in np.unique(of_slices).tolist():
            if number not in self._unread and number not in self._slices:
                self._order.append(number)
            self._slices.setdefault(number, []).append(held.take(of_slices == number))
            self._changed.add(number)
        self.count += len(records)

    def release(self, until_ms: int) -> Held:
        """Release all records up to and including a time, in no order."""
        released: list[Held] = []
        heapify(self._order)
        while self._order and self._order[0] * self._slice_ms <= until_ms:
            number = heappop(self._order)
            held = Held.together(self._slice(number))
            stays = held.records.times_ms > until_ms
            if not stays.all():
                released.append(held.take(~stays))
                self._changed.add(number)
            if stays.any():
                self._slices[number] = [held.take(stays)]
                self._order.append(number)
                break
            del self._slices[number]
        gone = Held.together(released)
        self.count -= len(gone.records)
        return gone

    def between(self, from_ms: int, until_ms: int) -> Records:
        """Return the records between two times, both included, in no order; they stay."""
        width_ms = self._slice_ms
        first, last = from_ms // width_ms, until_ms // width_ms
        numbers = [each for each in self._order if first <= each <= last]
        found = Held.together([piece for number in numbers for piece in self._slice(number)])
        times_ms = found.records.times_ms
        return found.records.take((from_ms <= times_ms) & (times_ms <= until_ms))

    def save(self) -> None:
        """Write out the slices that changed, and the list of slices."""
        numbers = self._numbers
        numbers[f"{self._name}:records"] = self.count
        numbers[f"{self._name}:bytes"] = self._bytes = self.bytes
        numbers[f"{self._name}:arrivals"] = self.arrivals
        numbers[f"{self._name}:slice_ms"] = self._slice_ms
        if not self._changed:
            return
        for number in sorted(self._changed):
            if number in self._slices:
                held = Held.together(self._slice(number))
                held = held.take(np.lexsort((held.arrivals, held.records.times_ms)))
                self._slices[number] = [held]
                self._stored[number] = held
                self._rows.put(f"{self._name}/{number}", _encode(held))
            else:
                self._stored.pop(number, None)
                self._rows.remove(f"{self._name}/{number}")
        self._rows.put(f"{self._name}/slices", encode_slices(self._unread | self._slices.keys()))
        self._changed.clear()

    def _slice(self, number: int) -> list[Held]:
        """Return the pieces of a slice with what is stored of it."""
        pieces = self._slices.setdefault(number, [])
        if number in self._unread:
            self._unread.remove(number)
            self._stored[number] = self._read(number)
            pieces.insert(0, self._stored[number])
        return pieces

    def _read(self, number: int) -> Held:
        row = self._rows.get(f"{self._name}/{number}")
        if row is None:
            message = (
                f"the row `{self._name}/{number}` of held records is gone, though it is listed;"
                " start the query from an older or a new checkpoint"
            )
            raise StateCorrupt(message)
        return decode_slice(row)


@dataclass(slots=True)
class Leaving:
    """Records that leave, in columns."""

    steps: NDArray[np.int64]
    """The place, in the batch, of the arrival that releases each of them."""
    arrivals: NDArray[np.int64]
    """Their arrival numbers among all records that were ever held."""
    records: Records

    @classmethod
    def of(cls, held: Held, steps: NDArray[np.int64]) -> Leaving:
        """Take records that were held, and the step of each."""
        return cls(steps, held.arrivals, held.records)

    def __add__(self, other: Leaving) -> Leaving:
        """Join two, one after the other."""
        return Leaving(
            np.concatenate([self.steps, other.steps]),
            np.concatenate([self.arrivals, other.arrivals]),
            self.records + other.records,
        )

    def order(self, *, by_progress: bool) -> NDArray[np.int64]:
        """Return the places of the records in the order in which they leave.

        They leave by step, then by time, then by key bytes. Equal keys leave by arrival, whose four
        bytes follow the key's, which is how Kafka Streams' buffer compares them; by progress they
        leave by where they stand, so that they leave alike however micro-batches were cut.
        """
        times = self.records.times_ms
        order = np.lexsort((times, self.steps))
        same = (np.diff(self.steps[order]) == 0) & (np.diff(times[order]) == 0)
        if same.any():
            sort = self._by_key_and_stand if by_progress else self._by_key
            bounds = [0, *(np.flatnonzero(~same) + 1).tolist(), len(order)]
            for start, end in pairwise(bounds):
                if end - start > 1:
                    order[start:end] = sort(order[start:end])
        return order

    def _by_key_and_stand(self, places: NDArray[np.int64]) -> list[int]:
        """Arrival only decides among records that stand nowhere."""
        records = self.records.take(places)
        compared = {
            place: (key or b"", *stand)
            for place, key, *stand in zip(
                places.tolist(),
                records.keys,
                records.topics,
                records.partitions.tolist(),
                records.offsets.tolist(),
                self.arrivals[places].tolist(),
                strict=True,
            )
        }
        return sorted(compared, key=compared.__getitem__)

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


def _encode(held: Held) -> bytes:
    columns = held.records.columns()
    return encode_held_columns(
        HeldColumns(
            held.arrivals,
            columns.times_ms,
            columns.partitions,
            columns.offsets,
            columns.topics,
            columns.keys,
            columns.values,
            columns.headers,
        )
    )


def decode_slice(row: bytes) -> Held:
    """Decode the held records of one slice."""
    arrivals, times_ms, partitions, offsets, topics, keys, values, headers = decode_held_columns(
        row
    )
    columns = Columns(keys, values, times_ms, headers, topics, partitions, offsets)
    return Held(arrivals, Records(columns, np.arange(len(arrivals))))


def _weight(pieces: Sequence[Held]) -> int:
    """Return the bytes of held records (rule D7)."""
    records = Held.together(pieces).records
    texts = (records.keys, records.values, records.topics)
    weight = 33 * len(records) + sum(sum(map(len, filter(None, each))) for each in texts)
    if records.headers is None:
        return weight
    return weight + sum(
        len(name) + len(value or b"") for each in records.headers for name, value in each
    )
