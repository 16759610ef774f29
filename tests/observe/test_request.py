"""Reading a request's head: whatever the bytes are, it ends well."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from headrace.services.observe.request import Malformed, Request, read_head

LINES = st.sampled_from(
    [
        b"GET /live HTTP/1.1", b"Host: a", b"Content-Length: 0", b"X", b":", b"a: b", b"", b" ",
        b"GET", b"GET http://a HTTP/1.1", b"Host:", b"\xff: \xff", b"Transfer-Encoding: x",
    ]
)  # fmt: skip


@given(st.one_of(st.binary(max_size=200), st.lists(LINES, max_size=6).map(b"\r\n".join)))
def test_any_bytes_are_a_request_or_refused(head: bytes) -> None:
    read = read_head(head + b"\r\n\r\n")
    assert isinstance(read, Request | Malformed)
    if isinstance(read, Request):
        assert read.path.startswith("/")
        assert read.path.isprintable()
        assert not set(read.path) & set("? \r\n")


def test_reading_takes_no_longer_for_odd_bytes() -> None:
    """No head makes a pattern try again and again."""
    odd = [b"A" * 8_000, b"A:" + b" \t" * 4_000, b"A:" + b" a" * 4_000, b"GET " + b"/" * 8_000]
    started = time.process_time()
    for line in odd:
        read_head(line + b"\r\n\r\n")
        read_head(b"GET / HTTP/1.1\r\nHost: a\r\n" + line + b"\r\n\r\n")
    assert time.process_time() - started < 0.1
