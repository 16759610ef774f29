"""Durations and sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.errors import DurationInvalid, SizeInvalid
from headrace.contracts.time import (
    TIME_MS_MAX,
    format_duration_ms,
    parse_duration_ms,
    parse_size_bytes,
    parse_wait_ms,
)


def test_a_wait_may_be_a_duration_or_never() -> None:
    assert [parse_wait_ms(text) for text in ("10s", "never", None)] == [10_000, None, None]
    with pytest.raises(DurationInvalid, match=r"`sometimes` is not a duration.* 7d, or `never`$"):
        parse_wait_ms("sometimes")


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0s", 0),
        ("500ms", 500),
        ("30s", 30_000),
        ("10m", 600_000),
        ("1h30m", 5_400_000),
        ("7d", 604_800_000),
        ("2w", 1_209_600_000),
        (" 30s ", 30_000),
        (1500, 1500),
    ],
)
def test_durations(text: object, milliseconds: int) -> None:
    assert parse_duration_ms(text) == milliseconds


@pytest.mark.parametrize(
    "text", ["", "10", "10 minutes", "-5s", "1.5h", "s", "1h 30m", "30S", True, None, 1.5, [30]]
)
def test_not_durations(text: object) -> None:
    with pytest.raises(DurationInvalid, match="is not a duration; write"):
        parse_duration_ms(text)


@pytest.mark.parametrize("milliseconds", [-1, TIME_MS_MAX + 1])
def test_durations_out_of_range(milliseconds: int) -> None:
    with pytest.raises(DurationInvalid, match="out of range"):
        parse_duration_ms(milliseconds)


@given(st.integers(0, TIME_MS_MAX))
def test_a_duration_is_read_as_it_is_written(milliseconds: int) -> None:
    assert parse_duration_ms(format_duration_ms(milliseconds)) == milliseconds


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_the_parts_of_a_duration_add_up(hours: int, seconds: int) -> None:
    assert parse_duration_ms(f"{hours}h{seconds}s") == hours * 3_600_000 + seconds * 1000


@pytest.mark.parametrize(
    ("text", "size"),
    [("0B", 0), ("64MiB", 64 << 20), ("1 KiB", 1024), ("2GB", 2 * 10**9), (17, 17)],
)
def test_sizes(text: object, size: int) -> None:
    assert parse_size_bytes(text) == size


@pytest.mark.parametrize("text", ["", "64", "64 megabytes", "-1B", "٣MiB", True, None, 1.5])
def test_not_sizes(text: object) -> None:
    with pytest.raises(SizeInvalid, match="is not a size; write"):
        parse_size_bytes(text)


@pytest.mark.parametrize("text", [-1, 1 << 62, "9999999999TiB"])
def test_sizes_out_of_range(text: object) -> None:
    with pytest.raises(SizeInvalid, match="is out of range; a size is zero to"):
        parse_size_bytes(text)
