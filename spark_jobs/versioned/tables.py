"""Tables as streams of changes: sources, filters and mapped values, and how to look them up.

A table takes arrivals and returns the changes of its values. The steps above it decide whether it
is *versioned* (rule F1): a versioned store makes it so, a step without a store of its own hands it
on, and a plain store, a join, an aggregation or `stream().toTable()` ends it.

Old values need a store, so a table sends them only if a step below asks for them (`send_old`).
Look-ups need one, too (`make_readable`).
"""

from __future__ import annotations

from functools import update_wrapper
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from headrace.spark_jobs.versioned.arrival import COPIED
from headrace.spark_jobs.versioned.at_once import NewVersions
from headrace.spark_jobs.versioned.changes import Change, Changes
from headrace.spark_jobs.versioned.functions import as_value, each_answer, of_step
from headrace.spark_jobs.versioned.history import (
    LATEST,
    REJECTED,
    PlainStore,
    Store,
    VersionedStore,
)
from headrace.spark_jobs.versioned.records import are_present

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from headrace.contracts.record import Record
    from headrace.spark_jobs.versioned.arrival import Arrival, Arrivals
    from headrace.spark_jobs.versioned.at_once import Answers, LookUps
    from headrace.spark_jobs.versioned.history import Version
    from headrace.spark_jobs.versioned.records import Objects
    from headrace.spark_jobs.versioned.replacing import Latest
    from headrace.spark_jobs.versioned.state import TaskState


class Plain(NamedTuple):
    """A store of the latest value by arrival."""


class Versioned(NamedTuple):
    """A store of all values within retention."""

    retention_ms: int


Storage = Plain | Versioned


class Table(Protocol):
    """A table as the steps below see it."""

    name: str
    versioned: bool
    retention_ms: int | None
    """How far back `values_as_of` looks, None where the table is not versioned."""

    def take(self, cause: int, arrival: Arrival) -> Sequence[Change]:
        """Take an arrival; return the changes of this table."""

    def latest(self, key: bytes) -> Version | None:
        """Return the value by which this table joins."""

    def values_as_of(self, records: Sequence[Record]) -> list[bytes | None]:
        """Return the value for key and time of each stream record; a plain table's latest."""

    def expired(self, records: Sequence[Record], *, all_of_them: bool) -> list[int]:
        """Return the places of stream records that are older than the history of their key.

        With `all_of_them`, also those that meet the latest value of their key nevertheless.
        """

    def send_old(self, *, force: bool) -> bool:
        """Send old values from now on, with `force` by opening a store; return whether it does."""

    def make_readable(self) -> None:
        """Prepare for look-ups."""

    def versioned_stores(self) -> list[VersionedStore]:
        """Return the versioned stores at and above this table."""


def open_store(state: TaskState, name: str, storage: Storage | None) -> Store | None:
    """Open the store that a step was given."""
    if storage is None:
        return None
    if isinstance(storage, Versioned):
        return VersionedStore(state, name, storage.retention_ms)
    return PlainStore(state, name)


class StoredTable:
    """A table that looks up in a store of its own, which it opens when it must."""

    def __init__(self, state: TaskState, name: str, storage: Storage | None) -> None:
        self.name = name
        self.versioned = isinstance(storage, Versioned)
        self.retention_ms = storage.retention_ms if isinstance(storage, Versioned) else None
        self._state = state
        self._store = open_store(state, name, storage)
        self._sends_old = False

    def latest(self, key: bytes) -> Version | None:
        """Return the latest value."""
        return self._readable().latest(key)

    def values_as_of(self, records: Sequence[Record]) -> list[bytes | None]:
        """Return the value for key and time of each record."""
        return self._readable().values_as_of(records)

    def expired(self, records: Sequence[Record], *, all_of_them: bool) -> list[int]:
        """Ask the store."""
        return self._readable().expired(records, all_of_them=all_of_them)

    def send_old(self, *, force: bool) -> bool:
        """Send old values, if there is a store or one may be opened."""
        if force:
            self.make_readable()
        self._sends_old = self._sends_old or self._store is not None
        return self._sends_old

    def make_readable(self) -> None:
        """Open a plain store if there is none."""
        self._readable()

    def versioned_stores(self) -> list[VersionedStore]:
        """Return the store, if it is versioned."""
        return [self._store] if isinstance(self._store, VersionedStore) else []

    def _readable(self) -> Store:
        if self._store is None:
            self._store = PlainStore(self._state, self.name)
        return self._store

    def _accept(self, change: Change) -> Sequence[Change]:
        """Put a change without its old value; return it with that, unless the store rejects it."""
        store = self._store
        cause, key, new, _, time_ms, _, record = change
        if store is None:
            return (Change(cause, key, new, None, time_ms, is_latest=True, record=record),)
        before = store.latest(key) if self._sends_old else None
        valid_to_ms = store.put(key, new, time_ms)
        if valid_to_ms == REJECTED:
            return ()
        old = None if before is None else before.value
        return (Change(cause, key, new, old, time_ms, valid_to_ms == LATEST, record),)

    def _accept_all(self, changes: Changes) -> Changes:
        """Do as `_accept` for many."""
        if self._store is None:
            return changes
        olds, are_latest, are_accepted = self._store.put_all(
            changes.keys, changes.news, changes.times_ms
        )
        changes = changes._replace(are_latest=are_latest)
        if self._sends_old:
            changes = changes._replace(olds=olds)
        return changes.where(are_accepted)


