"""Versions of many keys in columns: put many at once, and look up many at once.

    keys      0            1      2
    starts    0            3      4      6        one more than there are keys
    times     10  20  20   5      7  9
    values    a   b   c    -      d  e            null is a tombstone
    steps     -1  -1  4    -1     -1 7

Within a key versions stand by time, and versions of equal times by the step in which they were put.
So no put overwrites another within a batch. A look-up has a step, too, so it can tell earlier puts
from later ones: it meets the version that it would have met at its step.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.spark_jobs.versioned.records import Integers

    Mask = NDArray[np.bool_]

BEFORE = -1
"""The step of versions that were put in an earlier batch."""
NOTHING = -1
"""The place of no version; and the number of a key that has none."""


class Versions(NamedTuple):
    """The known versions of some keys; a key is a number here."""

    starts: Integers
    times_ms: Integers
    steps: Integers
    values: pa.LargeBinaryArray


class Puts(NamedTuple):
    """New versions in the order in which they are put."""

    keys: Integers
    times_ms: Integers
    steps: Integers
    values: pa.LargeBinaryArray


class Asks(NamedTuple):
    """Look-ups in any order."""

    keys: Integers
    times_ms: Integers
    steps: Integers
    horizons_ms: Integers
    """The time before which only the latest version of a key can be looked up."""


def with_puts(known: Versions, puts: Puts, keys: int) -> Versions:
    """Add the puts to the known versions, for so many keys.

    Known versions are in order, so only the puts are sorted: there are far fewer of them.
    """
    before = len(known.times_ms)
    starts = np.concatenate([known.starts, np.full(keys + 1 - len(known.starts), before)])
    firsts, lasts = starts[puts.keys], starts[puts.keys + 1] - 1
    behind = _last_until(known.times_ms, firsts, lasts, puts.times_ms)
    # The order is stable, so of equal times the later put comes later.
    sorted_puts = np.lexsort((puts.times_ms, puts.keys))
    at = behind[sorted_puts] + 1 + np.arange(len(sorted_puts))
    order = np.empty(before + len(at), np.int64)
    is_known = np.ones(len(order), np.bool_)
    is_known[at] = False
    order[at] = before + sorted_puts
    order[is_known] = np.arange(before)
    starts[1:] += np.cumsum(np.bincount(puts.keys, minlength=keys))
    values = pa.concat_arrays([known.values, puts.values]).take(pa.array(order))
    times_ms = np.concatenate([known.times_ms, puts.times_ms])
    steps = np.concatenate([known.steps, puts.steps])
    return Versions(starts, times_ms[order], steps[order], values)


def as_of(versions: Versions, asks: Asks) -> tuple[Integers, Mask]:
    """Return the version that each look-up meets, and which look-ups are older than the history.

    Versions from before the horizon are not remembered, except the latest one. A last tombstone is
    not either, so a look-up from before the horizon that meets one is older than the history.
    """
    places = np.full(len(asks.keys), NOTHING)
    is_value = versions.values.is_valid().to_numpy(zero_copy_only=False)
    expired = asks.times_ms < asks.horizons_ms
    known = np.flatnonzero(asks.keys != NOTHING)
    keys, times_ms, steps = asks.keys[known], asks.times_ms[known], asks.steps[known]
    firsts, lasts = versions.starts[keys], versions.starts[keys + 1] - 1
    met = _last_until(versions.times_ms, firsts, lasts, times_ms)
    is_some, is_latest, is_old = met >= firsts, met == lasts, expired[known]
    is_late = np.where(is_old, versions.steps[lasts] > steps, versions.steps[met] > steps)
    places[known] = np.where(is_some & (is_latest | ~is_old), met, NOTHING)
    expired[known] = is_old & ~(is_latest & is_value[lasts])
    # Few look-ups are left: the version that they met, or the latest, was put after them.
    _look_up_in_order(versions, asks, known[is_late & (is_some | is_old)], (places, expired))
    return places, expired


def remembered(starts: Integers, times_ms: Integers, is_tombstone: Mask, horizon_ms: int) -> Mask:
    """Return which versions an answer may still need: of each key those after the horizon, and one.

    A last tombstone before the horizon answers as an unknown key does. A key may have no version.
    """
    is_last = np.zeros(len(times_ms), np.bool_)
    is_last[starts[1:][np.diff(starts) > 0] - 1] = True
    next_ms = np.append(times_ms[1:], 0)
    is_over: Mask = (next_ms <= horizon_ms) | (next_ms == times_ms)
    is_over[is_last] = (is_tombstone & (times_ms < horizon_ms))[is_last]
    return ~is_over


def _last_until(
    times_ms: Integers, firsts: Integers, lasts: Integers, until_ms: Integers
) -> Integers:
    """Return the last place of each range that is not after a time; the one before it if all are.

    It is a binary search that takes each step for all ranges at once.
    """
    found = firsts - 1
    left = lasts - found
    while left.any():
        half = (left + 1) // 2
        fits = times_ms[found + half] <= until_ms
        found = np.where(fits, found + half, found)
        left = np.where(fits, left - half, half - 1)
        left[half == 0] = 0
    return found


def _look_up_in_order(
    versions: Versions, asks: Asks, which: Integers, answers: tuple[Integers, Mask]
) -> None:
    """Put and look up one by one, by step, and correct the answers to these look-ups."""
    places, expired = answers
    ordered = which[np.lexsort((asks.steps[which], asks.keys[which]))]
    before = NOTHING
    waiting: list[tuple[int, int]] = []
    there: list[tuple[int, int]] = []
    for ask, key, step, time_ms in zip(
        ordered.tolist(),
        asks.keys[ordered].tolist(),
        asks.steps[ordered].tolist(),
        asks.times_ms[ordered].tolist(),
        strict=True,
    ):
        if key != before:
            waiting, there, before = _by_step(versions, key), [], key
        while waiting and waiting[-1][0] < step:
            _, place = waiting.pop()
            insort(there, (int(versions.times_ms[place]), place))
        found = bisect_right(there, (time_ms, len(versions.times_ms))) - 1
        is_latest = bool(there) and found == len(there) - 1
        is_old = time_ms < asks.horizons_ms[ask]
        is_met = found >= 0 and (is_latest or not is_old)
        places[ask] = there[found][1] if is_met else NOTHING
        is_value = is_met and versions.values[places[ask]].is_valid
        expired[ask] = is_old and not is_value


def _by_step(versions: Versions, key: int) -> list[tuple[int, int]]:
    """Return step and place of each version of a key; the one that was put first comes last."""
    start, end = versions.starts[key], versions.starts[key + 1]
    steps = versions.steps[start:end].tolist()
    return sorted(zip(steps, range(start, end), strict=True), reverse=True)
