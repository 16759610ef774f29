"""One question to a broker: who of you is there?

Written by hand, since this room knows no Kafka client: it starts a broker before any event loop is
there, and clients give up or back off where this only asks again.
"""

from __future__ import annotations

import socket
import struct

from headrace.services.broker.ports import LOOPBACK

# Metadata, version 4: no topics, and none to be made.
_API_KEY, _API_VERSION, _CORRELATION = 3, 4, 1
_NO_CLIENT, _NO_TOPICS, _MAKE_TOPICS = -1, 0, 0
_BODY = struct.pack(
    ">hhihib", _API_KEY, _API_VERSION, _CORRELATION, _NO_CLIENT, _NO_TOPICS, _MAKE_TOPICS
)
_SIZE = struct.Struct(">i")
# Correlation and throttle time, then the brokers, whose number stands before them.
_HEAD = struct.Struct(">iii")
_BROKER_NUMBER, _TEXT_BYTES, _PORT = struct.Struct(">i"), struct.Struct(">h"), struct.Struct(">i")


def known_brokers(port: int, *, timeout_s: float) -> set[int]:
    """The numbers of the brokers that the one on this port knows; none where nobody answers."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout_s) as connection:
            connection.sendall(_SIZE.pack(len(_BODY)) + _BODY)
            (size,) = _SIZE.unpack(_read(connection, _SIZE.size))
            return _brokers_in(_read(connection, size))
    except OSError:
        # Refused, reset, or silent for too long: nobody is there yet, which is the answer.
        return set()


def _read(connection: socket.socket, size: int) -> bytes:
    read = b""
    while len(read) < size:
        part = connection.recv(size - len(read))
        if not part:
            raise ConnectionResetError
        read += part
    return read


def _brokers_in(answer: bytes) -> set[int]:
    _, _, count = _HEAD.unpack_from(answer)
    at = _HEAD.size
    found: set[int] = set()
    for _ in range(count):
        found.add(_BROKER_NUMBER.unpack_from(answer, at)[0])
        at = _after_text(answer, at + _BROKER_NUMBER.size)
        at = _after_text(answer, at + _PORT.size)
    return found


def _after_text(answer: bytes, at: int) -> int:
    """Where a text that may be null (its size is -1) ends."""
    size: int = _TEXT_BYTES.unpack_from(answer, at)[0]
    return at + _TEXT_BYTES.size + max(size, 0)
