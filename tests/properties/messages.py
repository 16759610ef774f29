"""Pack a message by itself, as its layout says."""

from __future__ import annotations

from struct import pack

from headrace.contracts.record import Record
from headrace.spark_jobs.operators.messages import origin_of

_NULL, _KEY_AGAIN, _VALUE_AGAIN = -1, -2, -3


def sent(origin: Record, *parts: bytes | None) -> bytes:
    """Pack a message into the value of a row; the row has the headers and place of its origin."""
    lengths: list[int] = []
    written: list[bytes] = []
    key, value = origin[:2]
    for part in parts:
        if part is None:
            lengths.append(_NULL)
        elif part in (key, value):
            lengths.append(_KEY_AGAIN if part == key else _VALUE_AGAIN)
        else:
            lengths.append(len(part))
            written.append(part)
    head = pack(f"<B{len(parts)}i", len(parts), *lengths)
    return b"".join((head, *written, origin_of(origin)))