class Source(StoredTable):
    """A table read from a topic, by `table()` or `stream().toTable()`: they are the same here."""

    def __init__(self, state: TaskState, name: str, number: int, storage: Storage | None) -> None:
        super().__init__(state, name, storage)
        self._input = number
        self._numbers = state.numbers
        self._taken = state.counter(f"{name}:taken")
        self._kept = state.counter(f"{name}:kept")

    def take(self, cause: int, arrival: Arrival) -> Sequence[Change]:
        """Turn a record of this input into a change, unless it has no key (rule A5)."""
        number, record = arrival
        if number != self._input:
            return ()
        self._numbers[self._taken] += 1
        key = record.key
        if key is None:
            self._state.count(f"{self.name}:dropped:null-key")
            return ()
        change = Change(
            cause, key, record.value, None, record.timestamp_ms, is_latest=True, record=record
        )
        accepted = self._accept(change)
        self._numbers[self._kept] += len(accepted)
        return accepted

    def take_all(self, arrivals: Arrivals) -> Changes:
        """Take the arrivals of this input at once."""
        own = np.flatnonzero(arrivals.inputs == self._input)
        keyed = own[are_present(arrivals.records.take(own).keys)]
        self._numbers[self._taken] += len(own)
        self._state.count(f"{self.name}:dropped:null-key", len(own) - len(keyed))
        accepted = self._accept_all(Changes.of_records(keyed, arrivals.records.take(keyed)))
        self._numbers[self._kept] += len(accepted.causes)
        return accepted

    def latest_all(self, keys: Objects) -> Latest:
        """Do as `latest` for many, beside `take_all`."""
        return self._readable().latest_all(keys)

    @property
    def meets_at_once(self) -> bool:
        """Whether `meet` may be called."""
        return self.versioned

    def meet(
        self, arrivals: Arrivals, places: NDArray[np.intp], asked: LookUps, *, all_of_them: bool
    ) -> Answers:
        """Take the arrivals at these places, and answer look-ups, each as of its step.

        No step gets the changes. `all_of_them` is as for `expired`.
        """
        store = self._store
        assert isinstance(store, VersionedStore)
        own = places[np.isin(arrivals.inputs[places], (self._input, COPIED))]
        puts = NewVersions.of(arrivals, own[are_present(arrivals.records.take(own).keys)])
        kept, answers = store.meet(puts, asked, all_of_them=all_of_them)
        self._numbers[self._taken] += len(own) - int(np.count_nonzero(puts.are_copies))
        self._numbers[self._kept] += kept
        self._state.count(f"{self.name}:dropped:null-key", len(own) - len(puts.keys))
        return answers


class Restored(StoredTable):
    """`toStream().toTable()`: the parent's changes read as if from a topic, without versions."""

    def __init__(self, state: TaskState, name: str, parent: Table, storage: Storage | None) -> None:
        super().__init__(state, name, storage)
        self._parent = parent

    def take(self, cause: int, arrival: Arrival) -> Sequence[Change]:
        """Return the parent's changes as this table sees them."""
        changes = self._parent.take(cause, arrival)
        return [each for change in changes for each in self._accept(change)]

    def versioned_stores(self) -> list[VersionedStore]:
        """Return its own versioned stores and those above."""
        return super().versioned_stores() + self._parent.versioned_stores()


