"""Windows on the wire."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.contracts.window import (
    WINDOW_HEADER,
    WindowBounds,
    parse_window,
    plain_key,
    window_header,
    window_of,
    windowed_key,
)

TIMES_MS = st.integers(-(1 << 63), (1 << 63) - 1)
WINDOWS = st.builds(
    WindowBounds,
    st.sampled_from(["tumbling", "hopping", "session", "sliding", "unlimited"]),
    TIMES_MS,
    TIMES_MS,
)


@given(WINDOWS)
def test_a_header_says_which_window(window: WindowBounds) -> None:
    _, value = window_header(window)
    assert parse_window(value) == window


@given(st.binary(), WINDOWS)
def test_a_windowed_key_gives_the_key_back(key: bytes, window: WindowBounds) -> None:
    assert plain_key(windowed_key(key, window), window) == key


@given(st.binary(), WINDOWS, TIMES_MS)
def test_two_windows_of_a_key_have_two_keys(key: bytes, window: WindowBounds, other: int) -> None:
    moved = window._replace(start_ms=other)
    assert (windowed_key(key, window) == windowed_key(key, moved)) == (window.start_ms == other)


def test_keys_are_as_kafka_streams_writes_them() -> None:
    assert windowed_key(b"k", WindowBounds("tumbling", 1, 11)) == b"k\0\0\0\0\0\0\0\x01"
    session = b"k\0\0\0\0\0\0\0\x0b\0\0\0\0\0\0\0\x01"
    assert windowed_key(b"k", WindowBounds("session", 1, 11)) == session


@pytest.mark.parametrize(
    "value", [None, b"", b"tumbling", b"tumbling:1", b"tumbling:1:x", b"daily:1:2", b"\xff:1:2"]
)
def test_other_headers_name_no_window(value: bytes | None) -> None:
    assert parse_window(value) is None


def test_the_last_header_counts() -> None:
    headers = (
        (WINDOW_HEADER, b"tumbling:0:5"),
        (WINDOW_HEADER, b"tumbling:5:10"),
        ("other", b"tumbling:10:15"),
    )
    assert window_of(headers) == WindowBounds("tumbling", 5, 10)
    assert window_of(headers[2:]) is None
