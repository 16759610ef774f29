"""The bytes of rows that several operators write.

Every integer is big-endian. A row's first byte is its format; a reader refuses formats it does
not know, so that it misreads no newer state.

time      8 bytes   milliseconds + 2^63, so that byte order is time order, negative times included

record    1 byte    format, 1
          8 bytes   timestamp_ms, signed
          8 bytes   offset, signed; the smallest number for a record without offset
          4 bytes   partition, signed
          2 bytes   length of the topic in UTF-8
          2 bytes   number of headers
          4 bytes   length of the value, -1 for null
                    topic, value
                    and for each header, in order:
          4 bytes   length of the name in UTF-8
          4 bytes   length of the value, -1 for null
                    name, value
          A record's key is not here: it is part of the row's key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import lru_cache, partial
from struct import Struct
from typing import Any

from headrace.contracts.errors import StateCorrupt, StateLayoutNewer
from headrace.contracts.record import Headers, Record

RECORD_FORMAT = 1
TIME_BIAS = 1 << 63
make_record: Callable[[tuple[Any, ...]], Record] = partial(tuple.__new__, Record)
"""Makes a record of its fields, at half the price of calling `Record` with them."""
_NO_OFFSET = -(1 << 63)
_time = Struct(">Q")
_record = Struct(">BqqiHHi")
_middle = Struct(">iHHi")
_LENGTHS_MAX = 4_096
_ORIGINS_MAX = 16
_topics: dict[bytes, str] = {}
_TOPICS_MAX = 1_000
_header = Struct(">ii")
_pack_time = _time.pack


def pack_time(time_ms: int) -> bytes:
    """Pack a time into eight bytes whose order is time order."""
    return _pack_time(time_ms + TIME_BIAS)


def pack_length_ms(length_ms: int) -> bytes:
    """Pack a length of time."""
    return _pack_time(length_ms)


def unpack_length_ms(row: bytes, start: int = 0) -> int:
    """Unpack the length of time at `start`; refuse zero, since operators divide by it."""
    length_ms = int.from_bytes(row[start : start + 8], "big")
    if len(row) < start + 8 or length_ms == 0:
        message = f"a row of {len(row)} bytes has no length of time at byte {start}"
        raise StateCorrupt(message)
    return length_ms


def unpack_time(row: bytes, start: int = 0) -> int:
    """Unpack the time at `start`."""
    if len(row) < start + _time.size:
        message = f"a row of {len(row)} bytes ends inside a time"
        raise StateCorrupt(message)
    return int.from_bytes(row[start : start + 8], "big") - TIME_BIAS


def unpack_fields(fields: Struct, row: bytes) -> tuple[Any, ...]:
    """Unpack the fields of a row that has nothing else."""
    if len(row) != fields.size:
        message = f"a row that has {fields.size} bytes has {len(row)}"
        raise StateCorrupt(message)
    return fields.unpack(row)


def encode_records(records: Collection[Record]) -> list[bytes]:
    """Encode records, except for their keys, as rows."""
    rows: list[bytes] = []
    # By identity, since all records are alive: a window's results share their headers.
    packed: dict[int, bytes] = {}
    last_topic, last_partition, last_count = "", 0, 0
    packers = _packers_of("", 0, 0)
    for record in records:
        _, value, timestamp_ms, headers, topic, partition, offset = record
        packed_headers = b""
        if headers:
            found = packed.get(id(headers))
            if found is None:
                found = packed[id(headers)] = _encode_headers(headers)
            packed_headers = found
        if value is None or offset is None:
            rows.append(_encode_any(record, packed_headers))
            continue
        # The way of nearly every record: one call packs the whole row, except for its headers.
        count = len(headers)
        if topic != last_topic or partition != last_partition or count != last_count:
            last_topic, last_partition, last_count = topic, partition, count
            packers = _packers_of(topic, partition, count)
        pack, middle = packers[len(value)]
        row = pack(RECORD_FORMAT, timestamp_ms, offset, middle, value)
        rows.append(row + packed_headers if count else row)
    return rows


def _encode_any(record: Record, packed_headers: bytes) -> bytes:
    _, value, timestamp_ms, headers, topic, partition, offset = record
    topic_bytes = topic.encode()
    row = _record.pack(
        RECORD_FORMAT,
        timestamp_ms,
        _NO_OFFSET if offset is None else offset,
        partition,
        len(topic_bytes),
        len(headers),
        -1 if value is None else len(value),
    )
    return row + topic_bytes + (value or b"") + packed_headers


class _Packers(dict[int, tuple[Callable[..., bytes], bytes]]):
    """Maps a value's length to what packs a record of one origin up to its headers, and its middle.

    The middle is all that such records have in common, from the partition to the topic.
    """

    def __init__(self, topic: str, partition: int, header_count: int) -> None:
        super().__init__()
        self._topic = topic.encode()
        self._partition = partition
        self._header_count = header_count

    def __missing__(self, length: int) -> tuple[Callable[..., bytes], bytes]:
        if len(self) >= _LENGTHS_MAX:
            self.clear()
        middle = _middle.pack(self._partition, len(self._topic), self._header_count, length)
        middle += self._topic
        self[length] = Struct(f">Bqq{len(middle)}s{length}s").pack, middle
        return self[length]


@lru_cache(_ORIGINS_MAX)
def _packers_of(topic: str, partition: int, header_count: int) -> _Packers:
    return _Packers(topic, partition, header_count)


def _encode_headers(headers: Headers) -> bytes:
    parts = []
    for name, value in headers:
        name_bytes = name.encode()
        parts.append(_header.pack(len(name_bytes), -1 if value is None else len(value)))
        parts.append(name_bytes)
        if value is not None:
            parts.append(value)
    return b"".join(parts)


def decode_record(key: bytes | None, row: bytes) -> Record:
    """Decode the record with this key and row."""
    require_format(row, RECORD_FORMAT, "record")
    if len(row) < _record.size:
        message = f"a record's row ends after {len(row)} bytes, inside its first fields"
        raise StateCorrupt(message)
    head = _record.unpack_from(row)
    _, timestamp_ms, number, partition, topic_length, header_count, value_length = head
    offset = None if number == _NO_OFFSET else number
    value_at = _record.size + topic_length
    if header_count == 0 and len(row) == value_at + value_length:
        # The way of nearly every record; a null value's length is -1, too short for any row.
        topic = _topic(row[_record.size : value_at])
        return make_record((key, row[value_at:], timestamp_ms, (), topic, partition, offset))
    reader = RowReader(row, _record.size)
    topic = _topic(reader.take(topic_length))
    value = reader.take_nullable(value_length)
    headers = tuple([_decode_header(reader) for _ in range(header_count)])
    reader.require_end()
    return Record(key, value, timestamp_ms, headers, topic, partition, offset)


def _topic(topic_bytes: bytes) -> str:
    """Return a topic's name; records share the same few, and each is kept once."""
    topic = _topics.get(topic_bytes)
    if topic is None:
        if len(_topics) >= _TOPICS_MAX:
            _topics.clear()
        topic = _topics[topic_bytes] = _text(topic_bytes)
    return topic


