"""Changes of tables, one by one or in columns.

A table takes arrivals one by one, or, if it can, all arrivals of a batch at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from headrace.spark_jobs.versioned.arrival import in_order
from headrace.spark_jobs.versioned.records import Records, objects

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from headrace.contracts.record import Record
    from headrace.spark_jobs.versioned.arrival import Arrival, Arrivals
    from headrace.spark_jobs.versioned.records import Integers, Objects
    from headrace.spark_jobs.versioned.replacing import Latest

Updates = Literal["each", "last"]
"""Which changes of a key leave a table: each, or of a batch the last one."""


class Change(NamedTuple):
    """A key's new value beside the one it replaces."""

    cause: int
    """Index, in the batch, of the arrival that caused it."""
    key: bytes
    new: bytes | None
    old: bytes | None
    timestamp_ms: int
    is_latest: bool
    """False for a versioned table's record that comes behind a later one of its key."""
    record: Record
    """The record that caused it, for its headers and its origin."""


class Changes(NamedTuple):
    """The fields of a change, each for all changes."""

    causes: Integers
    keys: Objects
    news: Objects
    olds: Objects
    times_ms: Integers
    are_latest: NDArray[np.bool_]
    records: Records

    @classmethod
    def of(cls, changes: Sequence[Change]) -> Changes:
        """Convert changes into columns."""
        causes, keys, news, olds, times_ms, are_latest, records = (
            zip(*changes, strict=True) if changes else [()] * 7
        )
        return cls(
            np.array(causes, np.int64),
            objects(keys),
            objects(news),
            objects(olds),
            np.array(times_ms, np.int64),
            np.array(are_latest, np.bool_),
            Records.of(records),
        )

    @classmethod
    def of_new(
        cls, causes: Integers, keys: Objects, news: Objects, times_ms: Integers, records: Records
    ) -> Changes:
        """Make changes of which each is the latest, and whose old values are not known."""
        size = len(causes)
        olds, are_latest = np.full(size, None, object), np.ones(size, np.bool_)
        return cls(causes, keys, news, olds, times_ms, are_latest, records)

    @classmethod
    def of_records(cls, causes: Integers, records: Records) -> Changes:
        """Take records as they are for changes."""
        return cls.of_new(causes, records.keys, records.values, records.times_ms, records)

    @classmethod
    def together(cls, pieces: Sequence[Changes]) -> Changes:
        """Join many, one after the other."""
        if len(pieces) < 2:  # noqa: PLR2004 (nothing to join)
            return pieces[0] if pieces else cls.of([])
        together = map(np.concatenate, zip(*(each[:-1] for each in pieces), strict=True))
        return cls._make([*together, Records.together([each.records for each in pieces])])

    def one_by_one(self) -> list[Change]:
        """Return each change."""
        *columns, records = self
        return [*map(Change, *(column.tolist() for column in columns), records)]

    def where(self, which: NDArray[Any]) -> Changes:
        """Return those at some places, or those for which a mask is true."""
        columns = (column[which] for column in self[:-1])
        return Changes._make([*columns, self.records.take(which)])

    def last_alone(self) -> Changes:
        """Leave out each change that a later one of its key replaces; out of order, none does.

        The last one of a key replaces what the first one would.
        """
        latest = np.flatnonzero(self.are_latest)
        firsts, lasts = (latest[places] for places in ends_of(self.keys[latest]))
        if len(lasts) == len(latest):
            return self
        olds = self.olds.copy()
        olds[lasts] = olds[firsts]
        kept = ~self.are_latest
        kept[lasts] = True
        return self._replace(olds=olds).where(kept)


def numbered(keys: Objects) -> tuple[Integers, int]:
    """Return a number for each key, by their first places, and how many keys there are."""
    encoded = pa.array(keys, pa.large_binary()).dictionary_encode()
    return encoded.indices.to_numpy(), len(encoded.dictionary)


def ends_of(keys: Objects) -> tuple[Integers, Integers]:
    """Return the first and the last place of each key."""
    numbers, count = numbered(keys)
    places = np.arange(len(keys))
    firsts, lasts = np.empty((2, count), np.int64)
    # Of two places that go into one slot, numpy keeps the later one.
    lasts[numbers], firsts[numbers[::-1]] = places, places[::-1]
    return firsts, lasts


class OneByOne(Protocol):
    """A table that takes arrivals one by one."""

    def take(self, cause: int, arrival: Arrival) -> Sequence[Change]:
        """Take an arrival; return the changes of this table."""


@runtime_checkable
class AtOnce(Protocol):
    """A table that can take all arrivals of a batch at once."""

    def take_all(self, arrivals: Arrivals) -> Changes:
        """Take arrivals in their order; return the changes of this table.

        If a function of the job fails, its error has the place of the arrival.
        """


@runtime_checkable
class LatestAtOnce(AtOnce, Protocol):
    """One that also tells the latest values of many keys at once.

    Each of its changes has the key of its arrival, and is the latest value of this key from then
    on, unless it says that it is not.
    """

    versioned: bool

    def latest_all(self, keys: Objects) -> Latest:
        """Return the latest value of each key, beside `take_all`; a store never goes both ways."""


def all_changes(table: OneByOne, arrivals: Arrivals) -> Changes:
    """Return all changes of a table by these arrivals."""
    if isinstance(table, AtOnce):
        return table.take_all(arrivals)
    return one_by_one(table, arrivals)


def one_by_one(table: OneByOne, arrivals: Arrivals) -> Changes:
    """Return all changes of a table by these arrivals, taken one by one."""
    with in_order(enumerate(arrivals)) as numbered:
        return Changes.of(
            [change for cause, arrival in numbered for change in table.take(cause, arrival)]
        )
