"""Rows of versions in columns: many rows at once, without an object for each key.

    keys      a  c  |  b            two rows, of which the first has two keys
    sizes     2  1  |  1            the versions of each key
    times     10 20  5  |  7
    values    x  y   -  |  z        null is a tombstone

The bytes are those of `layout`, kind 1, in `row_bytes`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.spark_jobs.versioned.row_bytes import (
    Kind,
    RowReader,
    bytes_column,
    damaged,
    sealed,
    stored_parts,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.spark_jobs.versioned.records import Integers
    from headrace.spark_jobs.versioned.versions import Mask

_I32, _I64 = 4, 8
"""The bytes of a length, and of an integer."""
_u32 = Struct("<I")


class VersionColumns(NamedTuple):
    """The keys of some rows and their versions; within a row the keys ascend."""

    keys: pa.LargeBinaryArray
    sizes: Integers
    times_ms: Integers
    values: pa.LargeBinaryArray

    @classmethod
    def together(cls, pieces: Sequence[VersionColumns]) -> VersionColumns:
        """Join several, one after the other."""
        keys, sizes, times_ms, values = zip(*pieces, strict=True)
        return cls(
            pa.concat_arrays(keys),
            np.concatenate(sizes),
            np.concatenate(times_ms),
            pa.concat_arrays(values),
        )

    def where(self, holds: Mask) -> tuple[VersionColumns, Mask]:
        """Return the versions for which a mask is true, and which keys have any of them."""
        ends = np.cumsum(self.sizes)
        kept = np.concatenate([[0], np.cumsum(holds)])
        sizes = kept[ends] - kept[ends - self.sizes]
        is_left = sizes > 0
        columns = VersionColumns(
            self.keys.filter(pa.array(is_left)),
            sizes[is_left],
            self.times_ms[holds],
            self.values.filter(pa.array(holds)),
        )
        return columns, is_left

    def take(self, order: Integers) -> VersionColumns:
        """Return the same keys in another order."""
        at = versions_of(self.sizes, order)
        return VersionColumns(
            self.keys.take(pa.array(order)),
            self.sizes[order],
            self.times_ms[at],
            self.values.take(pa.array(at)),
        )


NO_VERSIONS = VersionColumns(
    pa.array([], pa.large_binary()),
    np.zeros(0, np.int64),
    np.zeros(0, np.int64),
    pa.array([], pa.large_binary()),
)


def decode_version_rows(rows: Sequence[bytes]) -> tuple[VersionColumns, Integers]:
    """Decode rows one after the other; return also how many keys each of them has."""
    if not rows:
        return NO_VERSIONS, np.zeros(0, np.int64)
    stored = [_stored(row) for row in rows]
    key_lengths, keys, sizes, times_ms, value_lengths, values = map(
        b"".join, zip(*stored, strict=True)
    )
    columns = VersionColumns(
        bytes_column(key_lengths, keys),
        np.frombuffer(sizes, "<i8").astype(np.int64, copy=False),
        np.frombuffer(times_ms, "<i8").astype(np.int64, copy=False),
        bytes_column(value_lengths, values),
    )
    row_keys = np.array([len(each[0]) for each in stored]) // _I32
    row_versions = np.array([len(each[3]) for each in stored]) // _I64
    last = np.cumsum(row_keys)
    ends = np.concatenate([[0], np.cumsum(columns.sizes)])
    if row_keys.min(initial=1) <= 0:
        raise damaged(Kind.VERSIONS, "it has a key")
    if columns.keys.null_count:
        raise damaged(Kind.VERSIONS, "nothing is null")
    if columns.sizes.min(initial=1) <= 0:
        raise damaged(Kind.VERSIONS, "every key has a version")
    if not np.array_equal(ends[last] - ends[last - row_keys], row_versions):
        raise damaged(Kind.VERSIONS, "every version has a key")
    return columns, row_keys


def encode_version_rows(columns: VersionColumns, row_keys: Integers) -> Iterator[bytes]:
    """Yield the rows of so many keys each."""
    key_lengths, key_ends, keys = stored_parts(columns.keys)
    value_lengths, value_ends, values = stored_parts(columns.values)
    sizes = memoryview(columns.sizes.astype("<i8").tobytes())
    times_ms = memoryview(columns.times_ms.astype("<i8").tobytes())
    ends = np.concatenate([[0], np.cumsum(row_keys)])
    version_ends = np.concatenate([[0], np.cumsum(columns.sizes)])[ends]
    key_bounds, value_bounds = key_ends[ends].tolist(), value_ends[version_ends].tolist()
    bounds = zip(ends.tolist(), version_ends.tolist(), key_bounds, value_bounds, strict=True)
    first, version, key_byte, value_byte = next(bounds)
    for end, version_end, key_end, value_end in bounds:
        count, versions = _u32.pack(end - first), _u32.pack(version_end - version)
        plain = b"".join(
            (
                count,
                key_lengths[first * _I32 : end * _I32],
                keys[key_byte:key_end],
                count,
                sizes[first * _I64 : end * _I64],
                versions,
                times_ms[version * _I64 : version_end * _I64],
                versions,
                value_lengths[version * _I32 : version_end * _I32],
                values[value_byte:value_end],
            )
        )
        yield sealed(Kind.VERSIONS, plain)
        first, version, key_byte, value_byte = end, version_end, key_end, value_end


def rows_of(columns: VersionColumns, places: Integers) -> dict[int, bytes]:
    """Return the row of each place that has a key; places ascend."""
    firsts = np.flatnonzero(np.diff(places, prepend=-1))
    row_keys = np.diff(firsts, append=len(places))
    rows = encode_version_rows(columns, row_keys)
    return dict(zip(places[firsts].tolist(), rows, strict=True))


def ranges(starts: Integers, ends: Integers) -> Integers:
    """Return all places of these ranges, one range after the other."""
    sizes = ends - starts
    behind = np.cumsum(sizes)
    total = int(behind[-1]) if len(behind) else 0
    places: Integers = np.arange(total) + np.repeat(starts - (behind - sizes), sizes)
    return places


def versions_of(sizes: Integers, keys: Integers) -> Integers:
    """Return the places of the versions of some keys, where each key has so many."""
    ends = np.cumsum(sizes)[keys]
    return ranges(ends - sizes[keys], ends)


def _stored(row: bytes) -> tuple[bytes, bytes, bytes, bytes, bytes, bytes]:
    """Return the columns of a row as they are stored."""
    reader = RowReader(row, Kind.VERSIONS)
    key_lengths, keys = reader.stored_bytes()
    sizes, times_ms = reader.stored_numbers(), reader.stored_numbers()
    value_lengths, values = reader.stored_bytes()
    reader.finish()
    reader.expect(len(key_lengths) * 2 == len(sizes), "every key has a count")
    reader.expect(len(value_lengths) * 2 == len(times_ms), "every version has a value")
    return key_lengths, keys, sizes, times_ms, value_lengths, values
