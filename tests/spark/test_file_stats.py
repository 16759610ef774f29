"""The bounds of a file's columns: as Delta's own writer notes them, and never too narrow."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.spark_jobs.write.file_stats import stats_of

_TIME = pa.timestamp("us", tz="UTC")
_HIGHEST = "\U0010ffff"


def _stats(rows: int = 1 << 20, **columns: pa.Array) -> dict[str, Any]:
    """The bounds of a file with so many rows a group."""
    file = BytesIO()
    pq.write_table(pa.table(columns), file, row_group_size=rows)
    stats: dict[str, Any] = json.loads(stats_of(pq.read_metadata(file)))
    return stats


def test_numbers_have_bounds_over_all_groups_of_rows() -> None:
    stats = _stats(2, n=pa.array([5, -7, None, None, 9, 0]), m=pa.array([None] * 6, pa.int32()))
    assert stats == {
        "numRecords": 6,
        "minValues": {"n": -7},
        "maxValues": {"n": 9},
        "nullCount": {"n": 2, "m": 6},
    }


def test_a_time_is_of_whole_milliseconds_below_it() -> None:
    times = pa.array([-1, 1_700_000_000_123_456], pa.int64()).cast(_TIME)
    stats = _stats(time=times)
    assert stats["minValues"] == {"time": "1969-12-31T23:59:59.999Z"}
    assert stats["maxValues"] == {"time": "2023-11-14T22:13:20.123Z"}


def test_a_time_that_no_calendar_has_leaves_its_column_without_bounds() -> None:
    for far in (253_402_300_800_000_000, -62_135_596_800_000_001, (1 << 63) - 1):
        stats = _stats(time=pa.array([0, far], pa.int64()).cast(_TIME))
        assert (stats["minValues"], stats["nullCount"]) == ({}, {"time": 0})


def test_a_long_text_is_cut_where_it_stays_a_bound() -> None:
    stats = _stats(text=pa.array(["z" * 33, "é" * 40]))
    assert stats["minValues"] == {"text": "z" * 32}
    assert stats["maxValues"] == {"text": "é" * 32 + _HIGHEST}
    assert _stats(text=pa.array(["z" * 32]))["maxValues"] == {"text": "z" * 32}
    assert _stats(text=pa.array(["z" * 32 + _HIGHEST]))["maxValues"] == {}


def test_a_text_of_which_arrow_notes_no_bounds_has_none_with_its_other_groups() -> None:
    stats = _stats(1, text=pa.array(["b", "a" * 10_000, "z" * 10_000]))
    assert (stats["minValues"], stats["maxValues"], stats["nullCount"]) == ({}, {}, {"text": 0})


def test_bytes_that_are_no_text_and_booleans_have_no_bounds() -> None:
    broken = pa.array([b"a", b"\xff"], pa.binary()).view(pa.string())
    stats = _stats(key=broken, deleted=pa.array([True, None]))
    assert (stats["minValues"], stats["maxValues"]) == ({}, {})
    assert stats["nullCount"] == {"key": 0, "deleted": 1}


def test_the_first_columns_alone_have_bounds() -> None:
    stats = _stats(**{f"c{number}": pa.array([number]) for number in range(40)})
    assert [*stats["minValues"]] == [f"c{number}" for number in range(32)]
