"""The changes of two tables by a batch, each beside the other table's latest value at its arrival.

Both tables take the whole batch first. So what a change meets may be replaced in the other table by
then. That is the last of its changes of the key that came before, or else its value from before the
batch:

    arrivals    left a   right x   left b   right y
    meets       before   a         x        b
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.spark_jobs.versioned.changes import Changes
from headrace.spark_jobs.versioned.replacing import Latest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.spark_jobs.versioned.arrival import Arrivals
    from headrace.spark_jobs.versioned.records import Integers, Objects


class Side(NamedTuple):
    """One of the tables."""

    before: Latest
    """The latest values before the batch, one for each of its keys."""
    changes: Changes
    """Its changes that were the latest of their keys, in the order of their arrivals."""


class Meetings(NamedTuple):
    """The changes of both tables in the order of their arrivals."""

    changes: Changes
    are_left: NDArray[np.bool_]
    met: Latest
    """The other table's latest value for each change."""

    def where(self, which: NDArray[Any]) -> Meetings:
        """Return those at some places, or those for which a mask is true."""
        return Meetings(self.changes.where(which), self.are_left[which], self.met.take(which))


class Keys:
    """The keys of a batch, each once, and the ranks of its arrivals.

    Ranks ascend by key, and within a key by arrival; the first one of each key is before the batch.
    """

    def __init__(self, arrivals: Arrivals) -> None:
        encoded = pa.array(arrivals.records.keys, pa.large_binary()).dictionary_encode()
        self.keys: Objects = encoded.dictionary.to_numpy(zero_copy_only=False)
        numbers = encoded.indices.fill_null(0).to_numpy()
        span = len(arrivals) + 1
        self._firsts = np.arange(len(self.keys)) * span
        self._ranks = numbers.astype(np.int64) * span + np.arange(1, span)

    def meet(self, left: Side, right: Side) -> Meetings:
        """Let the changes of both sides meet; of one arrival, that of the left side comes first."""
        changes = Changes.together([left.changes, right.changes])
        met = Latest.together(
            [
                self.as_of(right, left.changes.causes, "left"),
                self.as_of(left, right.changes.causes, "right"),
            ]
        )
        left_count = len(left.changes.causes)
        order = np.argsort(changes.causes, kind="stable")
        return Meetings(changes.where(order), order < left_count, met.take(order))

    def as_of(self, side: Side, causes: Integers, until: Literal["left", "right"]) -> Latest:
        """Return a side's latest value for the key of each cause: before it, or also by it."""
        latest = Latest.together([side.before, Latest.of(side.changes.news, side.changes.times_ms)])
        ranks = np.concatenate([self._firsts, self._ranks[side.changes.causes]])
        order = np.argsort(ranks, kind="stable")
        # One is always there: that before the batch.
        return latest.take(order[np.searchsorted(ranks[order], self._ranks[causes], until) - 1])
