"""Headers of a repartition topic: where a record came from, and how far source partitions are.

Behind a repartition, one partition holds records of many source partitions, in whatever order the
first hop read them. Whether a record is late, and which records may leave, depends on the partition
that it came from. So a place is told of each record its source partition, its offset there, and
the stream time of that partition at that moment. Records of one source partition mostly come in
runs. A row without key and value stands before a run and says all of that about the records of the
run, which are as they came. A record that stands alone carries its origin in its last header, and
the reader takes the header off. A source partition that has no record for a place still sends its
time there, in a row without key and value.

A run ends with the batch of the producer in which it stands, whatever its row announces: the writer
does not know beforehand how many records the batch will take. So whoever reads batches cuts the
announcement (`within`), and whoever begins inside of a run gives each record its own header
(`origin_header`).

Integers are big-endian.

headrace.origin     partition (4), offset (8, signed; the smallest number where there is none),
                    stream time (8, signed; -1 for none)
headrace.run        partition (4); the offset (8) of each record of the run; then the stream time
                    (8) at each; as above
headrace.times      for each source partition that speaks: partition (4), stream time (8, signed),
                    its state (1): 0 it is awake, 1 it is idle, 2 it is at its end and waited for
                    (`idle: never`)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat, starmap
from operator import itemgetter
from struct import Struct, pack, unpack_from
from typing import Final, NamedTuple

from headrace.contracts.record import Headers, Record

ORIGIN_HEADER = "headrace.origin"
RUN_HEADER = "headrace.run"
RUN_RECORD_BYTES = 16
"""A run's row has so much for each of its records."""
TIMES_HEADER = "headrace.times"
AWAKE, IDLE, AT_END = range(3)
UNKNOWN_PARTITION = -1
"""The partition of a record that an older version wrote without an origin."""
_origin: Final = Struct(">iqq")
_time: Final = Struct(">iqB")
TIME_BYTES: Final = _time.size
"""A row of times has so much for each source partition."""
_partition: Final = Struct(">i")
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


def run_headers(origins: Sequence[Origin]) -> Headers:
    """Return the headers of the row before a run: records of one partition, in their order."""
    offsets, times_ms = map(_offset_of, origins), map(_time_of, origins)
    layout = f">i{2 * len(origins)}q"
    return ((RUN_HEADER, pack(layout, origins[0][0], *offsets, *times_ms)),)


def read_run(record: Record) -> list[Origin] | None:
    """Return the origins of the records behind a row, None if it is not the row of a run."""
    run = None if record[0] is not None or record[1] is not None else _run_in(record[3])
    if run is None:
        return None
    value, count = run
    partition, *fields = unpack_from(f">i{2 * count}q", value)
    return list(zip(repeat(partition, count), fields[:count], fields[count:], strict=True))


def read_run_times(record: Record) -> tuple[int, list[int]] | None:
    """Return the source partition of the records behind a row, and its stream time with each."""
    run = None if record[0] is not None or record[1] is not None else _run_in(record[3])
    if run is None:
        return None
    value, count = run
    (partition,) = _partition.unpack_from(value)
    return partition, list(unpack_from(f">{count}q", value, _partition.size + 8 * count))


def within(headers: Headers, records: int) -> Headers:
    """Return a row's headers; a run is cut to the records that stand behind it in its batch."""
    run = _run_in(headers)
    if run is None:
        return headers
    value, count = run
    if count <= records:
        return headers
    times_at = _partition.size + 8 * count
    end, times_end = _partition.size + 8 * records, times_at + 8 * records
    return ((RUN_HEADER, value[:end] + value[times_at:times_end]),)


def _run_in(headers: Headers) -> tuple[bytes, int] | None:
    """Return what the row of a run says, and of how many records; None if it is another row."""
    if len(headers) != 1:
        return None
    ((name, value),) = headers
    if name != RUN_HEADER or value is None:
        return None
    count, rest = divmod(len(value) - _partition.size, RUN_RECORD_BYTES)
    return None if rest else (value, count)


def times_headers(times: Iterable[SourceTime]) -> Headers:
    """Return the headers of a row of times."""
    return ((TIMES_HEADER, b"".join(starmap(_time.pack, times))),)


def times_row(topic: str, to: int, times: Sequence[SourceTime]) -> Record:
    """Return the row by which a partition of a repartition topic is told of times."""
    latest_ms = max(map(_time_of_source, times))
    return Record(None, None, max(0, latest_ms), times_headers(times), topic, to, None)


def read_times(record: Record) -> list[tuple[int, int, int]] | None:
    """Return the fields of each `SourceTime` in a row, None if it is an ordinary record."""
    if record.key is not None or record.value is not None or len(record.headers) != 1:
        return None
    ((name, value),) = record.headers
    if name != TIMES_HEADER or value is None or len(value) % _time.size:
        return None
    return list(_time.iter_unpack(value))


_offset_of, _time_of = itemgetter(1), itemgetter(2)
_time_of_source = itemgetter(1)
