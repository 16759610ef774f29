"""Headers of a repartition topic: where a record came from, and how far source partitions are.

Behind a repartition, one partition holds records of many source partitions, in whatever order the
first hop read them. Whether a record is late, and which records may leave, depends on the partition
that it came from. So each record carries, in its last header, its source partition, its offset
there, and the stream time of that partition at that moment. The reader takes the header off. A
source partition that has no record for a place still sends its time there, in a row without key
and value.

Integers are big-endian.

headrace.origin     partition (4), offset (8, signed; the smallest number where there is none),
                    stream time (8, signed; -1 for none)
headrace.times      for each source partition that speaks: partition (4), stream time (8, signed),
                    its state (1): 0 it is awake, 1 it is idle, 2 it is at its end and waited for
                    (`idle: never`)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from typing import Final, NamedTuple

from headrace.contracts.record import Headers, Record

ORIGIN_HEADER = "headrace.origin"
TIMES_HEADER = "headrace.times"
AWAKE, IDLE, AT_END = range(3)
UNKNOWN_PARTITION = -1
"""The partition of a record that an older version wrote without an origin."""
_origin: Final = Struct(">iqq")
_time: Final = Struct(">iqB")
_pack_origin: Callable[..., bytes] = _origin.pack


NO_OFFSET = -(1 << 63)
Origin = tuple[int, int, int]
"""Source partition, offset there or NO_OFFSET, and that partition's stream time on sending."""


class SourceTime(NamedTuple):
    """How far a source partition is, and in which state."""

    partition: int
    time_ms: int
    state: int
    """AWAKE, IDLE or AT_END."""


def origin_header(partition: int, offset: int | None, time_ms: int) -> tuple[str, bytes]:
    """Return the header that carries a record's origin."""
    return ORIGIN_HEADER, _pack_origin(partition, NO_OFFSET if offset is None else offset, time_ms)


def read_origin(headers: Headers) -> Origin | None:
    """Return the origin in the last header, None where that header is another one."""
    if not headers:
        return None
    name, value = headers[-1]
    if name != ORIGIN_HEADER or value is None or len(value) != _origin.size:
        return None
    return _origin.unpack(value)


def read_origins(records: Sequence[Record]) -> list[Origin] | None:
    """Return the origins of records that all have one, else None; much faster than one by one."""
    try:
        last = [record[3][-1] for record in records]
        values = [value for name, value in last if name == ORIGIN_HEADER]
        packed = b"".join(values)  # type: ignore[arg-type]
    except (IndexError, TypeError):
        return None
    if len(packed) != _origin.size * len(records) or set(map(len, values)) != {_origin.size}:  # type: ignore[arg-type]
        return None
    return list(_origin.iter_unpack(packed))


def times_headers(times: Iterable[SourceTime]) -> Headers:
    """Return the headers of a row of times."""
    return ((TIMES_HEADER, b"".join(_time.pack(*time) for time in times)),)


def read_times(record: Record) -> list[SourceTime] | None:
    """Return the times in a row, None if it is an ordinary record."""
    if record.key is not None or record.value is not None or len(record.headers) != 1:
        return None
    ((name, value),) = record.headers
    if name != TIMES_HEADER or value is None or len(value) % _time.size:
        return None
    return [SourceTime(*fields) for fields in _time.iter_unpack(value)]
