"""A request's head: what a strict reader of HTTP/1.1 makes of its bytes."""

from __future__ import annotations

import re
from typing import NamedTuple

_REQUEST_LINE = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+) ([!-~]+) HTTP/1\.([01])")
_FIELD = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):([\t -~\x80-\xff]*)")
_ABSOLUTE = re.compile(rb"http://[^/?#]+", re.IGNORECASE)


class Request(NamedTuple):
    """The method and the path of a request."""

    method: str
    path: str
    """Without a query."""


class Malformed(NamedTuple):
    """It cannot be answered."""

    sentence: str


def read_head(head: bytes) -> Request | Malformed:
    """The request whose head this is, the empty line at its end included."""
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    asked = _REQUEST_LINE.fullmatch(first)
    if asked is None:
        return Malformed(
            "the first line is not a request of HTTP/1.1, such as `GET /live HTTP/1.1`"
        )
    fields = [_FIELD.fullmatch(line) for line in lines]
    values: dict[bytes, list[bytes]] = {}
    for field in fields:
        if field is None:
            return Malformed("a header is not written as `Name: value`")
        values.setdefault(field[1].lower(), []).append(field[2].strip())
    if len(values.get(b"host", ())) != 1 and asked[3] == b"1":
        return Malformed("HTTP/1.1 wants one Host header")
    if b"transfer-encoding" in values or values.get(b"content-length", [b"0"]) != [b"0"]:
        return Malformed("nothing here takes a body; send none")
    target = _ABSOLUTE.sub(b"", asked[2], count=1)
    path = target.partition(b"?")[0].decode("ascii")
    if not path.startswith("/"):
        return Malformed("what is asked for does not begin with `/`")
    return Request(asked[1].decode("ascii"), path)
