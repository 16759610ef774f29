"""The stores behind tables: all versions within retention, or the latest one alone."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from headrace.contracts.record import NO_TIME_MS, Record
from headrace.spark_jobs.versioned.at_once import Answers, LookUps, NewVersions
from headrace.spark_jobs.versioned.layout import History, decode_versions, encode_versions
from headrace.spark_jobs.versioned.records import are_present
from headrace.spark_jobs.versioned.replacing import Latest, ReplacingHistory, ReplacingLatest
from headrace.spark_jobs.versioned.runs import Runs
from headrace.spark_jobs.versioned.state import Buckets, TaskState
from headrace.spark_jobs.versioned.table_rows import TableRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from headrace.spark_jobs.versioned.records import Integers, Objects

_TIMESTAMP_MS = itemgetter(2)
REJECTED = -(1 << 63)
"""`put` returns it if history retention is over, and puts nothing."""
LATEST = REJECTED + 1
"""`put` returns it if the new version is the latest of its key.

Kafka Streams returns -1, which is also the time of a next version that lies a millisecond before
the epoch.
"""


class Version(NamedTuple):
    """One value of a key and the time it holds: `[valid_from_ms, valid_to_ms)`."""

    value: bytes
    valid_from_ms: int
    valid_to_ms: int | None
    """None while no later version is known."""


class VersionedStore:
    """Every version of every key within history retention (rules E1 to E6).

    Time is the largest timestamp ever put, over all keys; the horizon is time less retention. Of
    each key the store keeps the versions after the horizon and the last one before it, since a
    look-up at or after the horizon can meet no other. Older versions are removed when the key is
    put again or its bucket is written; no answer depends on when.
    """

    def __init__(self, state: TaskState, name: str, retention_ms: int) -> None:
        self.retention_ms = retention_ms
        self.follows_progress = False
        """True if the join moves time by progress, so that puts do not (see `stream_table`)."""
        self._numbers = state.numbers
        self._time_name = f"{name}:time_ms"
        self._expired_name = f"{name}:dropped:expired"
        self._expired = self._numbers.get(self._expired_name, 0)
        self._forgotten_ms = self._numbers.get(forgotten_name(name), REJECTED)
        self.time_ms = self._numbers.get(self._time_name, NO_TIME_MS)
        table = TableRows(state, name)
        self._runs = Runs(state, name)
        self._buckets = Buckets(table, decode_versions, encode_versions)
        self._at_once: ReplacingHistory | None = None
        self._open_at_once = partial(ReplacingHistory, table, self._runs)
        state.add(self)

    @property
    def horizon_ms(self) -> int:
        """The time before which only the latest version of a key can be looked up."""
        return max(self.time_ms - self.retention_ms, self._forgotten_ms)

    def put(self, key: bytes, value: bytes | None, timestamp_ms: int) -> int:
        """Add a version (None: a tombstone); return the next one's time, LATEST or REJECTED."""
        horizon_ms = self.horizon_ms
        if timestamp_ms < horizon_ms:
            self._expired += 1
            return REJECTED
        if timestamp_ms > self.time_ms and not self.follows_progress:
            self.time_ms = timestamp_ms
            horizon_ms = self.horizon_ms
        bucket = self._buckets.to_change(key)
        history = bucket.get(key)
        if history is None:
            bucket[key] = ([timestamp_ms], [value])
            return LATEST
        times, values = history
        if timestamp_ms > times[-1]:
            times.append(timestamp_ms)
            values.append(value)
            valid_to_ms = LATEST
        else:
            valid_to_ms = _insert(times, values, timestamp_ms, value)
            if valid_to_ms != LATEST and timestamp_ms < self._runs.until_ms:
                known, _ = self._runs.history_of(key, history, timestamp_ms)
                valid_to_ms = known[bisect_right(known, timestamp_ms)]
        if len(times) > 1 and times[1] <= horizon_ms:
            _forget_before(times, values, horizon_ms)
        return valid_to_ms

    def put_all(
        self, keys: Objects, values: Objects, times_ms: Integers
    ) -> tuple[Objects, NDArray[np.bool_], NDArray[np.bool_]]:
        """Put many at once; return the latest value before each, and two masks.

        The one says which are the latest then, the other one which are not rejected; these alone
        have values before. A store that takes a batch at once must not take or answer anything one
        by one.
        """
        puts = NewVersions(keys, times_ms, np.arange(len(keys)), values, np.zeros(len(keys), bool))
        is_on_time, _ = self._pass(puts)
        olds, are_latest = np.full(len(keys), None, object), np.zeros(len(keys), np.bool_)
        olds[is_on_time], are_latest[is_on_time] = self._replacing().replace(puts.where(is_on_time))
        return olds, are_latest, is_on_time

    def meet(self, puts: NewVersions, asked: LookUps, *, all_of_them: bool) -> tuple[int, Answers]:
        """Take a batch of versions, and answer a batch of look-ups, each as of its step.

        Returns also how many versions were not rejected, without copies. `all_of_them` is as for
        `expired`. A store that takes a batch at once must not take or answer anything one by one.
        """
        is_on_time, horizons_ms = self._pass(puts)
        taken = int(np.count_nonzero(is_on_time & ~puts.are_copies))
        of_asks_ms = horizons_ms[np.searchsorted(puts.steps, asked.steps)]
        answers = self._replacing().meet(puts.where(is_on_time), asked, of_asks_ms)
        if all_of_them:
            is_old = asked.times_ms < of_asks_ms
            answers = answers._replace(expired=is_old & are_present(asked.keys))
        return taken, answers

    def _replacing(self) -> ReplacingHistory:
        if self._at_once is None:
            self._at_once = self._open_at_once()
        return self._at_once

    def _pass(self, puts: NewVersions) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Let time pass by puts; return which are not rejected, and the horizons before each."""
        horizons_ms = self._horizons_ms(puts.times_ms)
        is_on_time = puts.times_ms >= horizons_ms[:-1]
        self._expired += int(np.count_nonzero(~(is_on_time | puts.are_copies)))
        if len(puts.times_ms) and not self.follows_progress:
            self.time_ms = max(self.time_ms, int(puts.times_ms.max()))
        return is_on_time, horizons_ms

    def latest(self, key: bytes) -> Version | None:
        """Return the latest version by time, None if it is a tombstone; it never expires."""
        history = self._buckets.to_read(key).get(key)
        if history is None:
            return None
        value = history[1][-1]
        return None if value is None else Version(value, history[0][-1], None)

    def latest_all(self, keys: Objects) -> Latest:
        """Do as `latest` for many, in a store that takes batches at once."""
        return self._replacing().latest_of(keys)

    def as_of(self, key: bytes, timestamp_ms: int) -> Version | None:
        """Return the version that held at a time; before the horizon only if it is the latest."""
        history = self._buckets.to_read(key).get(key)
        if history is None:
            return None
        if timestamp_ms >= self.horizon_ms:
            history = self._runs.history_of(key, history, timestamp_ms)
        times, values = history
        place = self._place_as_of(times, timestamp_ms)
        value = None if place < 0 else values[place]
        if value is None:
            return None
        valid_to_ms = times[place + 1] if place + 1 < len(times) else None
        return Version(value, times[place], valid_to_ms)

    def values_as_of(self, records: Sequence[Record]) -> list[bytes | None]:
        """Return the value that held for key and time of each record; a null key has none."""
        horizon_ms = self.horizon_ms
        histories = self._buckets.find([record[0] for record in records])
        found: list[bytes | None] = []
        for history, record in zip(histories, records, strict=True):
            if history is None:
                found.append(None)
                continue
            times, values = history
            timestamp_ms = record[2]
            if timestamp_ms >= times[-1]:
                found.append(values[-1])
            elif timestamp_ms < horizon_ms:
                found.append(None)
            else:
                assert record[0] is not None, "a null key has no history"
                times, values = self._runs.history_of(record[0], history, timestamp_ms)
                place = bisect_right(times, timestamp_ms) - 1
                found.append(values[place] if place >= 0 else None)
        return found

    def expired(self, records: Sequence[Record], *, all_of_them: bool) -> list[int]:
        """Return the places of records before the horizon that do not meet the latest value.

        A last tombstone there is as an unknown key: `save` forgets it if its row is written.
        With `all_of_them` also those that meet it: a cold history may know a later version that was
        refused here.
        """
        horizon_ms = self.horizon_ms
        if min(map(_TIMESTAMP_MS, records), default=horizon_ms) >= horizon_ms:
            return []
        old = [place for place, record in enumerate(records) if record[2] < horizon_ms]
        histories = self._buckets.find([records[place][0] for place in old])
        return [
            place
            for place, history in zip(old, histories, strict=True)
            if records[place][0] is not None
            and (
                all_of_them
                or history is None
                or history[1][-1] is None
                or records[place][2] < history[0][-1]
            )
        ]

    def delete(self, key: bytes, timestamp_ms: int) -> Version | None:
        """Put a tombstone; return the version that held at that time before."""
        if timestamp_ms < self.horizon_ms:
            self._expired += 1
            return None
        before = self.as_of(key, timestamp_ms)
        self.put(key, None, timestamp_ms)
        return before

    def save(self) -> None:
        """Write out what changed."""
        self._numbers[self._time_name] = self.time_ms
        if self._expired:
            self._numbers[self._expired_name] = self._expired
        self._runs.forget(self.horizon_ms)
        if self._at_once is not None:
            self._at_once.save(self.horizon_ms)
        self._buckets.save(self._clean)

    def _horizons_ms(self, times_ms: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the horizon before each of these puts, and the one behind them all."""
        if self.follows_progress:
            return np.full(len(times_ms) + 1, self.horizon_ms)
        highest_ms = np.maximum.accumulate(np.concatenate([[self.time_ms], times_ms]))
        horizons_ms: NDArray[np.int64]
        horizons_ms = np.maximum(highest_ms - self.retention_ms, self._forgotten_ms)
        return horizons_ms

    def _place_as_of(self, times: list[int], timestamp_ms: int) -> int:
        if timestamp_ms >= times[-1]:
            return len(times) - 1
        if timestamp_ms < self.horizon_ms:
            return -1
        return bisect_right(times, timestamp_ms) - 1

    def _clean(self, bucket: dict[bytes, History]) -> None:
        horizon_ms = self.horizon_ms
        over: list[bytes] = []
        for key, (times, values) in bucket.items():
            if len(times) > 1 and times[1] <= horizon_ms:
                _forget_before(times, values, horizon_ms)
            # A last tombstone before the horizon answers as an unknown key does.
            if values[-1] is None and times[-1] < min(horizon_ms, self._runs.from_ms):
                over.append(key)
        for key in over:
            del bucket[key]


