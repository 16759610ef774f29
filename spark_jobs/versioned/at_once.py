"""A versioned table that takes a batch at once, in columns, and answers all its look-ups at once.

Its rows are those of `VersionedStore`, which takes and answers one by one where it must. Both read
only the rows that they are asked for, and write only those that changed.

A row has the versions of some hundred keys, of which a batch meets few. So all rows that were read
stay as they are, in columns, and only the keys that the batch names are known by a number:

    _stored      keys    a  c  |  b  d          as they were read, one row after the other
    _met         numbers -  0  |  1  -          the number of a key that the batch named, if any
    _versions    of keys 0, 1, 2                those, and 2, which is in no row yet
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from itertools import repeat
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.spark_jobs.versioned.arrival import COPIED
from headrace.spark_jobs.versioned.records import are_present
from headrace.spark_jobs.versioned.version_rows import (
    NO_VERSIONS,
    VersionColumns,
    decode_version_rows,
    ranges,
    rows_of,
    versions_of,
)
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
    from headrace.spark_jobs.versioned.runs import Runs
    from headrace.spark_jobs.versioned.table_rows import TableRows

ONE_OF = 100
"""One look-up of so many may ask for a version that was replaced before most others ask."""
_NOBODY = np.zeros(0, np.int64)
_UNKNOWN = Versions(np.zeros(1, np.int64), _NOBODY, _NOBODY, NO_VERSIONS.values)


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
    """True for a look-up before the horizon that does not meet the latest value."""
    failures: Mapping[int, StepFailed] = MappingProxyType({})
    """Failed computations of values, by the place of the look-up; its value is null."""


class HistoryAtOnce:
    """The versions of the keys in the rows that were asked for."""

    def __init__(self, table: TableRows, runs: Runs | None = None) -> None:
        self._table = table
        self._runs = runs
        self._first_asked_ms: int | None = None
        """The time before which no look-up asks, but for a few; None while there was none."""
        self._changed: set[int] = set()
        self._rows: dict[int, tuple[int, int]] = {}
        """Where the keys of each row that was read begin and end."""
        self._numbers: dict[bytes, int] = {}
        self._places = _NOBODY
        """The row of each named key."""
        self._new_keys: dict[int, list[bytes]] = defaultdict(list)
        """The named keys that are not in their rows."""
        self._stored = NO_VERSIONS
        self._met = _NOBODY
        self._versions = _UNKNOWN

    def meet(self, puts: NewVersions, asked: LookUps, horizons_ms: Integers) -> Answers:
        """Take versions in the order of their steps, and answer as of each look-up's step.

        `horizons_ms` are the look-ups': before it only the latest version is an answer.
        """
        has_key = are_present(asked.keys)
        self._name([*puts.keys.tolist(), *asked.keys[has_key].tolist()])
        self._put(puts)
        numbers = self._numbers
        of_keys = np.fromiter(map(numbers.get, asked.keys, repeat(NOTHING)), np.int64, len(has_key))
        versions = self._versions
        is_known = np.append(np.diff(versions.starts) > 0, False)  # of `NOTHING`
        of_keys[~is_known[of_keys]] = NOTHING
        asks = Asks(of_keys, asked.times_ms, asked.steps, horizons_ms)
        places, expired = as_of(versions, asks)
        values = versions.values.take(pa.array(places, mask=places == NOTHING))
        if self._runs is not None:
            values = self._with_runs(values, asks, self._runs)
        if len(puts.keys):
            # The next versions come after all of these.
            self._versions = versions._replace(steps=np.full(len(versions.steps), BEFORE))
        return Answers(values, expired & has_key)

    def save(self, horizon_ms: int) -> None:
        """Write out the rows that changed, without versions that no answer can need any more."""
        if not self._changed:
            return
        changed = sorted(self._changed)
        columns, places = self._remembered(*self._keys_of(changed), horizon_ms)
        columns = self._without_replaced(columns, places, len(changed))
        rows = _rows_of(columns, places, changed)
        split = self._table.grow(rows)
        if split:
            changed_keys = columns.take(np.flatnonzero(np.isin(places, split)))
            rows |= self._split(split, changed_keys, horizon_ms)
        for place, row in sorted(rows.items()):
            self._table.put(place, row)
        self._forget()

    def _split(
        self, split: list[int], changed: VersionColumns, horizon_ms: int
    ) -> dict[int, bytes | None]:
        """Return these rows and those that were added for their keys; some are `changed`."""
        unchanged = [place for place in split if place not in self._changed]
        self._read_rows(unchanged)
        others, _ = self._remembered(*self._keys_of(unchanged), horizon_ms)
        columns = VersionColumns.together([changed, others])
        places = self._table.places_of(columns.keys.to_pylist(), len(columns.sizes))
        # The keys of a row that is split ascend in each of its parts as they did in it.
        order = np.argsort(places, kind="stable")
        return _rows_of(columns.take(order), places[order], split)

    def _with_runs(
        self, values: pa.LargeBinaryArray, asks: Asks, runs: Runs
    ) -> pa.LargeBinaryArray:
        """Return the values of all look-ups, of which some may meet a version of a run."""
        is_on_time = (asks.keys != NOTHING) & (asks.times_ms >= asks.horizons_ms)
        self._note_asked(asks.times_ms[is_on_time])
        late = np.flatnonzero(is_on_time & (asks.times_ms < runs.until_ms))
        if not len(late):
            return values
        keys, of_asks = np.unique(asks.keys[late], return_inverse=True)
        first_asked_ms = np.full(len(keys), runs.until_ms)
        np.minimum.at(first_asked_ms, of_asks, asks.times_ms[late])
        names = [*self._numbers]
        earlier = runs.versions_of([names[key] for key in keys], first_asked_ms)
        known = self._versions
        firsts, ends = known.starts[keys], known.starts[keys + 1]
        own = ranges(firsts, ends)
        of_keys = np.repeat(np.arange(len(keys)), ends - firsts)
        # Of equal times those of the table come later.
        puts = Puts(
            of_keys, known.times_ms[own], known.steps[own], known.values.take(pa.array(own))
        )
        together = with_puts(earlier, puts, len(keys))
        again = Asks(of_asks, asks.times_ms[late], asks.steps[late], asks.horizons_ms[late])
        places, _ = as_of(together, again)
        met = together.values.take(pa.array(places, mask=places == NOTHING))
        order = np.arange(len(values))
        order[late] = len(values) + np.arange(len(late))
        return pa.concat_arrays([values, met]).take(pa.array(order))

    def _note_asked(self, times_ms: Integers) -> None:
        """Note the time before which nearly none of these look-ups asks."""
        if not len(times_ms):
            return
        few = len(times_ms) // ONE_OF
        first_ms = int(np.partition(times_ms, few)[few])
        before_ms = self._first_asked_ms
        self._first_asked_ms = first_ms if before_ms is None else min(first_ms, before_ms)

    def _without_replaced(
        self, columns: VersionColumns, places: Integers, changed: int
    ) -> VersionColumns:
        """Move versions that were replaced before all look-ups into a run, if they are many."""
        until_ms, runs = self._first_asked_ms, self._runs
        if runs is None or until_ms is None or changed * 2 < self._table.count:
            return columns
        next_ms = np.append(columns.times_ms, 0)[1:]
        is_replaced = next_ms <= until_ms
        is_replaced[np.cumsum(columns.sizes) - 1] = False
        if np.count_nonzero(is_replaced) < runs.least(len(columns.sizes)):
            return columns
        replaced, have_some = columns.where(is_replaced)
        runs.add(replaced, places[have_some], self._table.count, next_ms[is_replaced])
        left, _ = columns.where(~is_replaced)
        return left

    def _forget(self) -> None:
        """Forget all rows; those that are asked for next are read."""
        for known in (self._changed, self._rows, self._numbers, self._new_keys):
            known.clear()
        self._stored, self._met, self._versions = NO_VERSIONS, _NOBODY, _UNKNOWN
        self._places = _NOBODY
        self._first_asked_ms = None

    def _name(self, keys: list[bytes]) -> None:
        """Number the keys that have no number yet, and take their versions from their rows."""
        unnamed = [key for key in dict.fromkeys(keys) if key not in self._numbers]
        if not unnamed:
            return
        first = len(self._numbers)
        self._numbers.update(zip(unnamed, range(first, 1 << 62), strict=False))
        places = self._table.places_of(unnamed, len(unnamed))
        self._places = np.concatenate([self._places, places])
        self._read_rows(np.unique(places).tolist())
        stored = self._stored
        found = pc.index_in(stored.keys, value_set=pa.array(unnamed, pa.large_binary()))
        of_stored = pc.fill_null(found, NOTHING).to_numpy()
        at = np.flatnonzero(of_stored != NOTHING)
        named = of_stored[at]
        self._met[at] = first + named
        order = np.argsort(named)
        at, named = at[order], named[order]
        is_new = np.ones(len(unnamed), np.bool_)
        is_new[named] = False
        new = np.flatnonzero(is_new)
        for number, place in zip(new.tolist(), places[new].tolist(), strict=True):
            self._new_keys[place].append(unnamed[number])
        sizes = np.zeros(len(unnamed), np.int64)
        sizes[named] = stored.sizes[at]
        taken = versions_of(stored.sizes, at)
        known = self._versions
        self._versions = Versions(
            np.concatenate([known.starts, known.starts[-1] + np.cumsum(sizes)]),
            np.concatenate([known.times_ms, stored.times_ms[taken]]),
            np.concatenate([known.steps, np.full(len(taken), BEFORE)]),
            pa.concat_arrays([known.values, stored.values.take(pa.array(taken))]),
        )

    def _put(self, puts: NewVersions) -> None:
        if not len(puts.keys):
            return
        of_keys = self._numbers_of(puts.keys)
        self._note_changed(of_keys)
        values = pa.array(puts.values, pa.large_binary())
        new = Puts(of_keys, puts.times_ms, puts.steps, values)
        self._versions = with_puts(self._versions, new, len(self._numbers))

    def _note_changed(self, numbers: Integers) -> None:
        """Have the next save write the rows of these keys, which are read."""
        self._changed.update(np.unique(self._places[numbers]).tolist())

    def _numbers_of(self, keys: Objects) -> Integers:
        """Return the numbers of keys that are named."""
        return np.fromiter(map(self._numbers.__getitem__, keys.tolist()), np.int64, len(keys))

    def _read_rows(self, places: list[int]) -> None:
        """Read these rows, unless they were read already."""
        unread = [place for place in places if place not in self._rows]
        rows = dict(zip(unread, self._table.get_all(unread), strict=True))
        found = {place: row for place, row in rows.items() if row is not None}
        columns, row_keys = decode_version_rows([*found.values()])
        first_keys = columns.keys.take(pa.array(np.cumsum(row_keys) - row_keys))
        self._table.refuse_misplaced(dict(zip(found, first_keys.to_pylist(), strict=True)))
        first = len(self._stored.sizes)
        ends = iter((first + np.cumsum(row_keys)).tolist())
        for place, row in rows.items():
            end = first if row is None else next(ends)
            self._rows[place] = first, end
            first = end
        if len(row_keys):
            self._stored = VersionColumns.together([self._stored, columns])
            unmet = np.full(len(columns.sizes), NOTHING)
            self._met = np.concatenate([self._met, unmet])

    def _keys_of(self, places: list[int]) -> tuple[pa.LargeBinaryArray, Integers, Integers]:
        """Return the keys of these rows in order, where each one's versions are, and its row.

        A number below that of stored keys is the place of one; a higher one is that of a named key.
        """
        firsts, ends = np.array([self._rows[place] for place in places], np.int64).reshape(-1, 2).T
        at = ranges(firsts, ends)
        stored_count = len(self._met)
        met = self._met[at]
        sources = np.where(met == NOTHING, at, stored_count + met)
        rows = np.repeat(places, ends - firsts)
        keys = self._stored.keys.take(pa.array(at))
        new, befores, new_rows = self._new_keys_among(places)
        if not new:
            return keys, sources, rows
        order = np.insert(np.arange(len(at)), befores, len(at) + np.arange(len(new)))
        keys = pa.concat_arrays([keys, pa.array(new, pa.large_binary())]).take(pa.array(order))
        numbers = np.fromiter(map(self._numbers.__getitem__, new), np.int64, len(new))
        sources = np.insert(sources, befores, stored_count + numbers)
        return keys, sources, np.insert(rows, befores, new_rows)

    def _new_keys_among(self, places: list[int]) -> tuple[list[bytes], Integers, Integers]:
        """Return the put keys that are not in their rows, before which ones they go, and rows."""
        sizes, numbers = np.diff(self._versions.starts).tolist(), self._numbers
        new: list[bytes] = []
        befores: list[int] = []
        rows: list[int] = []
        before = 0
        for place in places:
            first, end = self._rows[place]
            put = [key for key in self._new_keys.get(place, ()) if sizes[numbers[key]]]
            if put:
                put.sort()
                row_keys = self._stored.keys.slice(first, end - first).to_pylist()
                new += put
                befores += [before + bisect_left(row_keys, key) for key in put]
                rows += repeat(place, len(put))
            before += end - first
        return new, np.array(befores, np.int64), np.array(rows, np.int64)

    def _remembered(
        self, keys: pa.LargeBinaryArray, sources: Integers, rows: Integers, horizon_ms: int
    ) -> tuple[VersionColumns, Integers]:
        """Return keys and versions that an answer may still need, and the row of each key."""
        stored, met = self._stored, self._versions
        sizes = np.concatenate([stored.sizes, np.diff(met.starts)])
        times_ms = np.concatenate([stored.times_ms, met.times_ms])
        values = pa.concat_arrays([stored.values, met.values])
        at = versions_of(sizes, sources)
        starts = np.concatenate([[0], np.cumsum(sizes[sources])])
        is_tombstone = pc.is_null(values).to_numpy(zero_copy_only=False)[at]
        if self._runs is not None:
            is_tombstone &= times_ms[at] < self._runs.from_ms
        keep = remembered(starts, times_ms[at], is_tombstone, horizon_ms)
        sizes = np.diff(np.concatenate([[0], np.cumsum(keep)])[starts])
        is_left = sizes > 0
        kept = at[keep]
        columns = VersionColumns(
            keys.filter(pa.array(is_left)),
            sizes[is_left],
            times_ms[kept],
            values.take(pa.array(kept)),
        )
        return columns, rows[is_left]


def _rows_of(
    columns: VersionColumns, places: Integers, written: list[int]
) -> dict[int, bytes | None]:
    """Return the row of each place; None for a written one that has no key. Places ascend."""
    return {**dict.fromkeys(written), **rows_of(columns, places)}
