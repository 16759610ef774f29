"""Tables that take a batch of puts at once, in columns, and tell which values they replace.

Their rows are those of `HistoryAtOnce`, which reads and writes only those that a batch touches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.spark_jobs.versioned.at_once import HistoryAtOnce, NewVersions
from headrace.spark_jobs.versioned.records import are_present
from headrace.spark_jobs.versioned.versions import BEFORE, NOTHING, Versions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from headrace.spark_jobs.versioned.records import Integers, Objects

_NEVER_MS = int(np.iinfo(np.int64).min)
_NEVER = np.array([np.iinfo(np.int64).max])


class Latest(NamedTuple):
    """The latest value for each of some keys or changes, and its time."""

    values: Objects
    """None where there is none."""
    times_ms: Integers
    """Before all others where there is none."""

    @classmethod
    def of(cls, values: Objects, times_ms: Integers) -> Latest:
        """Take values and their times; None has no time, for it may be a tombstone."""
        return cls(values, np.where(are_present(values), times_ms, _NEVER_MS))

    @classmethod
    def together(cls, pieces: Sequence[Latest]) -> Latest:
        """Join many, one after the other."""
        return cls._make(map(np.concatenate, zip(*pieces, strict=True)))

    def take(self, which: NDArray[Any]) -> Latest:
        """Return those at some places, or those for which a mask is true."""
        return Latest(self.values[which], self.times_ms[which])


class _Replacing(HistoryAtOnce):
    def latest_of(self, keys: Objects) -> Latest:
        """Return the latest value of each key."""
        self._name(keys.tolist())
        known = self._versions
        last, _ = _lasts(known)
        places = last[self._numbers_of(keys)]
        times_ms = np.append(known.times_ms, _NEVER_MS)  # of `NOTHING`
        return Latest.of(_values_at(known.values, places), times_ms[places])


class ReplacingHistory(_Replacing):
    """A versioned table; the latest version of a key is the one with the highest time."""

    def replace(self, puts: NewVersions) -> tuple[Objects, NDArray[np.bool_]]:
        """Put versions; return the latest value before each, and which are the latest then."""
        self._name(puts.keys.tolist())
        of_keys = self._numbers_of(puts.keys)
        known = self._versions
        before, is_known = _lasts(known)
        sources = before[of_keys]
        befores_ms = np.full(len(of_keys), _NEVER_MS)
        met = is_known[of_keys]
        befores_ms[met] = known.times_ms[sources[met]]
        are_latest = puts.times_ms >= befores_ms
        # Few keys are put twice in a batch.
        for place, last in _repeats(of_keys):
            if are_latest[last]:
                sources[place], befores_ms[place] = len(known.steps) + last, puts.times_ms[last]
            else:
                sources[place], befores_ms[place] = sources[last], befores_ms[last]
            are_latest[place] = puts.times_ms[place] >= befores_ms[place]
        replaced = _values_at(_together(known, puts.values), sources)
        self._put(puts)
        # Look-ups in such a table ask for latest versions alone.
        self._note_asked(_NEVER)
        self._versions = self._versions._replace(steps=_all_before(len(self._versions.steps)))
        return replaced, are_latest


class ReplacingLatest(_Replacing):
    """A table of one version a key, the last that was put, whatever its time."""

    def replace(self, keys: Objects, values: Objects, times_ms: Integers) -> Objects:
        """Put values; return the value before each."""
        self._name(keys.tolist())
        of_keys = self._numbers_of(keys)
        self._note_changed(of_keys)
        known = self._versions
        last, _ = _lasts(known)
        sources = last[of_keys]
        for place, before in _repeats(of_keys):
            sources[place] = len(known.steps) + before
        together = _together(known, values)
        # Of equal keys the last put stands.
        last[of_keys] = len(known.steps) + np.arange(len(of_keys))
        is_there = last != NOTHING
        is_there[is_there] = pc.is_valid(together).to_numpy(zero_copy_only=False)[last[is_there]]
        stands = last[is_there]
        self._versions = Versions(
            np.concatenate([[0], np.cumsum(is_there)]),
            np.concatenate([known.times_ms, times_ms])[stands],
            _all_before(len(stands)),
            together.take(pa.array(stands)),
        )
        return _values_at(together, sources)

    def save_all(self) -> None:
        """Write out the rows that changed; nothing is ever too old."""
        self.save(_NEVER_MS)


def _lasts(versions: Versions) -> tuple[Integers, NDArray[np.bool_]]:
    """Return the place of the last version of each key, and which keys have one."""
    is_known = np.diff(versions.starts) > 0
    return np.where(is_known, versions.starts[1:] - 1, NOTHING), is_known


def _repeats(of_keys: Integers) -> list[tuple[int, int]]:
    """Return each place whose key comes before, and the last place of it, in order."""
    order = np.argsort(of_keys, kind="stable")
    again = np.flatnonzero(of_keys[order[1:]] == of_keys[order[:-1]])
    return [*zip(order[again + 1].tolist(), order[again].tolist(), strict=True)]


def _together(known: Versions, values: Objects) -> pa.LargeBinaryArray:
    return pa.concat_arrays([known.values, pa.array(values, pa.large_binary())])


def _values_at(values: pa.LargeBinaryArray, places: Integers) -> Objects:
    taken = values.take(pa.array(places, mask=places == NOTHING))
    found: Objects = taken.to_numpy(zero_copy_only=False)
    return found


def _all_before(size: int) -> Integers:
    return np.full(size, BEFORE)