def _text(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError as problem:
        message = "a record's row has a topic or a header whose name is not text"
        raise StateCorrupt(message) from problem


def _decode_header(reader: RowReader) -> tuple[str, bytes | None]:
    name_length, value_length = _header.unpack(reader.take(_header.size))
    name = _text(reader.take(name_length))
    return name, reader.take_nullable(value_length)


def require_format(row: bytes, known: int, what: str) -> None:
    """Refuse a row that a newer program wrote."""
    if not row or row[0] == 0:
        message = f"a {what}'s row begins with no format"
        raise StateCorrupt(message)
    if row[0] > known:
        message = (
            f"a {what}'s row has format {row[0]}, this program reads up to {known};"
            " upgrade headrace, or delete the state folder to rebuild it from the changelog"
        )
        raise StateLayoutNewer(message)


class RowReader:
    """Takes fields off a row, and refuses one that ends too early or too late."""

    __slots__ = ("_position", "_row")

    def __init__(self, row: bytes, position: int) -> None:
        self._row = row
        self._position = position

    def take(self, length: int) -> bytes:
        """Take the next `length` bytes."""
        end = self._position + length
        if length < 0 or end > len(self._row):
            message = f"a row of {len(self._row)} bytes ends inside a field of {length}"
            raise StateCorrupt(message)
        field = self._row[self._position : end]
        self._position = end
        return field

    def take_nullable(self, length: int) -> bytes | None:
        """Take the next `length` bytes; null where the length is -1."""
        return None if length == -1 else self.take(length)

    def rest(self) -> bytes:
        """Take all bytes that were not taken."""
        return self.take(len(self._row) - self._position)

    def has_more(self) -> bool:
        """Return whether bytes are left."""
        return self._position < len(self._row)

    def require_end(self) -> None:
        """Refuse bytes after the last field."""
        if self._position != len(self._row):
            message = f"a row has {len(self._row) - self._position} bytes after its last field"
            raise StateCorrupt(message)
