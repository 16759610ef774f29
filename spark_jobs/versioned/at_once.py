"""A versioned table that takes a batch at once, in columns, and answers all its look-ups at once.

Its rows are those of `VersionedStore`, which takes and answers one by one where it must. Both read
only the buckets that they are asked for, and write only those that changed.
"""

from __future__ import annotations

from itertools import repeat
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa

from headrace.spark_jobs.versioned.arrival import COPIED
from headrace.spark_jobs.versioned.layout import decode_version_columns, encode_version_columns
from headrace.spark_jobs.versioned.records import are_present, objects
from headrace.spark_jobs.versioned.state import row_name
from headrace.spark_jobs.versioned.versions import (
    BEFORE,
    NOTHING,
    Asks,
    Puts,
    Versions,
    as_of,
    remembered,
    with_puts,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from headrace.spark_jobs.versioned.arrival import Arrivals
    from headrace.spark_jobs.versioned.functions import StepFailed
    from headrace.spark_jobs.versioned.records import Integers, Objects
    from headrace.spark_jobs.versioned.state import TaskState

_NONE = pa.array([], pa.large_binary())


class NewVersions(NamedTuple):
    """The new versions of a table, in the order of the steps of the batch."""

    keys: Objects
    times_ms: Integers
    steps: Integers
    values: Objects
    """None is a tombstone."""
    are_copies: NDArray[np.bool_]
    """True for one that another task counts."""

    @classmethod
    def of(cls, arrivals: Arrivals, places: NDArray[np.int64]) -> NewVersions:
        """Take the arrivals at these places, of which each has a key."""
        new = arrivals.records.take(places)
        are_copies = arrivals.inputs[places] == COPIED
        return cls(new.keys, new.times_ms, places, new.values, are_copies)

    def where(self, holds: NDArray[np.bool_]) -> NewVersions:
        """Return those for which a mask is true."""
        return NewVersions(
            self.keys[holds],
            self.times_ms[holds],
            self.steps[holds],
            self.values[holds],
            self.are_copies[holds],
        )


class LookUps(NamedTuple):
    """Questions to a table: the value of a key at a time, in a step of the batch."""

    keys: Objects
    """None is a key that has no value."""
    times_ms: Integers
    steps: Integers


class Answers(NamedTuple):
    """A table's answers to look-ups, in their order."""

    values: pa.LargeBinaryArray
    """Null where there is none."""
    expired: NDArray[np.bool_]
    """True for a look-up before the horizon that does not meet the latest version."""
    failures: Mapping[int, StepFailed] = MappingProxyType({})
    """Failed computations of values, by the place of the look-up; its value is null."""


class HistoryAtOnce:
    """The versions of the keys in the buckets that were asked for."""

    def __init__(self, state: TaskState, name: str) -> None:
        self._rows = state.rows
        self._buckets = state.buckets
        self._name = name
        self._read: set[int] = set()
        self._changed: set[int] = set()
        # A key's number is its place here.
        self._keys: dict[bytes, int] = {}
        nothing = np.zeros(0, np.int64)
        self._versions = Versions(np.zeros(1, np.int64), nothing, nothing, _NONE)

    def meet(self, puts: NewVersions, asked: LookUps, horizons_ms: Integers) -> Answers:
        """Take versions in the order of their steps, and answer as of each look-up's step.

        `horizons_ms` are the look-ups': before it only the latest version is an answer.
        """
        self._put(puts)
        keys = asked.keys
        has_key = are_present(keys)
        self._read_buckets(self._buckets_of(keys[has_key]))
        of_keys = np.fromiter(map(self._keys.get, keys, repeat(NOTHING)), np.int64, len(keys))
        versions = self._versions
        asks = Asks(of_keys, asked.times_ms, asked.steps, horizons_ms)
        places, expired = as_of(versions, asks)
        values = versions.values.take(pa.array(places, mask=places == NOTHING))
        if len(puts.keys):
            # The next versions come after all of these.
            self._versions = versions._replace(steps=np.full(len(versions.steps), BEFORE))
        return Answers(values, expired & has_key)

    def save(self, horizon_ms: int) -> None:
        """Write out the buckets that changed, without versions that no answer can need any more."""
        versions = self._versions
        keep = remembered(versions, horizon_ms)
        sizes = np.diff(np.concatenate([[0], np.cumsum(keep)])[versions.starts])
        keys = objects(list(self._keys))
        alive = np.flatnonzero(sizes > 0)
        numbers = self._numbers_of(keys)[alive]
        order = np.argsort(numbers, kind="stable")
        alive, numbers = alive[order], numbers[order]
        changed = sorted(self._changed)
        starts, ends = (np.searchsorted(numbers, changed, side) for side in ("left", "right"))
        for number, start, end in zip(changed, starts.tolist(), ends.tolist(), strict=True):
            own = alive[start:end].tolist()
            if not own:
                self._rows.remove(row_name(self._name, number))
                continue
            own.sort(key=keys.__getitem__)
            places = _ranges(versions.starts[own], versions.starts[np.add(own, 1)])
            places = places[keep[places]]
            row = encode_version_columns(
                keys[own].tolist(),
                sizes[own],
                versions.times_ms[places],
                versions.values.take(pa.array(places)),
            )
            self._rows.put(row_name(self._name, number), row)
        self._changed.clear()

    def _put(self, puts: NewVersions) -> None:
        keys = puts.keys
        if not len(keys):
            return
        numbers = self._buckets_of(keys)
        self._read_buckets(numbers)
        self._changed.update(numbers)
        known = self._keys
        of_keys = np.array([known.setdefault(key, len(known)) for key in keys.tolist()], np.int64)
        values = pa.array(puts.values, pa.large_binary())
        new = Puts(of_keys, puts.times_ms, puts.steps, values)
        self._versions = with_puts(self._versions, new, len(known))

    def _read_buckets(self, numbers: list[int]) -> None:
        """Read these buckets, unless they were read already."""
        known = self._versions
        sizes, times, values = [np.diff(known.starts)], [known.times_ms], [known.values]
        unread = [number for number in numbers if number not in self._read]
        self._read.update(unread)
        for row in self._rows.get_all([row_name(self._name, number) for number in unread]):
            if row is None:
                continue
            row_keys, row_sizes, row_times, row_values = decode_version_columns(row)
            self._keys.update(zip(row_keys, range(len(self._keys), 1 << 62), strict=False))
            sizes.append(row_sizes)
            times.append(row_times)
            values.append(row_values)
        if len(sizes) > 1:
            starts = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
            more = np.full(int(starts[-1]) - len(known.steps), BEFORE)
            self._versions = Versions(
                starts,
                np.concatenate(times),
                np.concatenate([known.steps, more]),
                pa.concat_arrays(values),
            )

    def _buckets_of(self, keys: Objects) -> list[int]:
        """Return the buckets of the keys, each once."""
        numbers: list[int] = np.flatnonzero(np.bincount(self._numbers_of(keys))).tolist()
        return numbers

    def _numbers_of(self, keys: Objects) -> NDArray[np.uint32]:
        """Return the bucket of each key, as `Buckets` computes it."""
        return np.fromiter(map(crc32, keys), np.uint32, len(keys)) % np.uint32(self._buckets)


def _ranges(starts: Integers, ends: Integers) -> Integers:
    """Return all places of these ranges, one range after the other."""
    sizes = ends - starts
    behind = np.cumsum(sizes)
    places: Integers = np.arange(behind[-1]) + np.repeat(starts - (behind - sizes), sizes)
    return places
