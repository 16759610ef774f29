"""The columns of a task's rows. Every format ever written stays readable for ever (`row_bytes`).

    kind 1  versions       keys (bytes) | versions of each key (integers)
                           | timestamps (integers) | values (bytes, null is a tombstone)
            Keys ascend, and within a key the timestamps do. A plain table's row has one version
            for each key.
    kind 2  held           timestamps | arrivals | partitions | offsets (integers)
                           | topic numbers (integers) | topics (bytes, UTF-8)
                           | keys | values | headers (bytes)
            Rows ascend by timestamp, then arrival. The offset of a record that never stood in a
            topic is the smallest i64. Headers: name length (u32) | name (UTF-8) | value length
            (i32, -1 is null) | value, for each.
    kind 3  subscriptions  foreign keys | primary keys | marks (bytes)
            Rows ascend by foreign key, then primary key. A mark tells left values apart.
    kind 4  numbers        names (bytes, UTF-8) | values (integers)
            Of format 2 where tables note how many rows they have (`table_rows`), and of format 3
            where they have runs (`runs`), so that a version that does not know of them refuses the
            state.
    kind 5  slices         numbers of the slices that hold records (integers)

Timestamps are milliseconds.
"""

from __future__ import annotations

from itertools import accumulate, pairwise, repeat
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.contracts.record import Headers, Record
from headrace.spark_jobs.versioned.row_bytes import (
    FORMAT,
    FORMAT_OF_RUNS,
    FORMAT_OF_TABLES,
    Kind,
    RowReader,
    row_of,
    stored_parts,
)
from headrace.spark_jobs.versioned.table_rows import PREFIX, RUN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

NO_OFFSET = -(1 << 63)

History = tuple[list[int], list[bytes | None]]
"""One key's timestamps, ascending, and the value that begins at each of them."""

HeldRow = tuple[int, Record]
"""A held record behind its arrival number."""

_u32 = Struct("<I")
_i32 = Struct("<i")


def encode_versions(histories: Mapping[bytes, History]) -> bytes:
    """Encode a bucket of a table; every history has a version or more."""
    keys = sorted(histories)
    times: list[int] = []
    values: list[bytes | None] = []
    counts: list[int] = []
    for key in keys:
        key_times, key_values = histories[key]
        counts.append(len(key_times))
        times += key_times
        values += key_values
    columns = (_present(keys), _integers(counts), _integers(times), _strings(values))
    return row_of(Kind.VERSIONS, columns)


def decode_versions(row: bytes) -> dict[bytes, History]:
    """Decode the histories of one bucket, in key order."""
    reader = RowReader(row, Kind.VERSIONS)
    keys, counts = reader.present(), reader.numbers()
    times, values = reader.integers(), reader.strings()
    reader.finish()
    reader.expect(len(keys) == len(counts), "every key has a count")
    reader.expect(int(counts.sum()) == len(times) == len(values), "every version has a key")
    reader.expect(counts.min(initial=1) > 0, "every key has a version")
    sizes = counts.tolist()
    places = zip(keys, sizes, accumulate(sizes), strict=True)
    return {key: (times[end - n : end], values[end - n : end]) for key, n, end in places}


class HeldColumns(NamedTuple):
    """Held records in columns, by timestamp, then arrival."""

    arrivals: NDArray[np.int64]
    times_ms: NDArray[np.int64]
    partitions: NDArray[np.int64]
    offsets: NDArray[np.int64]
    """`NO_OFFSET` for a record that never stood in a topic."""
    topics: NDArray[np.object_]
    keys: NDArray[np.object_]
    values: NDArray[np.object_]
    headers: NDArray[np.object_] | None
    """None where no record has any."""


def encode_held_columns(held: HeldColumns) -> bytes:
    """Encode a slice of held records."""
    size = len(held.arrivals)
    numbers = {topic: number for number, topic in enumerate(sorted(set(held.topics.tolist())))}
    headers = [b""] * size if held.headers is None else [*map(_encode_headers, held.headers)]
    columns = (
        _integers(held.times_ms),
        _integers(held.arrivals),
        _integers(held.partitions),
        _integers(held.offsets),
        _integers(np.fromiter(map(numbers.__getitem__, held.topics), np.int64, size)),
        _strings([topic.encode() for topic in numbers]),
        _packed(pa.array(held.keys, pa.large_binary())),
        _packed(pa.array(held.values, pa.large_binary())),
        _packed(pa.array(headers, pa.large_binary())),
    )
    return row_of(Kind.HELD, columns)


def decode_held_columns(row: bytes) -> HeldColumns:
    """Decode the held records of one slice."""
    reader = RowReader(row, Kind.HELD)
    times, arrivals = reader.numbers(), reader.numbers()
    partitions, offsets, topic_numbers = reader.numbers(), reader.numbers(), reader.numbers()
    topics = np.array([*(topic.decode() for topic in reader.present()), None], object)
    keys, values, packed = reader.objects(), reader.objects(), reader.present()
    reader.finish()
    columns = (arrivals, partitions, offsets, topic_numbers, keys, values, packed)
    reader.expect(all(len(column) == len(times) for column in columns), "rows are whole")
    reader.expect(
        topic_numbers.min(initial=0) >= 0 and topic_numbers.max(initial=-1) < len(topics) - 1,
        "every topic number has a topic",
    )
    headers = None
    if any(packed):
        headers = np.fromiter(map(_decode_headers, packed), object, len(packed))
    own_topics = topics[topic_numbers]
    return HeldColumns(arrivals, times, partitions, offsets, own_topics, keys, values, headers)


