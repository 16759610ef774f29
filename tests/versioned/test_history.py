"""Stores: what expires, what is rewritten, and keys and times at their limits."""

from __future__ import annotations

import pytest

from headrace.spark_jobs.versioned.history import (
    LATEST,
    REJECTED,
    PlainStore,
    Version,
    VersionedStore,
    forgotten_name,
)
from headrace.spark_jobs.versioned.layout import decode_versions
from headrace.spark_jobs.versioned.state import MemoryRows, TaskState
from tests.versioned.examples import CountedRows, record

FAR_MS = (1 << 62) - 1


def store_over(
    rows: MemoryRows, retention_ms: int = 50, buckets: int = 64
) -> tuple[TaskState, VersionedStore]:
    state = TaskState(rows, buckets)
    return state, VersionedStore(state, "table", retention_ms)


def test_expired_versions_leave_the_row_when_it_is_written() -> None:
    rows = MemoryRows()
    state, store = store_over(rows, buckets=1)
    for time_ms in (1, 2, 30, 40):
        store.put(b"k", b"v%d" % time_ms, time_ms)
    store.put(b"gone", b"v", 1)
    store.put(b"gone", None, 2)
    store.put(b"kept", None, 40)
    store.put(b"z", b"z", 81)
    state.save()
    assert decode_versions(rows["table/0"]) == {
        b"k": ([30, 40], [b"v30", b"v40"]),
        b"kept": ([40], [None]),
        b"z": ([81], [b"z"]),
    }


def test_a_key_put_over_and_over_does_not_grow() -> None:
    rows = MemoryRows()
    state, store = store_over(rows, retention_ms=10, buckets=1)
    for time_ms in range(1000):
        store.put(b"k", b"v", time_ms)
    assert store.as_of(b"k", 989) == Version(b"v", 989, 990)
    assert store.as_of(b"k", 988) is None
    state.save()
    ((times, _),) = decode_versions(rows["table/0"]).values()
    assert len(times) == 11


def test_only_the_buckets_asked_for_are_read_and_the_changed_ones_written() -> None:
    rows = CountedRows()
    state, store = store_over(rows, retention_ms=1000)
    for number in range(500):
        store.put(b"%d" % number, b"v", number)
    state.save()
    rows.forget_counts()
    state, store = store_over(rows, retention_ms=1000)
    assert store.latest(b"7") == Version(b"v", 7, None)
    state.save()
    assert rows.was_written == {"header"}
    assert len([name for name in rows.was_read if name.startswith("table/")]) == 1
    rows.forget_counts()
    state, store = store_over(rows, retention_ms=1000)
    store.put(b"8", b"w", 600)
    state.save()
    assert len(rows.was_written) == 2
    rows.forget_counts()
    state.save()
    assert rows.was_written == {"header"}


def test_the_number_of_buckets_stays_what_it_was() -> None:
    rows = MemoryRows()
    state, store = store_over(rows, buckets=3)
    store.put(b"k", b"v", 1)
    state.save()
    _, again = store_over(rows, buckets=64)
    assert again.latest(b"k") == Version(b"v", 1, None)


def test_an_emptied_bucket_has_no_row() -> None:
    rows = MemoryRows()
    state = TaskState(rows)
    plain = PlainStore(state, "table")
    plain.put(b"k", b"v", 1)
    state.save()
    assert len(rows) == 2
    plain.put(b"k", None, 2)
    state.save()
    assert list(rows) == ["header"]


@pytest.mark.parametrize("key", [b"", b"\x00", b"k" * (1 << 20)], ids=["empty", "zero", "1 MiB"])
def test_any_key_is_a_key(key: bytes) -> None:
    rows = MemoryRows()
    state, store = store_over(rows)
    store.put(key, b"", 1)
    store.put(key, b"v" * (1 << 20), 2)
    state.save()
    _, again = store_over(rows)
    assert again.as_of(key, 1) == Version(b"", 1, 2)
    assert again.values_as_of([record(key, None, 2), record(None, None, 2)]) == [
        b"v" * (1 << 20),
        None,
    ]