class Derived:
    """A table that computes each value from its parent's: filter and mapped values.

    Without a store it looks up in its parent and computes on the fly.
    """

    def __init__(
        self,
        state: TaskState,
        name: str,
        parent: Table,
        compute: Callable[[bytes, bytes], bytes | None],
        storage: Storage | None,
    ) -> None:
        self.name = name
        self._parent = parent
        self._compute = of_step(name, compute, as_value)
        self._store = open_store(state, name, storage)
        self._sends_old = False
        if storage is None:
            self.versioned = parent.versioned
            self.retention_ms = parent.retention_ms
        else:
            self.versioned = isinstance(storage, Versioned)
            self.retention_ms = storage.retention_ms if isinstance(storage, Versioned) else None

    def take(self, cause: int, arrival: Arrival) -> Sequence[Change]:
        """Return the parent's changes, computed."""
        changes = self._parent.take(cause, arrival)
        return [each for change in changes for each in self._derive(change)]

    @property
    def meets_at_once(self) -> bool:
        """Whether `meet` may be called: this table only computes."""
        parent = self._parent
        return self._store is None and isinstance(parent, Source | Derived) and parent.meets_at_once

    def meet(
        self, arrivals: Arrivals, places: NDArray[np.intp], asked: LookUps, *, all_of_them: bool
    ) -> Answers:
        """Have the parent `meet`, and compute the values of its answers."""
        parent = self._parent
        assert isinstance(parent, Source | Derived)
        answers = parent.meet(arrivals, places, asked, all_of_them=all_of_them)
        keys = [key or b"" for key in asked.keys]
        pairs = zip(keys, answers.values.to_pylist(), strict=True)
        values, failures = each_answer(self._computed, pairs)
        return answers._replace(
            values=pa.array(values, pa.large_binary()), failures={**answers.failures, **failures}
        )

    def latest(self, key: bytes) -> Version | None:
        """Return the latest value."""
        if self._store is not None:
            return self._store.latest(key)
        version = self._parent.latest(key)
        value = None if version is None else self._compute(key, version.value)
        return None if version is None or value is None else version._replace(value=value)

    def values_as_of(self, records: Sequence[Record]) -> list[bytes | None]:
        """Return the value for key and time of each record."""
        if self._store is not None:
            return self._store.values_as_of(records)
        values = self._parent.values_as_of(records)
        return [
            self._computed(record.key or b"", value)
            for record, value in zip(records, values, strict=True)
        ]

    def expired(self, records: Sequence[Record], *, all_of_them: bool) -> list[int]:
        """Ask its store, or its parent."""
        asked = self._parent if self._store is None else self._store
        return asked.expired(records, all_of_them=all_of_them)

    def send_old(self, *, force: bool) -> bool:
        """Send old values: its store knows them, or its parent does."""
        sends = self._store is not None or self._parent.send_old(force=force)
        self._sends_old = self._sends_old or sends
        return self._sends_old

    def make_readable(self) -> None:
        """Prepare the parent for look-ups, if there is no store."""
        if self._store is None:
            self._parent.make_readable()

    def versioned_stores(self) -> list[VersionedStore]:
        """Return its own versioned stores and those above."""
        own = [self._store] if isinstance(self._store, VersionedStore) else []
        return own + self._parent.versioned_stores()

    def _computed(self, key: bytes, value: bytes | None) -> bytes | None:
        return None if value is None else self._compute(key, value)

    def _derive(self, change: Change) -> Sequence[Change]:
        new = self._computed(change.key, change.new)
        old = self._old(change) if self._sends_old else None
        if self._is_needless(new, old):
            return ()
        if self._store is None:
            return (change._replace(new=new, old=old),)
        valid_to_ms = self._store.put(change.key, new, change.timestamp_ms)
        if valid_to_ms == REJECTED:
            return ()
        return (change._replace(new=new, old=old, is_latest=valid_to_ms == LATEST),)

    def _old(self, change: Change) -> bytes | None:
        if self._store is None:
            return self._computed(change.key, change.old)
        before = self._store.latest(change.key)
        return None if before is None else before.value

    def _is_needless(self, new: bytes | None, old: bytes | None) -> bool:  # noqa: ARG002
        return False


class Filtered(Derived):
    """A table that keeps only some values; the others are tombstones."""

    def __init__(
        self,
        state: TaskState,
        name: str,
        parent: Table,
        keeps: Callable[[bytes, bytes], bool],
        storage: Storage | None,
    ) -> None:
        def kept(key: bytes, value: bytes) -> bytes | None:
            return value if keeps(key, value) else None

        super().__init__(state, name, parent, update_wrapper(kept, keeps), storage)
        self._sends_old = parent.send_old(force=False)

    def _is_needless(self, new: bytes | None, old: bytes | None) -> bool:
        # A second tombstone is needless, except in a version history, where it has its own time.
        return new is None and old is None and self._sends_old and not self._parent.versioned
