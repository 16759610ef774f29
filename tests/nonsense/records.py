"""Records as anybody may write them: most of a shop's, the others of nobody's."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

from headrace.contracts.dead_letter import (
    EXCEPTION_HEADER,
    PARTITION_HEADER,
    REPLAYS_HEADER,
    TOPIC_HEADER,
)
from headrace.contracts.record import Headers, Record
from headrace.contracts.window import WINDOW_HEADER

TOPIC = "nonsense.raw"
NOW_MS = 1 << 40
_MIB = 1 << 20
_DEPTH = 10_000
_NEVER_MS = (-1, -2, -(1 << 63), (1 << 63) - 1, (1 << 63) - 2, 1 << 62)
_FAR_MS = ((1 << 62) - 1, (1 << 62) - 2, (1 << 53) + 1, NOW_MS * 2)
_NUMBERS = (
    *("NaN", "Infinity", "-Infinity", "1e308", "-1e308", "1e309", "1e-400", "-0", "-0.0", "0.1"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775809", "1" * 400, "9" * 5_000),
    *("1.0", "1.7976931348623157e308", "5e-324", "18446744073709551616", "1E+2", "01", "+1", ".5"),
)
_TEXTS = (
    *(
        r'"\ud800"',
        r'"\udc00\ud800"',
        r'"\u0000"',
        '"\x00"',
        '"\x7f"',
        '"😀"',
        '""',
        '"1"',
        '"true"',
    ),
    *(
        '"2024-01-01T00:00:00Z"',
        '"2024-01-01"',
        '"9999-12-31T23:59:59+14:00"',
        '"0001-01-01T00:00Z"',
    ),
    *('"2024-02-30T00:00:00Z"', '"1e3"', '"' + "x" * 70_000 + '"', '"\\q"', '"unclosed'),
)
_OTHERS = (
    "null",
    "true",
    "false",
    "[]",
    "{}",
    "[1,2",
    '{"a":',
    "nul",
    "[[]]",
    '{"b": 1}',
    "\ufeff1",
)
_WINDOWS = (
    *(b"tumbling:0:3600000", b"session:5:5", b"unlimited:0:9223372036854775807", b"hopping:0:1"),
    *(b"sliding:10:20", b"tumbling:-5:5", b"tumbling:5:-5", b"daily:0:1", b"tumbling", b":::", b""),
    *(b"tumbling:0:99999999999999999999", b"tumbling:%s:1" % (b"9" * 5_000), b"session:--1:2"),
    *(b"tumbling:-9223372036854775808:9223372036854775807", b"tumbling:1e3:2", b"\xff:0:1"),
    *(
        b"session:9223372036854775807:-9223372036854775808",
        "tumbling:٣:٤".encode(),
        b"sliding:1:2:3",
    ),
    *(b"tumbling:0:9223372036854775807", b"tumbling:9223372036854775807:9223372036854775807"),
)
_NAMES = (
    "id",
    "h",
    "",
    "a.b",
    "é",
    "\udcff\udcfe",
    "x\udc80",
    "\x00",
    "n" * 10_000,
    "headrace.",
    "type",
)
_CONTENTS = (None, b"", b"1", b"a", b"\xff\xfe", b"9" * 5_000, b"-1", b"NaN", b"null", "٣".encode())


def stream(rng: Random, count: int, first: int = 0) -> Iterator[Record]:
    """So many records of one partition, in its order."""
    latest_ms = 1_000_000
    for offset in range(first, first + count):
        latest_ms += rng.choice((0, 0, 1, 1, 100, 100, 1_000, 5_000))
        yield _record(rng, latest_ms, offset)


def _record(rng: Random, latest_ms: int, offset: int) -> Record:
    chance = rng.random()
    if chance < 0.0002:
        return _huge(rng, latest_ms, offset)
    strange = chance < 0.4
    return Record(
        _key(rng) if strange and rng.random() < 0.3 else _plain_key(rng),
        _value(rng) if strange and rng.random() < 0.7 else _plain_value(rng),
        _timestamp_ms(rng, latest_ms) if strange else latest_ms - rng.choice((0, 0, 10, 7_000)),
        _headers(rng) if strange and rng.random() < 0.5 else _plain_headers(rng),
        TOPIC,
        0,
        offset,
    )


def _huge(rng: Random, latest_ms: int, offset: int) -> Record:
    """Records larger than anybody thought of: a mebibyte, or more headers than 16 bits count."""
    key, value, headers = _plain_key(rng), _plain_value(rng), _plain_headers(rng)
    match rng.randrange(5):
        case 0:
            key = rng.randbytes(_MIB)
        case 1:
            value = rng.choice((rng.randbytes(_MIB), b'"' + b"x" * _MIB + b'"', b"[" * _MIB))
        case 2:
            headers = (("id", b"1"),) * rng.choice((65_534, 65_535, 65_536, 70_000))
        case 3:
            headers = (("id", rng.randbytes(_MIB)),)
        case _:
            headers = (("n" * _MIB, b""),)
    return Record(key, value, latest_ms, headers, TOPIC, 0, offset)


def _plain_key(rng: Random) -> bytes:
    return b"k%d" % rng.randrange(8)


def _plain_value(rng: Random) -> bytes:
    value = {
        "id": rng.randrange(50),
        "a": rng.choice((0, 1, 2.5, -3, 1_000)),
        "at": 1_000_000 + rng.randrange(10**7),
        "o": {"b": str(rng.randrange(9))},
    }
    return json.dumps(value).encode()


def _plain_headers(rng: Random) -> Headers:
    return (("id", b"%d" % rng.randrange(50)),) if rng.random() < 0.3 else ()


def _key(rng: Random) -> bytes | None:
    return rng.choice(
        (None, b"", b"\0", rng.randbytes(rng.choice((1, 7, 8, 16, 40))), b"5", b"\xff")
    )


def _timestamp_ms(rng: Random, latest_ms: int) -> int:
    if rng.random() < 0.1:
        return rng.choice(_NEVER_MS)
    if rng.random() < 0.002:
        # Such a record makes all that follow late.
        return rng.choice(_FAR_MS)
    return latest_ms - rng.choice((0, 10, 100_000, latest_ms))


def _value(rng: Random) -> bytes | None:
    return rng.choice(_VALUES)(rng)


def _scalar(rng: Random) -> str:
    return rng.choice(rng.choice((_NUMBERS, _TEXTS, _OTHERS)))


def _fields(rng: Random) -> bytes:
    """An object in which any field may be anything, or stand there twice."""
    names = rng.choices(("id", "a", "at", "o", "a"), k=rng.randrange(1, 5))
    inner = (f'"{name}": {_scalar(rng)}' for name in names)
    return ("{" + ", ".join(inner) + "}").encode(errors="surrogatepass")


def _deep(rng: Random) -> bytes:
    opened, closed = rng.choice(((b"[", b"]"), (b'{"a":', b"}"), (b'{"a":[', b"]}")))
    depth = rng.choice((100, 500, 1_000, 1_030, 2_000, _DEPTH))
    return b'{"a": %s1%s}' % (opened * depth, closed * depth)


def _cut(rng: Random) -> bytes:
    """Avro behind a registry's five bytes, of which the end is missing."""
    whole = b"\0" + struct.pack(">I", rng.randrange(5)) + rng.randbytes(30)
    return whole[: rng.randrange(len(whole))]