def test_a_version_before_one_of_the_last_millisecond_before_the_epoch_is_not_the_latest() -> None:
    _, store = store_over(MemoryRows(), retention_ms=5)
    assert store.put(b"k", b"last", -1) == LATEST
    assert store.put(b"k", b"earlier", -3) == -1


def test_times_before_the_epoch_and_far_ahead() -> None:
    state, store = store_over(rows := MemoryRows(), retention_ms=5)
    assert store.put(b"k", b"early", -6) == LATEST
    assert store.put(b"k", b"too early", -7) == REJECTED
    assert store.put(b"k", b"far", FAR_MS) == LATEST
    assert store.put(b"k", b"now", 1_790_000_000_000) == REJECTED
    state.save()
    state, again = store_over(rows, retention_ms=5)
    assert again.latest(b"k") == Version(b"far", FAR_MS, None)
    assert again.time_ms == FAR_MS
    assert state.numbers["table:dropped:expired"] == 2


def test_put_says_when_the_next_version_begins() -> None:
    _, store = store_over(MemoryRows(), retention_ms=1000)
    assert store.put(b"k", b"50", 50) == LATEST
    assert [store.put(b"k", b"v", time_ms) for time_ms in (40, 45, 30, 45, 50, 60)] == [
        50,
        50,
        40,
        50,
        LATEST,
        LATEST,
    ]


def test_many_are_looked_up_as_one_is() -> None:
    _, store = store_over(MemoryRows())
    for time_ms in (10, 20, 30, 50, 60, 100):
        store.put(b"k", b"v%d" % time_ms, time_ms)
    asked = [(b"k", time_ms) for time_ms in (9, 49, 50, 59, 60, 100, 101)] + [(b"?", 60)]
    versions = [store.as_of(*each) for each in asked]
    found = store.values_as_of([record(key, None, time_ms) for key, time_ms in asked])
    assert found == [version and version.value for version in versions]
    assert found == [None, None, b"v50", b"v50", b"v60", b"v100", b"v100", None]


def test_delete_beyond_retention_answers_nothing() -> None:
    state, store = store_over(MemoryRows())
    store.put(b"k", b"v", 10)
    store.put(b"z", b"z", 100)
    assert store.as_of(b"k", 20) == Version(b"v", 10, None)
    assert store.delete(b"k", 20) is None
    assert store.delete(b"k", 60) == Version(b"v", 10, None)
    state.save()
    assert state.numbers["table:dropped:expired"] == 1


def test_a_plain_store_goes_by_arrival() -> None:
    store = PlainStore(TaskState(MemoryRows()), "table")
    store.put(b"k", b"v9", 9)
    assert store.put(b"k", b"v1", 1) == LATEST
    assert store.latest(b"k") == Version(b"v1", 1, None)
    assert store.values_as_of([record(b"k", None, 0), record(None, None, 0)]) == [b"v1", None]


def test_versions_that_a_shorter_retention_forgot_are_not_known_again() -> None:
    rows = MemoryRows()
    state, store = store_over(rows, retention_ms=10)
    for time_ms in (1, 5, 30):
        store.put(b"k", b"v%d" % time_ms, time_ms)
    state.numbers[forgotten_name("table")] = 20
    state.save()
    _, store = store_over(rows, retention_ms=100)
    assert store.as_of(b"k", 20) == Version(b"v5", 5, 30)
    assert store.as_of(b"k", 19) is None, "who knows what was between"
    assert store.values_as_of([record(b"k", b"", 19)]) == [None]
    assert store.expired([record(b"k", b"", 19)], all_of_them=False) == [0]
    assert store.put(b"k", b"late", 19) == REJECTED
    assert store.put(b"k", b"late", 20) == 30


def test_a_tombstone_before_the_horizon_is_expired_before_and_behind_its_removal() -> None:
    rows = MemoryRows()
    state, store = store_over(rows, retention_ms=10)
    asked = [record(b"gone", b"", 5), record(b"there", b"", 5)]
    store.put(b"gone", None, 4)
    store.put(b"there", b"v", 4)
    store.put(b"other", b"v", 30)
    assert store.expired(asked, all_of_them=False) == [0]
    state.save()
    _, store = store_over(rows, retention_ms=10)
    assert store.expired(asked, all_of_them=False) == [0]