class PlainStore:
    """The latest version of every key by arrival, whatever its timestamp."""

    def __init__(self, state: TaskState, name: str) -> None:
        table = TableRows(state, name)
        self._buckets = Buckets(table, decode_versions, encode_versions)
        self._at_once: ReplacingLatest | None = None
        self._open_at_once = partial(ReplacingLatest, table)
        state.add(self)

    def put(self, key: bytes, value: bytes | None, timestamp_ms: int) -> int:
        """Set or (None) delete a value; the last arrival is always the latest."""
        bucket = self._buckets.to_change(key)
        if value is None:
            bucket.pop(key, None)
        else:
            bucket[key] = ([timestamp_ms], [value])
        return LATEST

    def put_all(
        self, keys: Objects, values: Objects, times_ms: Integers
    ) -> tuple[Objects, NDArray[np.bool_], NDArray[np.bool_]]:
        """Do as a versioned store: all are the latest then, and none is rejected."""
        olds = self._replacing().replace(keys, values, times_ms)
        return olds, np.ones(len(olds), np.bool_), np.ones(len(olds), np.bool_)

    def latest(self, key: bytes) -> Version | None:
        """Return the last value that was put."""
        history = self._buckets.to_read(key).get(key)
        if history is None:
            return None
        ((timestamp_ms,), (value,)) = history
        return None if value is None else Version(value, timestamp_ms, None)

    def values_as_of(self, records: Sequence[Record]) -> list[bytes | None]:
        """Return the last value of each record's key: a plain table has no time (rule D2)."""
        histories = self._buckets.find([record.key for record in records])
        return [None if history is None else history[1][0] for history in histories]

    def latest_all(self, keys: Objects) -> Latest:
        """Do as `latest` for many, in a store that takes batches at once."""
        return self._replacing().latest_of(keys)

    def expired(self, records: Sequence[Record], *, all_of_them: bool) -> list[int]:  # noqa: ARG002
        """Return no place: the store never knew another value than the latest."""
        return []

    def save(self) -> None:
        """Write out what changed."""
        if self._at_once is not None:
            self._at_once.save_all()
        self._buckets.save()

    def _replacing(self) -> ReplacingLatest:
        if self._at_once is None:
            self._at_once = self._open_at_once()
        return self._at_once


Store = VersionedStore | PlainStore


def forgotten_name(store: str) -> str:
    """Return the name of the number before whose time a store forgot, with a shorter retention."""
    return f"{store}:forgotten_ms"


def _insert(times: list[int], values: list[bytes | None], at_ms: int, value: bytes | None) -> int:
    """Put a version that is not the last, or replaces it; return when the next one begins."""
    place = bisect_left(times, at_ms)
    if times[place] == at_ms:
        values[place] = value
    else:
        times.insert(place, at_ms)
        values.insert(place, value)
    return times[place + 1] if place + 1 < len(times) else LATEST


def _forget_before(times: list[int], values: list[bytes | None], horizon_ms: int) -> None:
    """Forget all versions before the last one at or before the horizon."""
    dead = bisect_right(times, horizon_ms) - 1
    del times[:dead]
    del values[:dead]