_VALUES: Sequence[Callable[[Random], bytes | None]] = (
    lambda _: None,
    lambda _: b"",
    lambda rng: rng.randbytes(rng.choice((1, 8, 100, 1_000))),
    lambda rng: b"\0" + rng.randbytes(7),
    lambda rng: rng.choice(_NUMBERS).encode(),
    lambda rng: _scalar(rng).encode(errors="surrogatepass"),
    _fields,
    _fields,
    _fields,
    _deep,
    _cut,
    lambda _: b'{"a": "\xff\xfe"}',
    lambda _: b'{"a": 1, "a": 1e308, "id": 1e308}',
    lambda _: b'{"a": 1e308}',
)


def _headers(rng: Random) -> Headers:
    if rng.random() < 0.5:
        return (*_plain_headers(rng), (WINDOW_HEADER, rng.choice((None, *_WINDOWS))))
    if rng.random() < 0.2:
        long = rng.choice((b"9" * 5_000, b"1", b"-1", b"\xff", None))
        return (
            (EXCEPTION_HEADER, long),
            (PARTITION_HEADER, long),
            (TOPIC_HEADER, long),
            (REPLAYS_HEADER, long),
        )
    names = rng.choices(_NAMES, k=rng.choice((1, 2, 3, 300)))
    return tuple((name, rng.choice(_CONTENTS)) for name in names)


def shown(record: Record) -> Any:
    """A record in a line, for whoever reads what a judge says."""
    return record._replace(
        key=_short(record.key),
        value=_short(record.value),
        headers=tuple((name[:40], _short(content)) for name, content in record.headers[:3]),
    )


def _short(data: bytes | None) -> bytes | None:
    return data if data is None or len(data) < 60 else data[:60] + b"..."