def encode_held(rows: Sequence[HeldRow]) -> bytes:
    """Encode a slice of held records, given by timestamp, then arrival."""
    records = [record for _, record in rows]
    keys, values, times, headers, topics, partitions, offsets = (
        zip(*records, strict=True) if records else [()] * 7
    )
    places = [NO_OFFSET if offset is None else offset for offset in offsets]
    numbers = ([arrival for arrival, _ in rows], times, partitions, places)
    texts = (np.fromiter(each, object, len(rows)) for each in (topics, keys, values, headers))
    columns = (*(np.array(each, np.int64) for each in numbers), *texts)
    return encode_held_columns(HeldColumns._make(columns))


def decode_held(row: bytes) -> list[HeldRow]:
    """Decode the held records of one slice, by timestamp, then arrival."""
    held = decode_held_columns(row)
    size = len(held.arrivals)
    offsets = [None if offset == NO_OFFSET else offset for offset in held.offsets.tolist()]
    headers = [()] * size if held.headers is None else held.headers.tolist()
    records = map(
        Record,
        held.keys.tolist(),
        held.values.tolist(),
        held.times_ms.tolist(),
        headers,
        held.topics.tolist(),
        held.partitions.tolist(),
        offsets,
    )
    return [*zip(held.arrivals.tolist(), records, strict=True)]


def encode_subscriptions(subscribers: Mapping[bytes, Mapping[bytes, bytes]]) -> bytes:
    """Encode a bucket of marks by foreign key, then primary key."""
    foreign: list[bytes] = []
    primary: list[bytes] = []
    marks: list[bytes] = []
    for key in sorted(subscribers):
        own = subscribers[key]
        keys = sorted(own)
        foreign += repeat(key, len(keys))
        primary += keys
        marks += map(own.__getitem__, keys)
    return row_of(Kind.SUBSCRIPTIONS, map(_present, (foreign, primary, marks)))


def decode_subscriptions(row: bytes) -> dict[bytes, dict[bytes, bytes]]:
    """Decode the marks of one bucket, by foreign key, then primary key."""
    reader = RowReader(row, Kind.SUBSCRIPTIONS)
    foreign, primary, marks = reader.present(), reader.present(), reader.present()
    reader.finish()
    reader.expect(len(foreign) == len(primary) == len(marks), "rows are whole")
    first = [at for at, (key, before) in enumerate(pairwise(foreign), 1) if key != before]
    bounds = pairwise(sorted({0, *first, len(foreign)}))
    of_keys = ((foreign[start], slice(start, end)) for start, end in bounds)
    return {key: dict(zip(primary[own], marks[own], strict=True)) for key, own in of_keys}


def encode_numbers(numbers: Mapping[str, int]) -> bytes:
    """Encode the header of a task: stream times and counts, by name."""
    names = sorted(numbers)
    columns = (
        _strings([name.encode() for name in names]),
        _integers([numbers[name] for name in names]),
    )
    tables = [name for name in names if name.startswith(PREFIX)]
    written = FORMAT_OF_TABLES if tables else FORMAT
    return row_of(
        Kind.NUMBERS, columns, FORMAT_OF_RUNS if any(RUN in name for name in tables) else written
    )


def decode_numbers(row: bytes) -> dict[str, int]:
    """Decode the times and counts of a task's header."""
    reader = RowReader(row, Kind.NUMBERS)
    names, values = reader.present(), reader.integers()
    reader.finish()
    reader.expect(len(names) == len(values), "every name has a number")
    return dict(zip((name.decode() for name in names), values, strict=True))


def encode_slices(slices: Iterable[int]) -> bytes:
    """Encode the list of slices of held records."""
    return row_of(Kind.SLICES, (_integers(sorted(slices)),))


def decode_slices(row: bytes) -> list[int]:
    """Decode the list of slices of held records, ascending."""
    reader = RowReader(row, Kind.SLICES)
    slices = reader.integers()
    reader.finish()
    return slices


def _integers(column: Sequence[int] | NDArray[np.int64]) -> bytes:
    return _u32.pack(len(column)) + np.array(column, "<i8").tobytes()


def _present(column: Sequence[bytes]) -> bytes:
    lengths = np.fromiter(map(len, column), "<i4", len(column))
    return b"".join((_u32.pack(len(column)), lengths.tobytes(), *column))


def _strings(column: Sequence[bytes | None]) -> bytes:
    lengths = np.array([-1 if each is None else len(each) for each in column], "<i4")
    return b"".join((_u32.pack(len(column)), lengths.tobytes(), *filter(None, column)))


def _packed(column: pa.LargeBinaryArray) -> bytes:
    lengths, ends, data = stored_parts(column)
    start, end = ends[[0, -1]].tolist()
    return b"".join((_u32.pack(len(column)), lengths, data[start:end]))


def _encode_headers(headers: Headers) -> bytes:
    parts: list[bytes] = []
    for name, value in headers:
        encoded = name.encode()
        parts += (_u32.pack(len(encoded)), encoded, _i32.pack(-1 if value is None else len(value)))
        parts.append(value or b"")
    return b"".join(parts)


def _decode_headers(packed: bytes) -> Headers:
    headers: list[tuple[str, bytes | None]] = []
    place = 0
    while place < len(packed):
        name_end = place + _u32.size + _u32.unpack_from(packed, place)[0]
        name = packed[place + _u32.size : name_end].decode()
        (length,) = _i32.unpack_from(packed, name_end)
        start = name_end + _i32.size
        place = start + max(length, 0)
        headers.append((name, None if length < 0 else packed[start:place]))
    return tuple(headers)
