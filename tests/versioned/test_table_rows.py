"""Rows of tables: where a key is, and how their number grows with the table."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import shake_128
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.errors import StateCorrupt
from headrace.spark_jobs.versioned import layout, row_bytes
from headrace.spark_jobs.versioned.at_once import LookUps, NewVersions
from headrace.spark_jobs.versioned.history import VersionedStore
from headrace.spark_jobs.versioned.layout import decode_numbers, decode_versions, encode_numbers
from headrace.spark_jobs.versioned.records import objects
from headrace.spark_jobs.versioned.state import HEADER, MemoryRows, TaskState
from headrace.spark_jobs.versioned.table_rows import (
    HELD_RATIO,
    ROW_BYTES,
    ROW_BYTES_MIN,
    SCANNED_MIN,
    SCANNED_RATIO,
    SMALL_BYTES,
    TableRows,
    base_of,
    bytes_number,
    rows_for,
    rows_number,
    tables_in,
)
from headrace.spark_jobs.versioned.version_rows import decode_version_rows, encode_version_rows
from tests.versioned.examples import CountedRows

KEYS = [b"%d" % number for number in range(2_000)]
NO_ASKS = LookUps(objects([]), np.zeros(0, np.int64), np.zeros(0, np.int64))


def table_of(count: int, buckets: int = 64) -> TableRows:
    state = TaskState(MemoryRows(), buckets)
    state.numbers[rows_number("table")] = count
    return TableRows(state, "table")


@given(st.integers(1, 200), st.integers(1, 300))
def test_a_further_row_takes_keys_from_one_other_row(buckets: int, more: int) -> None:
    count = base_of(buckets) + more - 1
    before, after = table_of(count, buckets), table_of(count + 1, buckets)
    moved = {before.place_of(key) for key in KEYS if after.place_of(key) != before.place_of(key)}
    assert len(moved) <= 1
    assert all(0 <= after.place_of(key) <= count for key in KEYS)
    assert {after.place_of(key) for key in KEYS if after.place_of(key) != before.place_of(key)} <= {
        count
    }
    assert [*map(after.place_of, KEYS)] == after.places_of(KEYS, len(KEYS)).tolist()


@given(st.integers(1, 500))
def test_a_table_of_an_older_version_keeps_its_places(buckets: int) -> None:
    table = table_of(buckets, buckets)
    assert [*map(table.place_of, KEYS)] == [crc32(key) % buckets for key in KEYS]


def noise(key: bytes) -> bytes:
    """Return bytes that cannot be compressed."""
    return shake_128(key).digest(100)


def same(value: bytes) -> Callable[[bytes], bytes]:
    """Return one value for each key."""
    return lambda _: value


def _put(
    rows: MemoryRows, keys: list[bytes], value_of: Callable[[bytes], bytes], *, at_once: bool
) -> None:
    state = TaskState(rows)
    store = VersionedStore(state, "table", 1_000)
    if at_once:
        times_ms, steps = np.zeros(len(keys), np.int64), np.arange(len(keys))
        values = objects([*map(value_of, keys)])
        new = NewVersions(objects(keys), times_ms, steps, values, np.zeros(len(keys), np.bool_))
        store.meet(new, NO_ASKS, all_of_them=False)
    else:
        for key in keys:
            store.put(key, value_of(key), 0)
    state.save()


both_ways = pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "at once"])


@both_ways
def test_a_small_table_is_one_row_and_a_large_one_has_small_rows(*, at_once: bool) -> None:
    rows = CountedRows()
    _put(rows, KEYS[:20], same(b"v"), at_once=at_once)
    assert set(rows) == {"header", "table/0"}
    _put(rows, KEYS, noise, at_once=at_once)
    sizes = [len(row) for name, row in rows.items() if name != HEADER]
    numbers = decode_numbers(rows[HEADER])
    assert sum(sizes) == numbers[bytes_number("table")]
    assert numbers[rows_number("table")] == sum(sizes) // ROW_BYTES
    assert max(sizes) < 3 * ROW_BYTES
    rows.forget_counts()
    _put(rows, KEYS[:1], same(b"x"), at_once=at_once)
    assert len(rows.was_written) == 2
    assert len([name for name in rows.was_read if name.startswith("table/")]) == 1
    found = {
        key: history
        for name, row in rows.items()
        if name != HEADER
        for key, history in decode_versions(row).items()
    }
    assert sorted(found) == sorted(KEYS)


@both_ways
def test_a_large_table_of_an_older_version_is_split(*, at_once: bool) -> None:
    rows = CountedRows()
    rows["table/0"] = layout.encode_versions({key: ([0], [noise(key)]) for key in KEYS})
    rows[HEADER] = encode_numbers({"buckets": 1})
    assert rows[HEADER][0] == row_bytes.FORMAT
    _put(rows, KEYS[:1], same(b"w"), at_once=at_once)
    numbers = decode_numbers(rows[HEADER])
    assert numbers[rows_number("table")] > 10
    assert rows[HEADER][0] == row_bytes.FORMAT_OF_TABLES, "an older version must not read this"
    state = TaskState(rows)
    store = VersionedStore(state, "table", 1_000)
    assert [version and version.value for version in map(store.latest, KEYS)] == [
        b"w",
        *map(noise, KEYS[1:]),
    ]


def test_a_table_grows_by_so_many_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.spark_jobs.versioned.table_rows.SPLITS_MAX", 5)
    rows = CountedRows()
    counts = []
    for _ in range(4):
        _put(rows, KEYS if not rows else KEYS[:1], noise, at_once=True)
        counts.append(decode_numbers(rows[HEADER])[rows_number("table")])
    assert counts == [6, 11, 16, 21]


@given(st.integers(0, 1 << 30), st.integers(0, 1 << 20))
def test_a_larger_table_has_more_and_smaller_rows(size_bytes: int, more_bytes: int) -> None:
    larger_bytes = size_bytes + more_bytes
    assert rows_for(size_bytes) <= rows_for(larger_bytes)
    for bytes_ in (size_bytes, larger_bytes):
        assert bytes_ // ROW_BYTES <= rows_for(bytes_) <= bytes_ // ROW_BYTES_MIN
    assert rows_for(min(size_bytes, SMALL_BYTES)) == min(size_bytes, SMALL_BYTES) // ROW_BYTES
    assert rows_for(4 * SMALL_BYTES) == 4 * SMALL_BYTES // ROW_BYTES_MIN


@both_ways
def test_a_row_in_the_place_of_another_one_is_refused(*, at_once: bool) -> None:
    rows = MemoryRows()
    _put(rows, KEYS, noise, at_once=True)
    rows["table/1"], rows["table/2"] = rows["table/2"], rows["table/1"]
    with pytest.raises(StateCorrupt, match="`table` is damaged: its keys belong to another row"):
        _put(rows, KEYS, noise, at_once=at_once)


def test_rows_are_scanned_where_most_of_a_state_is_read() -> None:
    rows = CountedRows()
    _put(rows, KEYS, noise, at_once=True)
    scans = []
    everything = decode_numbers(rows[HEADER])[bytes_number("table")]
    asked = everything * SCANNED_MIN // decode_numbers(rows[HEADER])[rows_number("table")]
    spare = SCANNED_RATIO * asked - everything
    assert spare > 0
    for count, held in (
        (12, 0),
        (SCANNED_MIN, 0),
        (SCANNED_MIN, HELD_RATIO * (spare - 1)),
        (SCANNED_MIN, HELD_RATIO * (spare + 1)),
    ):
        state = TaskState(rows)
        state.numbers["join:held:bytes"] = held
        rows.forget_counts()
        found = TableRows(state, "table").get_all(range(count))
        assert found == [rows[f"table/{place}"] for place in range(count)]
        scans.append(rows.scans)
    assert scans == [0, 1, 1, 0]


def test_a_table_that_is_removed_leaves_nothing() -> None:
    rows = MemoryRows()
    _put(rows, KEYS, noise, at_once=True)
    _put(rows, KEYS, noise, at_once=True)
    state = TaskState(rows)
    table = TableRows(state, "table")
    assert sum(row is not None for row in table.all_rows()) == len(rows) - 1
    table.remove()
    assert set(rows) == {HEADER}
    assert not tables_in(state.numbers)


@given(
    st.lists(
        st.dictionaries(
            st.binary(max_size=3),
            st.dictionaries(st.integers(-9, 9), st.none() | st.binary(max_size=3), min_size=1),
            min_size=1,
        ),
        max_size=4,
    )
)
def test_rows_in_columns_are_the_rows_one_by_one(
    given_rows: list[dict[bytes, dict[int, bytes | None]]],
) -> None:
    rows = []
    for histories in given_rows:
        content = {
            key: (sorted(versions), [versions[time_ms] for time_ms in sorted(versions)])
            for key, versions in histories.items()
        }
        rows.append(layout.encode_versions(content))
    columns, row_keys = decode_version_rows(rows)
    assert [*encode_version_rows(columns, row_keys)] == rows
    assert row_keys.tolist() == [len(histories) for histories in given_rows]
    kept = columns.take(np.arange(len(columns.sizes)))
    assert [*encode_version_rows(kept, row_keys)] == rows
