"""Counts by size: how often a commit took how long, how often it had how many records.

Sums are whole numbers. A sum of fractions could become a little less when a task leaves and the
order of the addends changes, and Prometheus takes that for a restart.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

COMMIT_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
COMMIT_RECORDS = (1.0, 10.0, 100.0, 1_000.0, 5_000.0, 10_000.0, 20_000.0, 50_000.0, 100_000.0)


@dataclass(frozen=True, slots=True)
class HistogramSnapshot:
    """A histogram as it was at one moment."""

    bounds: tuple[float, ...]
    """The upper bound of each bucket but the last, which has none; a bound is in its bucket."""
    counts: tuple[int, ...]
    """How many fell into each bucket, one more than there are bounds."""
    sum_millionths: int

    def plus(self, other: HistogramSnapshot) -> HistogramSnapshot:
        """Both together; their bounds are the same."""
        assert self.bounds == other.bounds
        counts = tuple(map(int.__add__, self.counts, other.counts))
        sum_millionths = self.sum_millionths + other.sum_millionths
        return HistogramSnapshot(self.bounds, counts, sum_millionths)


class Histogram:
    """Takes one number at a time."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """Begin empty."""
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum_millionths = 0

    def take(self, number: float) -> None:
        """One more number."""
        self._counts[bisect_left(self._bounds, number)] += 1
        self._sum_millionths += round(number * 1_000_000)

    def snapshot(self) -> HistogramSnapshot:
        """Return the counts until now."""
        return HistogramSnapshot(self._bounds, tuple(self._counts), self._sum_millionths)
