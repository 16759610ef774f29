"""What a record of a repartition topic says about where it came from, and what a row of times says.

Behind a repartition the records of many source partitions meet in one, in whatever order they
were read. How late a record is, and what may leave, is a matter of the partitions that they came
from. So a record carries its own partition, its offset there, and how far that partition's stream
time was by then, as the last of its headers; whoever reads it takes the header off. A source
partition that has nothing for a place says its time there all the same, in a row without key and
value.

Integers are big-endian.

headrace.origin     partition (4), offset (8, signed; the smallest number where there is none),
                    stream time (8, signed; -1 for none)
headrace.times      for each source partition that speaks: partition (4), stream time (8, signed),
                    what it says of itself (1): 0 it is awake, 1 it is idle, 2 it is at its end and
                    waited for (`idle: never`)
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
"""Of a record that an older version wrote, which says nothing of where it came from."""
_origin: Final = Struct(">iqq")
_time: Final = Struct(">iqB")
_pack_origin: Callable[..., bytes] = _origin.pack


NO_OFFSET = -(1 << 63)
Origin = tuple[int, int, int]
"""Source partition, offset there or NO_OFFSET, and the time of that partition when it was sent."""


class SourceTime(NamedTuple):
    """What a source partition says of itself."""

    partition: int
    time_ms: int
    state: int
    """AWAKE, IDLE or AT_END."""


def origin_header(partition: int, offset: int | None, time_ms: int) -> tuple[str, bytes]:
    """The header that says it."""
    return ORIGIN_HEADER, _pack_origin(partition, NO_OFFSET if offset is None else offset, time_ms)


def read_origin(headers: Headers) -> Origin | None:
    """What the last header says, None where it says something else."""
    if not headers:
        return None
    name, value = headers[-1]
    if name != ORIGIN_HEADER or value is None or len(value) != _origin.size:
        return None
    return _origin.unpack(value)


def read_origins(records: Sequence[Record]) -> list[Origin] | None:
    """The origins of records that all say it, None where one does not; much faster than each."""
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
    """The headers of a row of times."""
    return ((TIMES_HEADER, b"".join(_time.pack(*time) for time in times)),)


def read_times(record: Record) -> list[SourceTime] | None:
    """The times in a row, None where it is a record as any other."""
    if record.key is not None or record.value is not None or len(record.headers) != 1:
        return None
    ((name, value),) = record.headers
    if name != TIMES_HEADER or value is None or len(value) % _time.size:
        return None
    return [SourceTime(*fields) for fields in _time.iter_unpack(value)]
