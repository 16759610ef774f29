"""The bounds of a file's columns, as a Delta log notes them: readers skip files by them.

    {"numRecords": 3, "minValues": {"n": 1}, "maxValues": {"n": 7}, "nullCount": {"n": 0}}

They are those that Arrow has written at the end of the file. Bounds may be wider than the values: a
text is cut, and a time is of whole milliseconds, to which Delta's readers add one at the upper end.
A column without bounds is never skipped.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_COLUMNS_MAX = 32
"""Delta's readers look at so many of the first columns."""
_CHARACTERS_MAX = 32
_HIGHEST_CHARACTER = "\U0010ffff"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_Bounds = tuple[int | str | None, int | str | None]


def stats_of(file: pq.FileMetaData) -> str:
    """Return the bounds of a file, as JSON."""
    lows: dict[str, int | str] = {}
    highs: dict[str, int | str] = {}
    nulls: dict[str, int] = {}
    for place in range(min(file.num_columns, _COLUMNS_MAX)):
        column = file.schema.column(place)
        groups = [file.row_group(at).column(place) for at in range(file.num_row_groups)]
        nulls[column.name] = sum(group.statistics.null_count for group in groups)
        low, high = _bounds_of(groups, column)
        if low is not None and high is not None:
            lows[column.name], highs[column.name] = low, high
    said = {
        "numRecords": file.num_rows,
        "minValues": lows,
        "maxValues": highs,
        "nullCount": nulls,
    }
    return json.dumps(said, separators=(",", ":"))


def _bounds_of(groups: list[Any], column: pq.ColumnSchema) -> _Bounds:
    """Return the bounds of a column in all groups of rows, none where Delta keeps none."""
    kind = column.logical_type.type
    known = [each.statistics for each in groups if each.statistics.null_count < each.num_values]
    # Arrow notes no bounds of long texts.
    if not known or column.physical_type == "BOOLEAN" or not all(one.has_min_max for one in known):
        return None, None
    low = min(one.min_raw for one in known)
    high = max(one.max_raw for one in known)
    if kind == "STRING":
        return _texts(low, high)
    return (_time(low), _time(high)) if kind == "TIMESTAMP" else (low, high)


def _texts(low: bytes, high: bytes) -> _Bounds:
    try:
        first, last = low.decode(), high.decode()
    except UnicodeDecodeError:
        # A key may be any bytes.
        return None, None
    cut = last[:_CHARACTERS_MAX]
    if cut != last:
        if last[_CHARACTERS_MAX] == _HIGHEST_CHARACTER:
            return None, None
        cut += _HIGHEST_CHARACTER
    return first[:_CHARACTERS_MAX], cut


def _time(time_us: int) -> str | None:
    """Return a time in whole milliseconds, None if Python's calendar does not have it."""
    try:
        time = _EPOCH + timedelta(milliseconds=time_us // 1_000)
    except OverflowError:
        return None
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
