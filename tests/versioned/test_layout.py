"""Bytes once written stay readable, and damaged ones are never read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from struct import pack
from typing import Any
from zlib import crc32

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.errors import StateCorrupt, StateLayoutNewer
from headrace.contracts.record import Record
from headrace.spark_jobs.versioned import layout, row_bytes
from headrace.spark_jobs.versioned.version_rows import decode_version_rows

GOLDEN = Path(__file__).parents[1] / "formats" / "versioned"
FAR_MS = (1 << 63) - 1
HEADERS = (("id", b"7"), ("é", None), ("id", b""))

CONTENT: dict[str, tuple[Callable[[Any], bytes], Callable[[bytes], Any], Any]] = {
    "versions": (
        layout.encode_versions,
        layout.decode_versions,
        {
            b"": ([-5, 0, FAR_MS], [b"before", None, b"far"]),
            b"a": ([1_790_000_000_000], [b""]),
            b"a\x00": ([3], [None]),
        },
    ),
    "held": (
        layout.encode_held,
        layout.decode_held,
        [
            (1, Record(b"k", b"v", -5, (), "clicks", 0, 12)),
            (1 << 40, Record(b"", b"", 7, HEADERS, "ökonom", 3, None)),
            ((1 << 40) + 1, Record(b"k", b"w", FAR_MS, (), "clicks", 0, 13)),
        ],
    ),
    "subscriptions": (
        layout.encode_subscriptions,
        layout.decode_subscriptions,
        {b"": {b"p": b"m" * 16}, b"x": {b"": b"1" * 16, b"p": b"2" * 16}},
    ),
    "numbers": (
        layout.encode_numbers,
        layout.decode_numbers,
        {"buckets": 64, "join:time_ms": -1, "tätig": FAR_MS},
    ),
    "slices": (layout.encode_slices, layout.decode_slices, [-3, 0, 1 << 40]),
}
NEWEST = {"slices": row_bytes.FORMAT, "numbers": row_bytes.FORMAT_OF_RUNS}
"""The newest formats, of kinds of which it is not the second one."""
OF_TABLES = {"buckets": 64, "buckets:join:rows": 5, "buckets:join:bytes": 1 << 40}
OF_RUNS = OF_TABLES | {
    "buckets:join:run:2:rows": 3,
    "buckets:join:run:2:bytes": 1 << 30,
    "buckets:join:run:2:from_ms": -1,
    "buckets:join:run:2:until_ms": FAR_MS,
}
every_kind = pytest.mark.parametrize("kind", CONTENT)
every_golden_row = pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN.iterdir()))


@every_kind
def test_rows_of_format_1_are_read(kind: str) -> None:
    _, decode, content = CONTENT[kind]
    assert decode((GOLDEN / f"1-{kind}.bin").read_bytes()) == content


@every_kind
def test_rows_are_written_in_format_1(kind: str) -> None:
    encode, _, content = CONTENT[kind]
    assert encode(content) == (GOLDEN / f"1-{kind}.bin").read_bytes()


def test_numbers_that_note_tables_are_of_format_2() -> None:
    row = (GOLDEN / "2-numbers.bin").read_bytes()
    assert layout.decode_numbers(row) == OF_TABLES
    assert layout.encode_numbers(OF_TABLES) == row


def test_numbers_that_note_runs_are_of_format_3() -> None:
    row = (GOLDEN / "3-numbers.bin").read_bytes()
    assert layout.decode_numbers(row) == OF_RUNS
    assert layout.encode_numbers(OF_RUNS) == row


def _many(kind: str) -> Any:
    """Content that is long enough to be compressed."""
    keys = [b"k%d" % number for number in range(40)]
    return {
        "versions": {key: ([1, 2], [b"v" * 9, None]) for key in sorted(keys)},
        "held": [
            (at, Record(key, b"v", at, HEADERS, "clicks", 0, at)) for at, key in enumerate(keys)
        ],
        "subscriptions": {key: {key: b"m" * 16} for key in sorted(keys)},
    }[kind]


compressed = pytest.mark.parametrize("kind", ["versions", "held", "subscriptions"])


@compressed
def test_rows_of_format_2_are_read(kind: str) -> None:
    _, decode, _ = CONTENT[kind]
    assert decode((GOLDEN / f"2-{kind}.bin").read_bytes()) == _many(kind)


@compressed
def test_a_long_row_is_compressed(kind: str) -> None:
    encode, decode, _ = CONTENT[kind]
    row = encode(_many(kind))
    assert row[0] == row_bytes.FORMAT_COMPRESSED
    assert len(row) < int.from_bytes(row[2:6], "little")
    assert decode(row) == _many(kind)


@pytest.mark.parametrize("size", [0, 1, 399, 401, 1 << 31, (1 << 32) - 1])
def test_a_block_of_another_size_is_refused(size: int) -> None:
    block = pa.Codec("lz4_raw").compress(bytes(400), asbytes=True)
    body = bytes([row_bytes.FORMAT_COMPRESSED, row_bytes.Kind.VERSIONS]) + pack("<I", size) + block
    with pytest.raises(StateCorrupt):
        layout.decode_versions(body + pack("<I", crc32(body)))


@every_kind
def test_an_empty_row_is_read_back(kind: str) -> None:
    encode, decode, content = CONTENT[kind]
    assert decode(encode(type(content)())) == type(content)()


@every_golden_row
def test_a_row_cut_short_anywhere_is_refused(name: str) -> None:
    _, decode, _ = CONTENT[name.partition("-")[2]]
    row = (GOLDEN / f"{name}.bin").read_bytes()
    for size in range(len(row)):
        with pytest.raises(StateCorrupt):
            decode(row[:size])


@every_golden_row
def test_a_row_with_any_byte_changed_is_refused(name: str) -> None:
    _, decode, _ = CONTENT[name.partition("-")[2]]
    row = (GOLDEN / f"{name}.bin").read_bytes()
    for place in range(1, len(row)):
        changed = row[:place] + bytes([row[place] ^ 0x40]) + row[place + 1 :]
        with pytest.raises(StateCorrupt):
            decode(changed)


@every_kind
def test_a_newer_format_says_that_it_is_newer(kind: str) -> None:
    _, decode, _ = CONTENT[kind]
    with pytest.raises(StateLayoutNewer, match="upgrade headrace"):
        decode(bytes([NEWEST.get(kind, 2) + 1]) + b"whatever comes then")


@every_kind
def test_format_0_was_never_written(kind: str) -> None:
    with pytest.raises(StateCorrupt, match="format 0"):
        CONTENT[kind][1](bytes(20))


@every_kind
def test_a_row_of_another_kind_is_refused(kind: str) -> None:
    other = "numbers" if kind == "slices" else "slices"
    with pytest.raises(StateCorrupt, match="kind"):
        CONTENT[kind][1]((GOLDEN / f"1-{other}.bin").read_bytes())


def _sealed(kind: row_bytes.Kind, columns: bytes) -> bytes:
    """A row whose checksum holds, whatever stands in it."""
    body = bytes([row_bytes.FORMAT, kind]) + columns
    return body + pack("<I", crc32(body))


def _integers(*numbers: int) -> bytes:
    return pack(f"<I{len(numbers)}q", len(numbers), *numbers)


def _strings(*texts: bytes | None) -> bytes:
    lengths = [-1 if text is None else len(text) for text in texts]
    joined = b"".join(text or b"" for text in texts)
    return pack(f"<I{len(texts)}i", len(texts), *lengths) + joined


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        (_strings(b"k") + _integers(2) + _integers(1) + _strings(b"v"), "every version has a key"),
        (_strings(b"k") + _integers(1, 1) + _integers(1, 2) + _strings(b"v", b"w"), "has a count"),
        (_strings(b"k", b"l") + _integers(0, 1) + _integers(1) + _strings(b"v"), "has a version"),
        (_strings(None) + _integers(1) + _integers(1) + _strings(b"v"), "nothing is null"),
        (_strings(b"k") + _integers(1) + _integers(1) + _strings(b"v") + b"?", "left over"),
        (pack("<I", 1 << 30), "cut short"),
    ],
)
def test_columns_that_do_not_fit_each_other_are_refused(columns: bytes, reason: str) -> None:
    with pytest.raises(StateCorrupt, match=reason):
        layout.decode_versions(_sealed(row_bytes.Kind.VERSIONS, columns))
    with pytest.raises(StateCorrupt, match=reason):
        decode_version_rows([_sealed(row_bytes.Kind.VERSIONS, columns)])


def test_a_held_record_of_no_topic_is_refused() -> None:
    numbers = _integers(1) * 4 + _integers(5)
    texts = _strings(b"topic") + _strings(b"k") + _strings(b"v") + _strings(b"")
    with pytest.raises(StateCorrupt, match="topic number"):
        layout.decode_held(_sealed(row_bytes.Kind.HELD, numbers + texts))


@given(
    st.dictionaries(
        st.binary(max_size=3),
        st.dictionaries(
            st.integers(-(1 << 63), FAR_MS), st.none() | st.binary(max_size=3), min_size=1
        ),
        max_size=4,
    )
)
def test_versions_come_back(points: dict[bytes, dict[int, bytes | None]]) -> None:
    histories = {
        key: (sorted(at), [at[time_ms] for time_ms in sorted(at)]) for key, at in points.items()
    }
    decoded = layout.decode_versions(layout.encode_versions(histories))
    assert decoded == histories
    assert list(decoded) == sorted(histories)
